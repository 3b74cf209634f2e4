"""The one path from question to answer, on the tiny bundle."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from julia1 import Choice, ChoiceAnswer, Decider, InputError, Score, ScoreAnswer, TooLongError, YesNo, YesNoAnswer
from julia1.questions import Question
from julia1.runtime.calibration import UNCALIBRATED, probabilities
from julia1.runtime.decider import load

if TYPE_CHECKING:
    from conftest import Exported

STATE = "I was charged twice for one order"
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team does this?", {"billing": "charges and refunds", "shipping": None, "food": None}),
    "urgent": YesNo("Does it need help today?"),
    "mood": Score("How upset is the writer?", ["calm", "angry", "furious"]),
}


def test_each_question_gets_the_answer_of_its_type(decider: Decider) -> None:
    answers = decider.decide(STATE, QUESTIONS)
    assert list(answers) == list(QUESTIONS)
    team, urgent, mood = answers.values()
    assert isinstance(team, ChoiceAnswer)
    assert list(team.probabilities) == ["billing", "shipping", "food"]
    assert sum(team.probabilities.values()) == pytest.approx(1)
    assert isinstance(urgent, YesNoAnswer)
    assert isinstance(mood, ScoreAnswer)
    assert mood.legend == ["calm", "angry", "furious"]
    assert {answer.reading for answer in answers.values()} == {team.reading}
    assert not team.reading.truncated


def test_answers_are_the_softmax_of_the_models_logits(
    decider_fp32: Decider, exported: Exported, texts: list[str]
) -> None:
    import torch

    encoding = decider_fp32._encoding
    for state in texts[:12]:
        answers = decider_fp32.decide(state, QUESTIONS)
        rows, _ = encoding.encode(state, QUESTIONS)
        wanted: dict[tuple[int, int], float] = {}
        for row in rows:
            batch = {name: torch.from_numpy(array) for name, array in encoding.collate([row]).feeds().items()}
            with torch.inference_mode():
                wanted |= dict(zip(row.slots, exported.model(**batch)[0].tolist(), strict=True))
        logits = decider_fp32.logits([(state, QUESTIONS)])[0]
        for i, (name, found) in enumerate(zip(QUESTIONS, logits, strict=True)):
            expected = np.array([wanted[i, j] for j in range(len(found))])
            assert np.abs(found - expected).max() < 1e-4
            answer = answers[name]
            given = list(answer.probabilities.values()) if isinstance(answer, ChoiceAnswer) else None
            if given is not None:
                assert given == pytest.approx(probabilities(expected, UNCALIBRATED).tolist(), abs=1e-4)


def test_results_come_in_the_order_of_the_states(decider: Decider, texts: list[str]) -> None:
    found = decider.decide_many(texts, QUESTIONS, batch_tokens=400)
    assert len(found) == len(texts)
    for state, answers in zip(texts, found, strict=True):
        ids = decider._encoding.tokenizer.ids([state])[0]
        assert answers["team"].reading.tokens == len(ids)


def test_no_states_are_no_answers(decider_fp32: Decider) -> None:
    assert decider_fp32.decide_many([], QUESTIONS) == []
    assert decider_fp32.decide_requests([]) == []
    assert decider_fp32.logits([]) == []


def test_requests_may_each_bring_their_own_questions(decider: Decider) -> None:
    shared: dict[str, Question] = {"a": YesNo("Is it late?")}
    equal: dict[str, Question] = {"a": YesNo("Is it late?")}
    other: dict[str, Question] = {"b": Choice("Which?", ["food", "music"]), "c": Score("How good?", ["bad", "good"])}
    requests: list[tuple[Any, dict[str, Question]]] = [
        ("late", shared),
        ("food", other),
        ("music", shared),
        ("late", equal),
    ]
    found = decider.decide_requests(requests)
    assert [list(answers) for answers in found] == [["a"], ["b", "c"], ["a"], ["a"]]
    for (state, questions), answers in zip(requests, found, strict=True):
        alone = decider.decide(state, questions)
        for name in questions:
            assert answers[name].confidence == pytest.approx(alone[name].confidence, abs=1e-3)
    assert found[0]["a"].confidence == pytest.approx(found[3]["a"].confidence, abs=1e-3)


def test_questions_made_and_dropped_in_a_loop_are_never_mixed_up(decider_fp32: Decider) -> None:
    # an id() may be used again after its object is gone: nothing may be remembered by it
    for i in range(30):
        answers = decider_fp32.decide("a state", {f"q{i}": Choice("Which?", [f"x{i}", f"y{i}"])})
        answer = answers[f"q{i}"]
        assert isinstance(answer, ChoiceAnswer)
        assert list(answer.probabilities) == [f"x{i}", f"y{i}"]


def test_the_names_of_questions_never_reach_the_model(decider_fp32: Decider) -> None:
    question = Choice("Which?", ["food", "music"])
    first = decider_fp32.decide("a song", {"music": question})["music"]
    second = decider_fp32.decide("a song", {"\x00 any name": question})["\x00 any name"]
    assert first == second


def test_a_state_may_be_data(decider_fp32: Decider) -> None:
    data = decider_fp32.decide({"order": {"paid": True}}, QUESTIONS)
    assert data == decider_fp32.decide("order.paid: true", QUESTIONS)


def test_truncation_is_carried_in_every_answer(decider: Decider) -> None:
    long = " ".join(["late"] * 200)
    room = decider.manifest.encoding.state_tokens - 2
    for answer in decider.decide(long, QUESTIONS).values():
        assert (answer.reading.tokens, answer.reading.tokens_read) == (200, room)
        assert answer.to_dict()["truncated"] is True
    many = decider.decide_many(["short", long], QUESTIONS)
    assert [answers["team"].reading.truncated for answers in many] == [False, True]


def test_strict_refuses_what_would_be_cut(decider_fp32: Decider) -> None:
    long = " ".join(["late"] * 200)
    with pytest.raises(TooLongError, match="200 tokens"):
        decider_fp32.decide(long, QUESTIONS, strict=True)
    with pytest.raises(TooLongError):
        decider_fp32.decide_many(["short", long], QUESTIONS, strict=True)
    decider_fp32.decide("short", QUESTIONS, strict=True)


def test_what_was_cut_off_cannot_matter(decider_fp32: Decider) -> None:
    room = decider_fp32.manifest.encoding.state_tokens - 2
    read = ["late"] * room
    first = decider_fp32.decide(" ".join([*read, "billing"]), QUESTIONS)
    second = decider_fp32.decide(" ".join([*read, "music"]), QUESTIONS)
    assert first == second


def test_abstention_follows_the_confidence(decider: Decider, texts: list[str]) -> None:
    plain = decider.decide_many(texts[:20], QUESTIONS)
    for threshold in (0.0, 0.3, 1.0):
        marked = decider.decide_many(texts[:20], QUESTIONS, abstain_below=threshold)
        for before, after in zip(plain, marked, strict=True):
            for name in QUESTIONS:
                assert after[name].abstained is (after[name].confidence < threshold)
                assert after[name].confidence == before[name].confidence


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_lies_between_0_and_1(decider_fp32: Decider, threshold: float) -> None:
    with pytest.raises(InputError, match="a confidence lies between 0 and 1"):
        decider_fp32.decide(STATE, QUESTIONS, abstain_below=threshold)


@pytest.mark.parametrize(
    ("state", "questions", "words"),
    [
        ("", QUESTIONS, "the state is empty"),
        (" \n ", QUESTIONS, "the state is empty"),
        (None, QUESTIONS, "got None"),
        (b"x", QUESTIONS, "got b'x'"),
        ({"a": float("nan")}, QUESTIONS, "nan at 'a'"),
        ("a\x00", QUESTIONS, "NUL"),
        ("a\ud800", QUESTIONS, "lone surrogate"),
        ("x" * 1_000_000, QUESTIONS, "1,000,000 characters"),
        (STATE, {}, "no questions: ask at least one"),
        (STATE, None, "answers open questions: give it at least one"),
        (STATE, [YesNo("Late?")], "not list"),
        (STATE, YesNo("Late?"), "not YesNo"),
        (STATE, {"q": "Is it late?"}, "question 'q' is 'Is it late?': use Choice, YesNo or Score"),
        (STATE, {"q": {"type": "choice"}}, "question 'q' is {'type': 'choice'}"),
        (STATE, {"q": None}, "question 'q' is None"),
        (STATE, {"q": YesNo(" ".join(["late"] * 99))}, "the instructions of question 'q' has 100 tokens, 24 fit"),
        (STATE, {"q": Choice("Which?", ["a", "late " * 50])}, "an option of question 'q'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(decider_fp32: Decider, state: Any, questions: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        decider_fp32.decide(state, questions)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("states", ["one text", b"bytes", {"a": "b"}])
def test_many_states_are_a_list(decider_fp32: Decider, states: Any) -> None:
    with pytest.raises(InputError, match="states must be a list of states"):
        decider_fp32.decide_many(states, QUESTIONS)


def test_nothing_grows_with_use(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("julia1.text.unigram.KEPT_WORDS", 64)
    decider = load(tiny_bundle, variant="fp32", threads=1)

    def call(i: int) -> None:
        decider.decide(f"state {i} late order", {f"q{i}": Choice(f"Which {i}?", [f"a{i}", f"b{i}"])})

    tracemalloc.start()
    try:
        for i in range(200):  # more options than the memory of option texts holds
            call(i)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for i in range(200, 400):
            call(i)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000, f"200 calls left {grown:,} bytes behind"
