"""Answers by the formulas that their module documents."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import Choice, ChoiceAnswer, Reading, Score, ScoreAnswer, YesNo, YesNoAnswer
from julia1.answers import FloatArray, build_answer, choice_confidence, entropy, score_confidence
from julia1.questions import Question

READING = Reading(10, 10)


@st.composite
def distributions(draw: st.DrawFn, least: int = 2, most: int = 12) -> FloatArray:
    weights = draw(st.lists(st.floats(0, 1e6), min_size=least, max_size=most).filter(lambda w: sum(w) > 1e-3))
    values = np.asarray(weights, np.float64)
    return values / values.sum()  # type: ignore[no-any-return]


def of_kind(kind: str, size: int) -> Question:
    names = [f"option {i}" for i in range(size)]
    if kind == "choice":
        return Choice("Which?", names)
    return Score("How much?", names) if kind == "score" else YesNo("Is it?")


@pytest.mark.parametrize(
    ("probabilities", "confidence"),
    [
        ([0.5, 0.5], 0.0),
        ([1.0, 0.0], 1.0),
        ([0.75, 0.25], 0.5),
        ([0.25, 0.25, 0.25, 0.25], 0.0),
        ([0.7, 0.1, 0.1, 0.1], 0.6),  # (4 * 0.7 - 1) / 3
        ([0.4, 0.6, 0.0], 0.4),  # (3 * 0.6 - 1) / 2
    ],
)
def test_confidence_of_a_choice(probabilities: list[float], confidence: float) -> None:
    assert choice_confidence(np.array(probabilities)) == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("probabilities", "confidence"),
    [
        ([0.0, 0.95, 0.05], 0.925),  # mode 1, U = 2/3, 1 - 0.05 / (2/3)
        ([0.25, 0.25, 0.25, 0.25], 0.0),
        ([0.0, 0.0, 1.0], 1.0),
        ([0.5, 0.0, 0.5], 0.0),  # mode 0: expectation 1, U = 1
        ([0.34, 0.33, 0.0, 0.33], pytest.approx(1 - 1.32 / 1.5)),  # mode 0: 0.33 + 0.99, U = 6/4
        ([0.8, 0.2], 0.6),  # two levels: |2p - 1|
    ],
)
def test_confidence_of_a_score(probabilities: list[float], confidence: float) -> None:
    assert score_confidence(np.array(probabilities)) == pytest.approx(confidence)


def test_probability_at_both_ends_never_gives_a_negative_confidence() -> None:
    assert score_confidence(np.array([0.3, 0.4, 0.0, 0.0, 0.3])) == pytest.approx(1 - 1.2 / 1.4)
    assert score_confidence(np.array([0.25, 0.0, 0.26, 0.0, 0.49])) == pytest.approx(1 - 1.52 / 2)
    assert score_confidence(np.array([0.45, 0.0, 0.1, 0.0, 0.45])) == pytest.approx(0.0)
    assert score_confidence(np.array([0.49, 0.51, 0.0])) == pytest.approx(1 - 0.49 / (2 / 3))


def test_entropy_is_in_nats() -> None:
    assert entropy(np.array([0.5, 0.5])) == pytest.approx(math.log(2))
    assert entropy(np.array([1.0, 0.0, 0.0])) == 0.0
    assert entropy(np.array([0.75, 0.25])) == pytest.approx(0.5623351446)


def test_confidence_of_yes_or_no_is_that_of_two_options() -> None:
    for p in (0.0, 0.2, 0.5, 0.9, 1.0):
        answer = build_answer(YesNo("Is it?"), np.array([1 - p, p]), READING)
        assert isinstance(answer, YesNoAnswer)
        assert answer.probability == p
        assert answer.yes == (p > 0.5)
        assert answer.confidence == pytest.approx(abs(2 * p - 1))


def test_choice_answer_names_the_likeliest_option() -> None:
    answer = build_answer(Choice("Which?", ["a", "b", "c"]), np.array([0.2, 0.5, 0.3]), Reading(9, 4))
    assert isinstance(answer, ChoiceAnswer)
    assert answer.choice == "b"
    assert answer.probabilities == {"a": 0.2, "b": 0.5, "c": 0.3}
    assert answer.reading.truncated
    assert not answer.abstained


def test_score_answer_is_the_expected_level() -> None:
    answer = build_answer(Score("How?", ["calm", "annoyed", "furious"]), np.array([0.1, 0.3, 0.6]), READING)
    assert isinstance(answer, ScoreAnswer)
    assert answer.score == pytest.approx(1.5)
    assert answer.level == 2
    assert answer.legend == ["calm", "annoyed", "furious"]
    assert answer.probabilities == [0.1, 0.3, 0.6]


@pytest.mark.parametrize("kind", ["choice", "yesno", "score"])
@given(data=st.data())
def test_every_answer_keeps_its_bounds(kind: str, data: st.DataObject) -> None:
    probabilities = data.draw(distributions(2, 2 if kind == "yesno" else 12))
    answer = build_answer(of_kind(kind, len(probabilities)), probabilities, READING)
    assert 0 <= answer.confidence <= 1 + 1e-12
    assert 0 <= answer.entropy <= math.log(len(probabilities)) + 1e-9
    if isinstance(answer, ScoreAnswer):
        assert 0 <= answer.score <= len(probabilities) - 1 + 1e-9
        assert probabilities[answer.level] == probabilities.max()
    if isinstance(answer, ChoiceAnswer):
        assert answer.probabilities[answer.choice] == probabilities.max()


@given(distributions(), st.randoms(use_true_random=False))
def test_a_choice_moves_with_its_options(probabilities: FloatArray, random: object) -> None:
    names = [f"option {i}" for i in range(len(probabilities))]
    order = list(range(len(names)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first = build_answer(Choice("Which?", names), probabilities, READING)
    second = build_answer(Choice("Which?", [names[i] for i in order]), probabilities[order], READING)
    assert isinstance(first, ChoiceAnswer)
    assert isinstance(second, ChoiceAnswer)
    assert first.probabilities == second.probabilities
    assert first.confidence == second.confidence
    assert first.entropy == pytest.approx(second.entropy)
    if np.sum(probabilities == probabilities.max()) == 1:
        assert first.choice == second.choice


@given(distributions())
def test_a_scale_read_backwards_mirrors_the_score(probabilities: FloatArray) -> None:
    levels = [f"level {i}" for i in range(len(probabilities))]
    up = build_answer(Score("How?", levels), probabilities, READING)
    down = build_answer(Score("How?", levels[::-1]), probabilities[::-1], READING)
    assert isinstance(up, ScoreAnswer)
    assert isinstance(down, ScoreAnswer)
    assert up.score + down.score == pytest.approx(len(levels) - 1)
    if np.sum(probabilities == probabilities.max()) == 1:
        assert up.confidence == pytest.approx(down.confidence)


@pytest.mark.parametrize("kind", ["choice", "yesno", "score"])
def test_abstention_is_under_the_threshold_only(kind: str) -> None:
    question = of_kind(kind, 2)
    probabilities = np.array([0.2, 0.8])  # confidence 0.6 for each type
    for threshold, abstained in ((None, False), (0.0, False), (0.5, False), (0.61, True), (1.0, True)):
        answer = build_answer(question, probabilities, READING, threshold)
        assert answer.abstained is abstained
        assert answer.confidence == pytest.approx(0.6)


@pytest.mark.parametrize("kind", ["choice", "yesno", "score"])
@given(data=st.data())
def test_to_dict_is_json_that_says_everything(kind: str, data: st.DataObject) -> None:
    probabilities = data.draw(distributions(2, 2 if kind == "yesno" else 6))
    answer = build_answer(of_kind(kind, len(probabilities)), probabilities, Reading(7, 5), 0.5)
    plain = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert plain == answer.to_dict()
    assert plain["type"] == kind
    assert plain["confidence"] == answer.confidence
    assert plain["abstained"] is (answer.confidence < 0.5)
    assert (plain["tokens"], plain["tokens_read"], plain["truncated"]) == (7, 5, True)


def test_reading_is_truncated_when_something_was_left_out() -> None:
    assert not Reading(5, 5).truncated
    assert Reading(6, 5).truncated
