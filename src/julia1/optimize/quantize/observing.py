"""What values a tensor takes over real rows, in fixed memory, and the range that eight bits should span."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from julia1.errors import InputError
from julia1.optimize.graph import Arrays, new_session, run, with_outputs

BINS = 4096
METHODS = ("min_max", "percentile", "entropy")
PERCENTILES = (99.99, 0.01)
LEVELS = 255
_FIRST_REACH = 1.0
_CANDIDATES = 64
"""Clippings that the entropy method compares."""


@dataclass(frozen=True)
class Range:
    """How real numbers become uint8: ``round(x / step) + zero``.

    Attributes:
        step: fp32 above 0.
        zero: the code of 0.
    """

    step: float
    zero: int

    def rounded(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What numbers become."""
        codes = np.clip(np.rint(values / self.step) + self.zero, 0, LEVELS)
        found: npt.NDArray[np.float64] = (codes - self.zero) * self.step
        return found


class Observer:
    """A histogram of all values of a tensor; its reach doubles when a larger one comes, two bins becoming one."""

    def __init__(self) -> None:
        self.least, self.most = 0.0, 0.0  # 0 must have a code of its own
        self._reach = _FIRST_REACH
        self._counts = np.zeros(BINS, np.int64)

    def see(self, values: npt.NDArray[Any]) -> None:
        """Take values in.

        Raises:
            InputError: one is no number.
        """
        flat = np.asarray(values, np.float32).ravel()
        if not len(flat):
            return
        least, most = float(flat.min()), float(flat.max())
        if not np.isfinite([least, most]).all():
            raise InputError("a value that is no number came up while the model was calibrated")
        self.least, self.most = min(self.least, least), max(self.most, most)
        while max(-least, most) > self._reach:
            pairs = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts[:] = 0
            self._counts[BINS // 4 : 3 * BINS // 4] = pairs
            self._reach *= 2
        places = ((flat / self._reach + 1) * (BINS // 2)).astype(np.int64)
        self._counts += np.bincount(np.clip(places, 0, BINS - 1), minlength=BINS)

    @property
    def middles(self) -> npt.NDArray[np.float64]:
        """The middle of each bin."""
        return ((np.arange(BINS) + 0.5) / (BINS // 2) - 1) * self._reach

    def span(self, method: str, percentiles: Sequence[float] = PERCENTILES) -> tuple[float, float]:
        """Least and largest value that shall have codes of their own.

        Args:
            method: ``min_max``, all that was seen; ``percentile``, but for the tails; ``entropy``, where clipping and
                rounding together change the distribution least (Kullback-Leibler).
            percentiles: of the largest and the least, in percent.

        Raises:
            InputError: there is no such method.
        """
        if method not in METHODS:
            raise InputError(f"the method {method!r} is none: {', '.join(METHODS)}")
        if method == "min_max" or not self._counts.any():
            return self.least, self.most
        if method == "entropy":
            reach = self._least_divergence()
            return max(self.least, -reach), min(self.most, reach)
        shares = np.cumsum(self._counts) / self._counts.sum()
        width = 2 * self._reach / BINS
        high, low = percentiles
        top = self.middles[min(int(np.searchsorted(shares, high / 100)), BINS - 1)] + width / 2
        bottom = self.middles[min(int(np.searchsorted(shares, low / 100, side="right")), BINS - 1)] - width / 2
        return max(self.least, min(bottom, 0.0)), min(self.most, max(top, 0.0))

    def best_range(self, method: str, percentiles: Sequence[float] = PERCENTILES) -> Range:
        """Symmetric or asymmetric, whichever moves what was seen less."""
        least, most = self.span(method, percentiles)
        if least == most:
            return Range(1.0, 128)
        step = (most - least) / LEVELS
        options = [Range(max(-least, most) / 127, 128), Range(step, int(np.clip(round(-least / step), 0, LEVELS)))]
        return min(options, key=self.error)

    def error(self, how: Range) -> float:
        """Mean square of what rounding moves the values by."""
        moved = self.middles - how.rounded(self.middles)
        return float((self._counts * moved**2).sum() / max(1, self._counts.sum()))

    def _least_divergence(self) -> float:
        sizes = self._counts[BINS // 2 :] + self._counts[: BINS // 2][::-1]
        last = int(np.flatnonzero(sizes)[-1]) + 1
        ends = np.unique(np.linspace(min(128, last), last, _CANDIDATES).astype(int))
        divergences = [_divergence(sizes, end) for end in ends]
        return float(ends[int(np.argmin(divergences))]) / (BINS // 2) * self._reach


def observe(model: onnx.ModelProto, tensors: Iterable[str], rows: Iterable[Arrays]) -> dict[str, Observer]:
    """Run a model on rows and look at tensors of it.

    Rows should be single and unpadded, so that no padding is seen.

    Raises:
        InputError: there are no rows, the model does not run on one, or a value is no number.
    """
    names = list(dict.fromkeys(tensors))
    inputs = {value.name for value in model.graph.input}
    asked = [name for name in names if name not in inputs]
    session = new_session(with_outputs(model, asked), optimised=True)
    found = {name: Observer() for name in names}
    seen = 0
    for feeds in rows:
        for name, value in zip(asked, run(session, asked, feeds), strict=True):
            found[name].see(value)
        for name in names:
            if name in inputs:
                found[name].see(feeds[name])
        seen += 1
    if not seen:
        raise InputError("there are no rows to calibrate on: give at least one")
    return found


def _divergence(sizes: npt.NDArray[np.int64], end: int) -> float:
    """Of the distribution clipped at a bin, when it is told in 128 levels, from itself."""
    wanted = sizes[:end].astype(np.float64)
    wanted[-1] += sizes[end:].sum()
    groups = np.minimum(np.arange(end) * 128 // end, 127)
    used = sizes[:end] > 0
    totals = np.bincount(groups, sizes[:end], 128)
    members = np.bincount(groups, used, 128)
    told = np.where(used, (totals / np.maximum(members, 1))[groups], 0)
    one, other = wanted / wanted.sum(), told / max(told.sum(), 1e-12)
    here = one > 0
    return float((one[here] * np.log(one[here] / np.maximum(other[here], 1e-12))).sum())
