"""Training: sources, views, the mix, the trainer, calibration. Needs the ``train`` extra."""

from julia1.train.mix import Mix
from julia1.train.open_decisions import train_open_decisions
from julia1.train.recipe import Recipe, load_recipe
from julia1.train.release import Release, release, train_and_release
from julia1.train.trainer import Trainer

__all__ = ["Mix", "Recipe", "Release", "Trainer", "load_recipe", "release", "train_and_release", "train_open_decisions"]
