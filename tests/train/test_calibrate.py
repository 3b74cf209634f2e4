"""Temperatures fitted on scored questions, and the calibration error."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from julia1.bundle import Calibration
from julia1.runtime.calibration import UNCALIBRATED, probabilities, temperature
from julia1.train import Recipe
from julia1.train.calibrate import (
    Scored,
    calibration_examples,
    cross_entropy,
    expected_calibration_error,
    fit_calibration,
    score_examples,
)
from julia1.train.recipe import Source
from julia1.train.views import Example


def scored(kind: str, truth: Calibration, sizes: list[int], seed: int = 0) -> list[Scored]:
    """Questions whose right answers follow the softmax of their logits over a known temperature."""
    random = np.random.default_rng(seed)
    items = []
    for size in sizes:
        logits = random.normal(0, 3, size)
        right = random.choice(size, p=probabilities(logits, truth))
        items.append(Scored(kind, logits, np.eye(size)[right]))
    return items


@pytest.mark.parametrize("truth", [0.6, 1.0, 2.5])
def test_a_known_temperature_is_found(truth: float) -> None:
    items = scored("yesno", Calibration(truth), [2] * 1000)
    found = fit_calibration(items)
    assert set(found) == {"yesno"}
    assert found["yesno"].temperature == pytest.approx(truth, rel=0.15)
    assert found["yesno"].per_log_options == 0


def test_a_temperature_that_grows_with_the_options_is_found() -> None:
    truth = Calibration(0.8, 0.3)
    items = scored("choice", truth, [2, 5, 20, 60] * 50)
    found = fit_calibration(items)["choice"]
    assert cross_entropy(items, found) <= cross_entropy(items, truth) + 1e-3
    for options in (5, 20, 60):
        assert temperature(found, options) == pytest.approx(temperature(truth, options), rel=0.25)


def test_each_type_is_fitted_alone_and_never_for_the_worse() -> None:
    items = scored("score", Calibration(3.0), [4] * 300) + scored("yesno", Calibration(0.5), [2] * 300)
    found = fit_calibration(items)
    assert set(found) == {"score", "yesno"}
    assert found["score"].temperature > 2 > 1 > found["yesno"].temperature
    for kind, calibration in found.items():
        of_kind = [item for item in items if item.kind == kind]
        assert cross_entropy(of_kind, calibration) <= cross_entropy(of_kind, UNCALIBRATED)
    assert fit_calibration([]) == {}


def test_cross_entropy_by_hand() -> None:
    logits = np.array([0.0, math.log(3)])
    items = [Scored("yesno", logits, np.array([0.0, 1.0])), Scored("yesno", logits, np.array([0.5, 0.5]))]
    expected = (-math.log(0.75) - 0.5 * math.log(0.25) - 0.5 * math.log(0.75)) / 2
    assert cross_entropy(items, UNCALIBRATED) == pytest.approx(expected)
    assert math.isfinite(cross_entropy([Scored("yesno", np.array([0.0, 1e4]), np.array([1.0, 0.0]))], UNCALIBRATED))


def test_calibration_error_by_hand() -> None:
    # bin (0.6, 0.667): confidence 0.62, accuracy 0.5; bin (0.867, 0.933): confidence 0.9, accuracy 1
    confidence, right = [0.62, 0.62, 0.9, 0.9], [1, 0, 1, 1]
    assert expected_calibration_error(confidence, right) == pytest.approx(0.5 * 0.12 + 0.5 * 0.1)
    assert expected_calibration_error([1.0, 1.0], [1, 1]) == 0
    assert expected_calibration_error([1.0], [0]) == 1
    assert expected_calibration_error([0.5] * 4, [1, 0, 1, 0], bins=1) == 0


def test_a_calibrated_source_has_a_small_error() -> None:
    random = np.random.default_rng(1)
    confidence = random.uniform(0.3, 1, 20_000)
    right = random.uniform(size=20_000) < confidence
    assert expected_calibration_error(confidence, right) < 0.02
    assert expected_calibration_error(np.minimum(1, confidence + 0.2), right) > 0.1


def test_examples_come_from_the_calibration_sources(data: Path, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(calibration=[Source("intents", "choice", 1, splits=["val"])], held_out_languages=["it"])
    examples = calibration_examples(recipe, data)
    assert examples == calibration_examples(recipe, data)
    assert len(examples) >= 1500
    states = " ".join(str(example.state) for example in examples)
    assert "alle" not in states
    assert not any(f"alarm for {hour}" in states.split(" please") for hour in range(1, 9))


def test_examples_are_scored_question_by_question(
    decider_fp32: object, data: Path, make_recipe: Callable[..., Recipe]
) -> None:
    from julia1 import Choice, Decider, YesNo

    assert isinstance(decider_fp32, Decider)
    examples = [
        Example("late order", [(YesNo("Late?"), [0.0, 1.0]), (Choice(None, ["food", "music"]), [1.0, 0.0])]),
        Example("a song", [(Choice(None, ["food", "music", "sport"]), [0.0, 1.0, 0.0])]),
    ]
    items = score_examples(decider_fp32, examples)
    assert [item.kind for item in items] == ["yesno", "choice", "choice"]
    assert [len(item.logits) for item in items] == [2, 2, 3]
    assert items[2].target.tolist() == [0.0, 1.0, 0.0]
    answer = decider_fp32.decide("a song", {"q": Choice(None, ["food", "music", "sport"])})["q"]
    expected = probabilities(items[2].logits, UNCALIBRATED).tolist()
    assert list(answer.probabilities.values()) == pytest.approx(expected, abs=1e-6)  # type: ignore[union-attr]
