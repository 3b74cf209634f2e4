"""Temperatures of heads: probabilities that come true."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.train.evaluation import evaluate  # noqa: E402
from julia1.train.head_calibration import calibrate_heads  # noqa: E402
from julia1.train.items import Item, target_of  # noqa: E402

LEVELS = HeadSpec("stars", "score", ("1", "2", "3", "4", "5"))


def test_the_probability_of_a_level_is_that_of_the_level_and_not_of_the_bell_it_was_trained_on() -> None:
    random = np.random.default_rng(7)
    outputs, items = [], []
    for _ in range(2000):
        level, given = (int(random.integers(5)) for _ in range(2))
        given = level if random.random() < 0.975 else given  # right in 98 of 100
        bell = target_of(LEVELS, float(given + 1), "f:1", 0.5)
        outputs.append(np.log(bell).astype(np.float32))
        items.append(Item([1], {"stars": target_of(LEVELS, float(level + 1), "f:1", 0.5)}))
    heads, calibration = calibrate_heads([LEVELS], {"stars": outputs}, items)
    one = evaluate(heads, {"stars": outputs}, items, calibration, [""] * 2000)["stars"]
    assert one.before is not None
    assert one.after is not None
    assert one.before.ece > 0.1, "a bell of half a level says 0.79 of the level in its middle"
    assert one.after.ece < 0.7 * one.before.ece
    assert calibration["stars"].temperature < 1
