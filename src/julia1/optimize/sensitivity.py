"""Which layers a change moves: two forms of one model compared tensor by tensor on real rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from julia1.errors import InputError
from julia1.optimize.graph import Arrays, new_session, run, with_outputs


@dataclass(frozen=True)
class Movement:
    """How far a tensor departs from what it was.

    Attributes:
        name: of the tensor.
        cosine: of all its values at once, 1 when they point the same way.
        decibels: signal over noise, ``10 · log10(Σ was² / Σ (is − was)²)``; infinite when nothing moved.
        largest: largest difference of one value.
    """

    name: str
    cosine: float
    decibels: float
    largest: float


def compare(
    before: onnx.ModelProto, after: onnx.ModelProto, tensors: Sequence[str], rows: Iterable[Arrays]
) -> list[Movement]:
    """How far tensors of a model departed, in their order, over all rows.

    Raises:
        InputError: one of the models has not all the tensors, does not run on a row, or there are no rows.
    """
    sessions = [_showing(model, tensors) for model in (before, after)]
    sums = np.zeros((len(tensors), 4))  # was², is², was · is, (is − was)²
    largest = np.zeros(len(tensors))
    seen = 0
    for feeds in rows:
        pairs = zip(*(run(session, tensors, feeds) for session in sessions), strict=True)
        for place, (was, now) in enumerate(pairs):
            one, other = was.ravel().astype(np.float64), now.ravel().astype(np.float64)
            moved = other - one
            sums[place] += [one @ one, other @ other, one @ other, moved @ moved]
            largest[place] = max(largest[place], np.abs(moved).max(initial=0))
        seen += 1
    if not seen:
        raise InputError("there are no rows to compare on: give at least one")
    return [
        Movement(name, _cosine(*own[:3]), _decibels(own[0], own[3]), float(most))
        for name, own, most in zip(tensors, sums, largest, strict=True)
    ]


def fewest_kept(worst_first: Sequence[str], good: Callable[[Sequence[str]], bool]) -> list[str] | None:
    """The shortest beginning of a list of layers that has to stay in high precision.

    Args:
        worst_first: layers, the most moved first.
        good: whether the model with these layers kept is good enough; asked about twice the logarithm of their number.

    Returns:
        The layers; ``None`` when the model is not good enough even with all of them kept.
    """
    if good([]):
        return []
    most = 1
    while most < len(worst_first) and not good(worst_first[:most]):
        most *= 2
    most = min(most, len(worst_first))
    if most == len(worst_first) and not good(worst_first):
        return None
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if good(worst_first[:middle]) else (middle, most)
    return list(worst_first[:most])


def _showing(model: onnx.ModelProto, tensors: Sequence[str]) -> Any:
    made = {name for node in model.graph.node for name in node.output}
    missing = next((name for name in tensors if name not in made), None)
    if missing is not None:
        raise InputError(f"the model computes no tensor {missing!r}")
    return new_session(with_outputs(model, tensors), optimised=True)


def _cosine(one: float, other: float, both: float) -> float:
    return float(both / math.sqrt(one * other)) if one and other else float(one == other)


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf
