"""Training: sources, views, the mix, the trainer, calibration, release. Needs the ``train`` extra.

Names are imported when first used: reading a recipe must not need PyTorch.
"""

from typing import TYPE_CHECKING

from julia1.lazy import lazy_names

if TYPE_CHECKING:
    from julia1.train.mix import Mix
    from julia1.train.open_decisions import train_open_decisions
    from julia1.train.recipe import Recipe, load_recipe
    from julia1.train.release import Release, release, train_and_release
    from julia1.train.trainer import Trainer

__all__ = [
    "Mix",
    "Recipe",
    "Release",
    "Trainer",
    "load_recipe",
    "release",
    "train_and_release",
    "train_open_decisions",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Mix": "julia1.train.mix",
        "Recipe": "julia1.train.recipe",
        "Release": "julia1.train.release",
        "Trainer": "julia1.train.trainer",
        "load_recipe": "julia1.train.recipe",
        "release": "julia1.train.release",
        "train_and_release": "julia1.train.release",
        "train_open_decisions": "julia1.train.open_decisions",
    },
)
