"""Between what the hyper-parameters of fine-tuning must lie."""

from __future__ import annotations

from julia1.errors import InputError
from julia1.train.recipe import FineTuning

_LARGE = 1e9
BOUNDS: dict[str, tuple[float, float]] = {
    "epochs": (1, _LARGE),
    "batch_rows": (1, _LARGE),
    "batch_tokens": (1, _LARGE),
    "accumulate": (1, _LARGE),
    "learning_rate": (0, _LARGE),
    "head_learning_rate": (0, _LARGE),
    "layer_decay": (0, 1),
    "weight_decay": (0, _LARGE),
    "warmup": (0, 1),
    "clip_norm": (1e-9, _LARGE),
    "dropout": (0, 0.99),
    "token_dropout": (0, 0.9),
    "feature_dropout": (0, 1),
    "label_smoothing": (0, 0.99),
    "level_spread": (0, 100),
    "evaluate_every": (1, _LARGE),
    "teacher_hidden": (0, _LARGE),
    "patience": (1, _LARGE),
    "threads": (1, 1024),
    "seed": (0, _LARGE),
}
"""Name to the least and the most. What depends on the encoder, or on another one, is checked in ``fit``."""


def require_bounds(settings: FineTuning, where: str = "") -> None:
    """Raise ``InputError`` for the first hyper-parameter that is no number to train with, NaN included.

    Args:
        settings: hyper-parameters.
        where: they come from, for the error.
    """
    for name, (least, most) in BOUNDS.items():
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            upper = "" if most == _LARGE else f", {most:g} at most"
            raise InputError(f"{where}{name} is {value:g}: at least {least:g}{upper}")
