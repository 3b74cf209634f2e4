"""From logits to probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import Choice, Score, YesNo
from julia1.bundle import Calibration
from julia1.runtime.calibration import UNCALIBRATED, probabilities, question_kind, temperature

LOGITS = st.lists(st.floats(-30, 30), min_size=2, max_size=10).map(lambda values: np.asarray(values, np.float32))


def test_each_question_type_has_a_calibration_of_its_own() -> None:
    assert question_kind(Choice(None, ["a", "b"])) == "choice"
    assert question_kind(YesNo("Late?")) == "yesno"
    assert question_kind(Score(None, ["a", "b"])) == "score"


@pytest.mark.parametrize(
    ("calibration", "options", "expected"),
    [
        (Calibration(1.5), 10, 1.5),
        (Calibration(1.0, 0.5), 2, 1 + 0.5 * math.log(2)),
        (Calibration(1.0, 0.5), 100, 1 + 0.5 * math.log(100)),
        (Calibration(0.3, -0.3), 100, 0.05),  # never at or under zero
        (Calibration(0.01), 2, 0.05),
    ],
)
def test_temperature(calibration: Calibration, options: int, expected: float) -> None:
    assert temperature(calibration, options) == pytest.approx(expected)


def test_probabilities_by_hand() -> None:
    logits = np.array([0.0, math.log(3)], np.float32)
    assert probabilities(logits, UNCALIBRATED).tolist() == pytest.approx([0.25, 0.75])
    assert probabilities(logits * 2, Calibration(2.0)).tolist() == pytest.approx([0.25, 0.75])
    with_slope = probabilities(logits, Calibration(1.0, 1.0))
    assert with_slope[1] == pytest.approx(1 / (1 + 3 ** (-1 / (1 + math.log(2)))))


@given(LOGITS, st.floats(0.05, 10), st.floats(-0.5, 0.8))
def test_calibration_keeps_the_order_and_sums_to_one(logits: np.ndarray, heat: float, slope: float) -> None:
    found = probabilities(logits, Calibration(heat, slope))
    assert found.dtype == np.float64
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    order = np.argsort(logits, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


@given(LOGITS, st.floats(0.1, 5), st.floats(1.05, 4))
def test_a_higher_temperature_is_never_surer(logits: np.ndarray, heat: float, times: float) -> None:
    cold, warm = probabilities(logits, Calibration(heat)), probabilities(logits, Calibration(heat * times))
    assert warm.max() <= cold.max() + 1e-12
    assert warm.min() >= cold.min() - 1e-12


@given(LOGITS, st.floats(-50, 50))
def test_only_differences_of_logits_count(logits: np.ndarray, shift: float) -> None:
    moved = logits.astype(np.float64) + shift
    assert probabilities(moved, UNCALIBRATED) == pytest.approx(probabilities(logits, UNCALIBRATED), abs=1e-9)


def test_huge_logits_overflow_nothing() -> None:
    found = probabilities(np.array([1e30, -1e30, 0], np.float32), Calibration(0.05))
    assert found.tolist() == [1.0, 0.0, 0.0]


def test_a_bundles_calibration_reaches_the_answers(tiny_bundle: object, decider_fp32: object) -> None:
    from dataclasses import replace

    from julia1 import Decider

    assert isinstance(decider_fp32, Decider)
    plain = decider_fp32
    manifest = replace(plain.manifest, calibration={"choice": Calibration(3.0, 0.2), "yesno": Calibration(0.5)})
    warm = Decider(manifest, plain._encoding.tokenizer, plain._scorer._engine, plain.plan)
    questions = {"c": Choice(None, ["food", "music", "sport"]), "y": YesNo("Late?"), "s": Score(None, ["bad", "good"])}
    before, after = plain.decide("a late order", questions), warm.decide("a late order", questions)
    assert before["c"].choice == after["c"].choice  # type: ignore[union-attr]
    assert after["c"].confidence < before["c"].confidence
    assert after["y"].confidence > before["y"].confidence
    assert after["s"] == before["s"]
