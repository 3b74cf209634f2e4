"""Measuring a bundle on this machine: soak, acceptance, tuning."""
