"""Leaks are found and settling is not called one, over simulated series; intervals hold what they should."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1.bench.trends import (
    FloatArray,
    block_medians,
    growth,
    quantile_ratio,
    theil_sen,
)

MINUTES = 10.0
TIMES = np.arange(1, 601) * MINUTES / 600
JUDGED = TIMES >= 0.2 * MINUTES
ALLOWED = 1.0 / (0.8 * MINUTES)
"""Of one MB in what is judged."""
RUNS = 25

Shape = Callable[[np.random.Generator], FloatArray]


def correlated(random: np.random.Generator, seconds: float, deviation: float) -> FloatArray:
    """Noise that forgets itself in so many seconds."""
    keep = math.exp(-1 / seconds)
    fresh = random.normal(0, deviation * math.sqrt(1 - keep * keep), len(TIMES))
    found = np.zeros(len(TIMES))
    for i in range(1, len(TIMES)):
        found[i] = keep * found[i - 1] + fresh[i]
    return found


def steps(random: np.random.Generator, number: int) -> FloatArray:
    found = np.zeros(len(TIMES))
    for _ in range(number):
        found[random.integers(0, len(TIMES)) :] += random.uniform(2, 40)
    return found


NOISES: dict[str, Shape] = {
    "none": lambda random: np.zeros(len(TIMES)),
    "white": lambda random: random.normal(0, 0.3, len(TIMES)),
    "pages": lambda random: np.round(random.normal(0, 0.4, len(TIMES))),
    "wandering": lambda random: correlated(random, 10, 0.2),
}
HARMLESS: dict[str, Shape] = {
    "flat": lambda random: 0 * TIMES,
    "settles in 30 s": lambda random: 50 * (1 - np.exp(-TIMES / 0.5)),
    "settles in a minute": lambda random: 50 * (1 - np.exp(-TIMES)),
    "settles in two minutes": lambda random: 50 * (1 - np.exp(-TIMES / 2)),
    "one step": lambda random: steps(random, 1),
    "two steps": lambda random: steps(random, 2),
    "falls": lambda random: -2 * TIMES,
    "saw": lambda random: 20 * (TIMES * 3 % 1),
}
LEAKS: dict[str, Shape] = {
    "a megabyte a minute": lambda random: TIMES,
    "in whole megabytes": lambda random: np.floor(TIMES),
    "after settling": lambda random: TIMES + 50 * (1 - np.exp(-TIMES / 0.5)),
    "beside a slow settling": lambda random: TIMES + 3 * np.log(TIMES),
    "beside a step": lambda random: TIMES + 10 * (TIMES > 6),
    "half a megabyte a minute": lambda random: 0.5 * TIMES,
}


def share_called_growth(shape: Shape, noise: Shape) -> float:
    random = np.random.default_rng(20261130)
    series = [150 + shape(random) + noise(random) for _ in range(RUNS)]
    return sum(growth(TIMES[JUDGED], one[JUDGED], ALLOWED).grows for one in series) / RUNS


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", HARMLESS)
def test_what_settles_is_seldom_called_growth(shape: str, noise: str) -> None:
    assert share_called_growth(HARMLESS[shape], NOISES[noise]) <= 0.08


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", LEAKS)
def test_a_leak_is_found(shape: str, noise: str) -> None:
    assert share_called_growth(LEAKS[shape], NOISES[noise]) >= 0.92


def test_the_rate_of_a_leak_is_told_beside_what_could_not_be_seen() -> None:
    random = np.random.default_rng(1)
    found = growth(TIMES, 100 + 1.5 * TIMES + random.normal(0, 0.3, 600), ALLOWED)
    assert found.slope.low <= 1.5 <= found.slope.high
    assert found.steady == pytest.approx(1.5, abs=0.3) and found.ahead == pytest.approx(1.5, abs=0.4)
    quiet, loud = (growth(TIMES, random.normal(0, noise, 600), 0.0).smallest for noise in (0.1, 3.0))
    assert 0 < quiet < loud


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="values"):
        growth(TIMES[:10], TIMES[:10], 0.1)
    with pytest.raises(ValueError, match="values"):
        growth(TIMES, np.full(600, math.nan), 0.1)


@given(st.integers(0, 10_000), st.floats(0.0, 50.0))
def test_the_interval_of_a_slope_is_around_it(seed: int, seconds: float) -> None:
    random = np.random.default_rng(seed)
    noise = correlated(random, seconds, 1.0) if seconds else random.normal(0, 1, len(TIMES))
    found = theil_sen(*block_medians(TIMES, noise))
    assert found.low <= found.value <= found.high


def test_the_interval_holds_the_truth_for_noise_that_is_correlated() -> None:
    random = np.random.default_rng(5)
    inside = [
        found.low <= 1 <= found.high
        for found in (theil_sen(*block_medians(TIMES, TIMES + correlated(random, 20, 1.0))) for _ in range(100))
    ]
    assert np.mean(inside) > 0.85


def test_one_outlier_moves_no_slope() -> None:
    values = 2 * TIMES
    wild = values.copy()
    wild[300] = 1e6
    assert theil_sen(*block_medians(TIMES, wild)).value == pytest.approx(2, rel=1e-3)


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(math.nan)), min_size=1, max_size=200), st.integers(1, 40))
def test_blocks_hold_medians_of_what_is_known(values: list[float], blocks: int) -> None:
    times, medians = block_medians(np.arange(len(values), dtype=float), np.array(values), blocks)
    known = [value for value in values if not math.isnan(value)]
    assert len(times) == len(medians) <= min(blocks, max(1, len(known)))
    if known:
        assert min(known) <= medians.min() and medians.max() <= max(known)
        assert (np.diff(times) > 0).all()


def test_a_slower_last_part_is_told_by_how_much() -> None:
    random = np.random.default_rng(2)
    first, last = random.lognormal(0, 0.2, 600), 1.3 * random.lognormal(0, 0.2, 600)
    for quantile in (0.5, 0.99):
        found = quantile_ratio(first, last, quantile)
        assert found.low < 1.3 < found.high and found.low > 1.05
    even = quantile_ratio(first, last / 1.3, 0.5)
    assert even.low < 1 < even.high


def test_a_slower_machine_is_taken_out() -> None:
    random = np.random.default_rng(3)
    first, last = random.lognormal(0, 0.2, 400), 1.5 * random.lognormal(0, 0.2, 400)
    found = quantile_ratio(first, last, 0.5, scale=(np.full(400, 2.0), np.full(400, 3.0)))
    assert found.low < 1 < found.high


def test_bursts_of_slowness_widen_the_interval() -> None:
    bursts = 2 + np.sin(np.linspace(0, 6 * np.pi, 600))
    shuffled = np.random.default_rng(4).permutation(bursts)
    wide, narrow = (quantile_ratio(one, one, 0.5) for one in (bursts, shuffled))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
