"""Channels with outliers: shared between activations and weights before both are rounded.

A row of activations has one step. Where a few channels are a hundred times as large as the others, as in the residual
stream of ModernBERT, the others are left with two or three levels. Dividing a channel by a scale and multiplying its
weights by it changes nothing in fp32 and shares the burden with the weights (SmoothQuant, Xiao et al. 2022,
https://arxiv.org/abs/2211.10438). It costs a product a value, so it is only done where it is measured to help.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from julia1.optimize.graph import Arrays, OperatorGraph, new_session, run, with_outputs
from julia1.optimize.quantize.layers import FloatArray, Linear, linear_layers, steps_by_column

ROWS = 512
"""Rows of activations that are kept of a value."""
EVEN = 0.5
"""Half of what a channel has more than the others goes to the weights."""
WORTH = 0.9
"""Share of the noise that must be left at most for a scale to be used."""


def find_scales(graph: OperatorGraph, rows: Iterable[Arrays], most: int) -> dict[str, FloatArray]:
    """Scales of the channels of those values that are better off with them.

    Args:
        graph: of the model.
        rows: real ones.
        most: largest code of a weight.

    Returns:
        By tensor, fp32 ``[channels]``.
    """
    readers: dict[str, list[Linear]] = {}
    for layer in linear_layers(graph):
        readers.setdefault(layer.value, []).append(layer)
    found = {}
    for value, kept in _samples(graph, list(readers), rows).items():
        weight = np.concatenate([layer.weight for layer in readers[value]], axis=1)
        scale = _scale(kept, weight)
        if noise(kept / scale, weight * scale[:, None], most) < WORTH * noise(kept, weight, most):
            found[value] = scale
    return found


def noise(inputs: FloatArray, weight: FloatArray, most: int) -> float:
    """Mean square that rounding both sides moves their product by."""
    step = np.abs(inputs).max(axis=1, keepdims=True) / 127
    step = np.where(step > 0, step, 1)
    codes, columns = steps_by_column(weight, most)
    moved = (np.rint(inputs / step) * step) @ (codes * columns) - inputs @ weight
    return float(np.square(moved, dtype=np.float64).mean())


def _scale(inputs: FloatArray, weight: FloatArray) -> FloatArray:
    reach, own = np.abs(inputs).max(axis=0), np.abs(weight).max(axis=1)
    # a channel that these rows never used must not be taken for one that is never used
    reach = np.maximum(reach, np.median(reach) * 1e-2 + 1e-6)
    own = np.maximum(own, np.median(own) * 1e-2 + 1e-6)
    scale = reach**EVEN / own ** (1 - EVEN)
    found: FloatArray = (scale / np.median(scale)).astype(np.float32)
    return found


def _samples(graph: OperatorGraph, values: Sequence[str], rows: Iterable[Arrays]) -> dict[str, FloatArray]:
    """Rows ``[rows, channels]`` of each value, about ``ROWS``, evenly thinned out."""
    inner = [name for name in values if name not in graph.inputs]
    session = new_session(with_outputs(graph.model, inner), optimised=True)
    seen: dict[str, list[npt.NDArray[np.float32]]] = {name: [] for name in inner}
    for feeds in rows:
        for name, value in zip(inner, run(session, inner, feeds), strict=True):
            flat = value.reshape(-1, value.shape[-1])
            seen[name].append(flat[:: max(1, len(flat) // 16)])
    together = {name: np.concatenate(parts) for name, parts in seen.items() if parts}
    return {name: kept[:: max(1, len(kept) // ROWS)] for name, kept in together.items()}
