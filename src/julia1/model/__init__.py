"""The PyTorch side of a decision model: encoder, heads, weights. Needs the ``train`` extra."""

from julia1.model.backbone import load_encoder, new_encoder
from julia1.model.eager import load_eager
from julia1.model.option_model import OptionHead, OptionModel
from julia1.model.weights import load_weights, round_weights, save_weights

__all__ = [
    "OptionHead",
    "OptionModel",
    "load_eager",
    "load_encoder",
    "load_weights",
    "new_encoder",
    "round_weights",
    "save_weights",
]
