"""What both trainers do with learning rates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from torch import nn


class Rates(Protocol):
    """Learning rates and weight decay, as ``Training`` and ``FineTuning`` have them."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def head_learning_rate(self) -> float: ...
    @property
    def layer_decay(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


def parameter_groups(model: nn.Module, rates: Rates) -> list[dict[str, Any]]:
    """Layer-wise learning rates: full at the encoder's top layer, times ``layer_decay`` for each one below.

    All that is not of ``model.encoder`` has the heads' rate. Vectors (biases, gains) are not decayed.
    """
    encoder: Any = model.encoder
    layers = list(encoder.encoder.layer if hasattr(encoder, "encoder") else encoder.layers)
    groups: list[dict[str, Any]] = []

    def add(parameters: Iterable[nn.Parameter], rate: float) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        matrices = [parameter for parameter in trained if parameter.ndim > 1]
        vectors = [parameter for parameter in trained if parameter.ndim <= 1]
        for members, decay in ((matrices, rates.weight_decay), (vectors, 0.0)):
            if members:
                groups.append({"params": members, "lr": rate, "weight_decay": decay})

    add(encoder.embeddings.parameters(), rates.learning_rate * rates.layer_decay ** len(layers))
    for depth, layer in enumerate(layers):
        add(layer.parameters(), rates.learning_rate * rates.layer_decay ** (len(layers) - 1 - depth))
    placed = {id(p) for part in (encoder.embeddings, *layers) for p in part.parameters()}
    add((p for p in encoder.parameters() if id(p) not in placed), rates.learning_rate)
    of_encoder = {id(parameter) for parameter in encoder.parameters()}
    add((p for p in model.parameters() if id(p) not in of_encoder), rates.head_learning_rate)
    return groups


def linear_schedule(step: int, steps: int, warmup: float) -> float:
    """Linear warm-up over a share of the steps, then linear decay to zero, as a factor."""
    warm = max(1, round(warmup * steps))
    return (step + 1) / warm if step < warm else max(0.0, (steps - step) / max(1, steps - warm))
