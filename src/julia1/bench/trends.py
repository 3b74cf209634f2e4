"""Is there a trend? Statistics of series that are noisy, autocorrelated and settle at first; NumPy only.

*Level.* A series is cut into ``BLOCKS`` blocks of equal time and each is taken as its median: outliers vanish, and what
two samples a second apart share hardly matters.

*Slope.* Theil-Sen, the median slope of all pairs of blocks, is the figure that is told. Its interval is Sen's, from the
variance of Mann-Kendall's S, which Hamed and Rao's (1998) factor widens by the autocorrelation of the blocks. It says
whether a series rises, not whether it will go on to.

*Growth.* Memory rises for reasons that end: an allocator settles, ever more slowly, and a request of a new shape takes
room that is kept, in one step. A leak rises all along and goes on. So a rise is only called growth when three things
hold: the slope's interval lies above 0; the median rise from one of ``STRETCHES`` stretches to the next, which a few
steps do not move, is above noise and allowance; and the rate to come (that of the second half, slowed once more as it
was slowed since the first) is above the allowance and no small part of the slope. ``tests/bench/test_trends.py``
simulates leaks, settling, steps and noise.

*Quantiles.* The ratio of two quantiles has an interval from a block bootstrap: neighbouring probes share what the
machine is doing, so they are drawn in runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from julia1.train.scores import Interval

BLOCKS = 60
LEAST_BLOCKS = 20
STRETCHES = 10
NOISES = 1.25
"""Standard errors of the median rise of a stretch that it must lie above."""
GOES_ON = 0.3
"""Of the slope, what the rate to come must be at least."""
SURE = 1.96
"""Standard deviations that hold 95 % of a normal distribution."""
BOOTSTRAPS = 1000
RUNS = 20
"""Runs that a part is cut into for the bootstrap."""

_DEVIATION = 1.4826 * 1.2533
"""The median of absolute deviations times this, over the root of n, is the standard error of a median."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Growth:
    """What a series does; rates are in its unit over that of time.

    Attributes:
        slope: Theil-Sen.
        steady: the median rise of a stretch.
        ahead: the rate to come.
        grows: all three are above their bounds.
        smallest: a slower growth would not have been told from noise.
    """

    slope: Interval
    steady: float
    ahead: float
    grows: bool
    smallest: float


def block_medians(times: FloatArray, values: FloatArray, blocks: int = BLOCKS) -> tuple[FloatArray, FloatArray]:
    """Mean time and median value of each of at most ``blocks`` stretches of equal time; NaN is left out."""
    known = np.isfinite(values)
    times, values = times[known], values[known]
    if not len(times):
        return times, values
    edges = np.linspace(times[0], times[-1], min(blocks, len(times)) + 1)
    number = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)
    filled = np.unique(number)
    middles = [(float(times[number == i].mean()), float(np.median(values[number == i]))) for i in filled]
    found = np.array(middles)
    return found[:, 0], found[:, 1]


def theil_sen(times: FloatArray, values: FloatArray) -> Interval:
    """Median slope of all pairs, with Sen's interval under autocorrelation; at least two different times."""
    first, second = np.triu_indices(len(times), 1)
    slopes = np.sort((values[second] - values[first]) / (times[second] - times[first]))
    value = float(np.median(slopes))
    n = len(times)
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    variance *= _rank_inflation(values - value * times)
    half = SURE * math.sqrt(max(0.0, variance)) / 2
    middle = len(slopes) / 2
    low, high = math.floor(middle - half), math.ceil(middle + half)
    return Interval(
        value,
        float(slopes[low]) if low >= 0 else -math.inf,
        float(slopes[high]) if high < len(slopes) else math.inf,
    )


def growth(times: FloatArray, values: FloatArray, allowed: float) -> Growth:
    """Whether a series rises all along and will go on to.

    Args:
        times: in order.
        values: as many; NaN where nothing is known.
        allowed: a rate that is no growth yet.

    Raises:
        ValueError: fewer than ``LEAST_BLOCKS`` values are known.
    """
    middles, levels = block_medians(times, values)
    if len(levels) < LEAST_BLOCKS:
        raise ValueError(f"{len(levels)} values: {LEAST_BLOCKS} at least")
    slope = theil_sen(middles, levels)
    middles, levels = block_medians(times, values, STRETCHES)
    rates = np.diff(levels) / np.diff(middles)
    half = len(rates) // 2
    steady, first, second = (float(np.median(some)) for some in (rates, rates[:half], rates[-half - 1 :]))
    ahead = second * min(1.0, max(0.0, second / first)) if first > 0 else second
    noise = NOISES * float(np.median(np.abs(rates - steady))) * _DEVIATION / math.sqrt(len(rates))
    grows = slope.low > 0 and steady > max(allowed, noise) and ahead > max(allowed, GOES_ON * slope.value)
    spread = slope.value - slope.low
    return Growth(slope, steady, ahead, grows, max(allowed, noise, spread if math.isfinite(spread) else math.inf))


def quantile_ratio(
    first: FloatArray,
    last: FloatArray,
    quantile: float,
    seed: int = 0,
    scale: tuple[FloatArray, FloatArray] | None = None,
) -> Interval:
    """How many times the quantile of ``last`` is that of ``first``.

    Args:
        first, last: values above 0 in order of time.
        quantile: from 0 to 1.
        seed: of the bootstrap.
        scale: of each, as many values of what all of it is measured in: the ratio is over that of their medians.
    """
    random = np.random.default_rng(seed)
    sides = [(first, scale[0] if scale else np.ones_like(first)), (last, scale[1] if scale else np.ones_like(last))]

    def ratio(picked: Sequence[tuple[FloatArray, FloatArray]]) -> float:
        low, high = (float(np.quantile(values, quantile)) / float(np.median(units)) for values, units in picked)
        return high / low

    drawn = [ratio([_redrawn(values, units, random) for values, units in sides]) for _ in range(BOOTSTRAPS)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(ratio(sides), float(low), float(high))


def _redrawn(values: FloatArray, units: FloatArray, random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """As many values in runs drawn with replacement, from anywhere."""
    length = max(1, len(values) // RUNS)
    starts = random.integers(0, len(values) - length + 1, -(-len(values) // length))
    places = (starts[:, None] + np.arange(length)).ravel()[: len(values)]
    return values[places], units[places]


def _rank_inflation(residuals: FloatArray) -> float:
    """Hamed and Rao's factor of the variance of S, at least 1: over first lags that are correlated beyond chance."""
    n = len(residuals)
    ranks = np.argsort(np.argsort(residuals, kind="stable"), kind="stable").astype(np.float64)
    ranks -= ranks.mean()
    power = float(ranks @ ranks)
    if n < 4 or not power:
        return 1.0
    total = 0.0
    for lag in range(1, n // 2):
        correlation = float(ranks[:-lag] @ ranks[lag:]) / power
        if correlation <= SURE / math.sqrt(n):
            break
        total += (n - lag) * (n - lag - 1) * (n - lag - 2) * correlation
    return max(1.0, 1 + 2 / (n * (n - 1) * (n - 2)) * total)
