"""The error among answered inputs stays under its bound as often as was promised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from julia1 import InputError  # noqa: E402
from julia1.bundle import Calibration  # noqa: E402
from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.train.data.rows import DataRow  # noqa: E402
from julia1.train.guarantee import (  # noqa: E402
    check_guarantee,
    guard_heads,
    halves,
    least_rows,
    lowest_threshold,
    measured_on,
    thresholds_to_try,
    upper_bound,
)
from julia1.train.items import Item  # noqa: E402
from julia1.train.parts import Parts  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402

SETTINGS = FineTuning(max_error=0.1)
DRAWS = 500
ROWS = 300


def draw(random: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidences and whether answers are right: a model that errs with a chance of ``(1 - confidence)² / 2``."""
    sure = random.random(number)
    return sure, random.random(number) >= (1 - sure) ** 2 / 2


def true_error(threshold: float) -> float:
    """Of those answered by that model: the mean of (1 - c)² / 2 over c from the threshold to 1."""
    return (1 - threshold) ** 2 / 6


def test_the_guarantee_holds_over_many_draws() -> None:
    random = np.random.default_rng(11)
    found, careless = [], []
    for _ in range(DRAWS):
        seen, held = draw(random, ROWS), draw(random, ROWS)
        found.append(lowest_threshold(thresholds_to_try(*seen, 0.1), *held, 0.1, 0.95))
        # what one would do without a test: the lowest threshold whose answered rows have few enough errors
        grid = np.linspace(0, 0.99, 100)
        fine = [t for t in grid if (~held[1][held[0] >= t]).sum() <= 0.1 * (held[0] >= t).sum()]
        careless.append(min(fine))
    given_ = [threshold for threshold in found if threshold is not None]
    violations = sum(true_error(threshold) > 0.1 for threshold in given_) / DRAWS
    noise = 3 * (0.05 * 0.95 / DRAWS) ** 0.5
    assert violations <= 0.05 + noise
    assert violations > 0, "the bound is used up, not missed by far"
    assert sum(true_error(threshold) > 0.1 for threshold in careless) / DRAWS > 0.3, "these draws can tell"
    assert len(given_) > 0.9 * DRAWS
    assert np.median(given_) < 0.5, "0.23 would be the lowest"


def test_a_model_that_never_knows_gets_no_threshold() -> None:
    random = np.random.default_rng(12)
    found = []
    for _ in range(200):
        seen, held = ((random.random(ROWS), random.random(ROWS) > 0.1) for _ in range(2))
        found.append(lowest_threshold(thresholds_to_try(*seen, 0.1), *held, 0.1, 0.95))
    assert sum(threshold is not None for threshold in found) / 200 <= 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


def test_a_model_that_is_good_enough_need_not_abstain() -> None:
    sure, right = np.linspace(0, 1, 300), np.ones(300, bool)
    tries = thresholds_to_try(sure, right, 0.05)
    assert lowest_threshold(tries, sure, right, 0.05, 0.95) == 0.0


def test_trying_goes_down_and_stops_at_the_first_failure() -> None:
    # above 0.5 all is right, from 0.2 to 0.5 all is wrong, and below that so many are right that all would pass again
    sure = np.concatenate([np.linspace(0.51, 1, 100), np.linspace(0.2, 0.5, 30), np.linspace(0, 0.19, 5000)])
    right = np.concatenate([np.ones(100, bool), np.zeros(30, bool), np.ones(5000, bool)])
    tries = np.array([0.6, 0.51, 0.3, 0.0])
    assert lowest_threshold(tries, sure, right, 0.05, 0.95) == 0.51
    assert lowest_threshold(tries[3:], sure, right, 0.05, 0.95) == 0.0


@given(st.floats(0.005, 0.5), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_the_least_rows_are_just_enough(bound: float, confidence: float) -> None:
    least = least_rows(bound, confidence)
    assert upper_bound(0, least, confidence) <= bound + 1e-9
    assert least == 1 or upper_bound(0, least - 1, confidence) > bound - 1e-9


def test_least_rows_of_the_usual_bound() -> None:
    assert least_rows(0.05, 0.95) == 59


def rows_of(number: int, head: str = "topic", answers: str = "xy") -> list[DataRow]:
    return [DataRow(f"f:{i}", f"text {i}", {head: answers[i % 2]}, {}, "", "", False, {}) for i in range(number)]


def test_halves_depend_on_the_text_alone() -> None:
    rows = rows_of(400)
    kept, held = halves(rows, SETTINGS)
    assert 150 < len(held) < 250
    assert sorted(row.place for row in (*kept, *held)) == sorted(row.place for row in rows)
    again, _ = halves(rows[::-1], SETTINGS)
    assert {row.place for row in again} == {row.place for row in kept}
    assert halves(rows, FineTuning()) == (rows, [])
    shouted = [replace(row, text=row.text.upper(), place="g") for row in held]
    assert not halves(shouted, SETTINGS)[0], "copies of a text stay together"
    grouped = [replace(row, group="one") for row in rows]
    assert [] in halves(grouped, SETTINGS), "and so does a group"


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        (FineTuning(max_error=0.0), 400, "max_error is 0: between 0 and 1"),
        (FineTuning(max_error=1.0), 400, "max_error is 1: between 0 and 1"),
        (FineTuning(max_error=0.1, error_confidence=1.0), 400, "error_confidence is 1: between 0 and 1"),
        (
            FineTuning(max_error=0.05),
            60,
            "an error of at most 0.05 of 'topic' with confidence 0.95 takes 59 validation rows .*; half of the 60 are "
            "held back for it, .* give 138 or more, or a larger max_error",
        ),
    ],
)
def test_what_cannot_be_guaranteed_is_refused(settings: FineTuning, rows: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_guarantee(Parts(rows_of(20), rows_of(rows), []), settings)


def test_enough_rows_pass_and_so_does_no_bound() -> None:
    check_guarantee(Parts(rows_of(20), rows_of(400), []), SETTINGS)
    check_guarantee(Parts(rows_of(20), rows_of(1), []), FineTuning())


def test_a_bound_needs_a_head_that_can_be_right_or_wrong() -> None:
    rows = [replace(row, answers={"price": float(i)}) for i, row in enumerate(rows_of(100))]
    with pytest.raises(InputError, match="there are none"):
        check_guarantee(Parts(rows, rows, []), SETTINGS)


HEAD = HeadSpec("late", "yesno", ("no", "yes"))
VALUE = HeadSpec("price", "value")


def answered(number: int, seed: int, wrong_under: float) -> tuple[dict[str, list[np.ndarray]], list[Item]]:
    """Rows whose confidence is spread evenly; those under ``wrong_under`` are right half of the time."""
    random = np.random.default_rng(seed)
    sure = random.random(number)
    chances = (1 + sure) / 2
    yes = random.random(number) < 0.5
    logits = np.log(chances / (1 - chances)) * np.where(yes, 1, -1)
    wanted = np.where((sure < wrong_under) & (random.random(number) < 0.5), ~yes, yes)
    outputs = {"late": [np.array([0, one], np.float32) for one in logits], "price": [np.zeros(1, np.float32)] * number}
    return outputs, [Item([1], {"late": np.eye(2, dtype=np.float32)[int(one)]}) for one in wanted]


def test_a_threshold_holds_for_every_variant_and_goes_into_the_head() -> None:
    outputs, items = answered(400, 1, 0.5)
    served, held = answered(400, 2, 0.5)
    # the same rows in another variant: surer of everything, so its threshold must be higher
    surer = {**served, "late": [one * 1.05 for one in served["late"]]}
    heads, (one,) = guard_heads([HEAD, VALUE], outputs, items, [served, surer], held, {}, SETTINGS)
    assert heads[0].abstain_below == one.threshold
    assert heads[1] == VALUE
    alone = [guard_heads([HEAD], outputs, items, [of], held, {}, SETTINGS)[1][0].threshold for of in (served, surer)]
    assert one.threshold == max(threshold for threshold in alone if threshold is not None)
    assert alone[0] != alone[1]
    assert one.bound is not None
    assert one.bound <= 0.1
    assert one.bound == upper_bound(one.errors, round(one.answered * one.rows), 0.95)
    assert one.warning == ""
    test = answered(2000, 3, 0.5)
    (measured,) = measured_on([one], heads, *test, {})
    assert measured.test_error is not None
    assert measured.test_error < 0.1
    assert measured.test_answered == pytest.approx(one.answered, abs=0.1)


def test_without_a_threshold_nothing_is_stored_and_it_is_said() -> None:
    outputs, items = answered(300, 1, 1.0)
    served, held = answered(300, 2, 1.0)
    heads, (one,) = guard_heads([HEAD], outputs, items, [served], held, {}, SETTINGS)
    assert heads == [HEAD]
    assert one.threshold is None
    assert "late: no confidence threshold keeps the error under 0.1" in one.warning
    assert measured_on([one], heads, outputs, items, {}) == [one]


def test_thresholds_are_those_of_calibrated_confidence() -> None:
    outputs, items = answered(400, 1, 0.5)
    served, held = answered(400, 2, 0.5)
    calibration = {"late": Calibration(2.0)}
    (plain,), (cooled,) = (
        guard_heads([HEAD], outputs, items, [served], held, c, SETTINGS)[1] for c in ({}, calibration)
    )
    assert plain.threshold is not None
    assert cooled.threshold is not None
    assert cooled.threshold < plain.threshold
    assert cooled.answered == pytest.approx(plain.answered, abs=0.02)
