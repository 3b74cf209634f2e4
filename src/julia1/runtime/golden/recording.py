"""What an engine is given and what it computes, kept small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.runtime.engines import Engine
from julia1.runtime.fixed import ATTENTION_MASK, INPUT_IDS
from julia1.runtime.scorer import LOGITS, TRUNK_MEAN

SKETCH = 8
"""Numbers kept of a tensor, beside its root mean square."""
OPTION_TEXTS, STATE = "option texts", "state"

Arrays = Mapping[str, npt.NDArray[Any]]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pass:
    """One call of the engine.

    Attributes:
        reads: ``OPTION_TEXTS`` or ``STATE``.
        ids: piece ids of each row, without padding.
        tensors: by name, in the order they are computed in: root mean square and sketch, float64 ``[1 + SKETCH]``.
        outputs: by name, what answers are made of, float64 ``[numbers]``, without padding.
    """

    reads: str
    ids: tuple[tuple[int, ...], ...]
    tensors: Mapping[str, FloatArray]
    outputs: Mapping[str, FloatArray]


class Recorder:
    """An engine that keeps what another is given and computes.

    Args:
        engine: does the work.
        names: tensors to keep, in the order they are computed in.
        looked_into: gives them; the engine itself when ``None``.
    """

    def __init__(self, engine: Engine, names: Sequence[str], looked_into: Engine | None = None) -> None:
        self.passes: list[Pass] = []
        self._engine, self._names, self._looked_into = engine, list(names), looked_into

    @property
    def inputs(self) -> Mapping[str, Sequence[int | str]]:
        """Those of the engine."""
        return self._engine.inputs

    def run(self, feeds: Arrays, outputs: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """As the engine does."""
        if self._looked_into is None:
            wanted = list(dict.fromkeys([*self._names, *outputs]))
            found = dict(zip(wanted, self._engine.run(feeds, wanted), strict=True))
        else:
            found = dict(zip(self._names, self._looked_into.run(feeds, self._names), strict=True))
            found.update(zip(outputs, self._engine.run(feeds, outputs), strict=True))
        inside = feeds["branches"] >= 0 if "branches" in feeds else feeds[ATTENTION_MASK] == 1
        tensors = {name: sketch(_real(found[name], inside)) for name in self._names}
        kept = {
            name: (found[name][feeds["markers"] > 0] if name == LOGITS else _real(found[name], inside))
            .ravel()
            .astype(np.float64)
            for name in outputs
            if name not in tensors
        }
        ids = tuple(tuple(row[real].tolist()) for row, real in zip(feeds[INPUT_IDS], inside, strict=True))
        self.passes.append(Pass(OPTION_TEXTS if TRUNK_MEAN in outputs else STATE, ids, tensors, kept))
        return [found[name] for name in outputs]

    def taken(self) -> tuple[Pass, ...]:
        """The passes since this was last asked."""
        passes, self.passes = tuple(self.passes), []
        return passes


def sketch(values: npt.NDArray[np.generic]) -> FloatArray:
    """Root mean square of all values, then ``SKETCH`` sums of them with fixed signs; float64 ``[1 + SKETCH]``.

    The mean square of a difference of sketches is that of the tensors, in expectation (Charikar, Chen, Farach-Colton
    2002, "Finding frequent items in data streams"): a few numbers tell how far apart two large tensors are. Signs and
    places come from SplitMix64, which is the same on every machine.
    """
    flat = values.ravel().astype(np.float64)
    if not flat.size:
        return np.zeros(1 + SKETCH)
    mixed = np.arange(flat.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    places = (mixed % np.uint64(SKETCH)).astype(np.int64)
    signs = np.where(mixed >> np.uint64(63), 1.0, -1.0)
    sums = np.bincount(places, signs * flat, SKETCH) / np.sqrt(flat.size / SKETCH)
    return np.concatenate([[np.sqrt(np.square(flat).mean())], sums])


def _real(value: npt.NDArray[np.generic], inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.generic]:
    """A value of tokens without what stands at padding, any other as it is; ``inside`` is ``[rows, tokens]``."""
    if value.ndim == 3 and value.shape[:2] == inside.shape:
        return value[inside]
    if value.ndim == 2 and len(value) == inside.size:  # rows and tokens in one axis
        return value[inside.ravel()]
    return value
