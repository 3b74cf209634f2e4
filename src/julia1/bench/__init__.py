"""Measuring a bundle on this machine: tuning."""

from julia1.bench.tuning import Measured, Setting, Wanted, search

__all__ = ["Measured", "Setting", "Wanted", "search"]
