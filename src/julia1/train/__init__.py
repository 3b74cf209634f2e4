"""Training: data, views, trainer, calibration. Needs the ``train`` extra."""
