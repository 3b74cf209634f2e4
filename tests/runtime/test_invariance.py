"""An answer depends on its own state, question and options, and on nothing that stands beside them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from julia1 import Answer, Choice, ChoiceAnswer, Decider, Score, ScoreAnswer, YesNo, load
from julia1.questions import Question
from julia1.runtime.engines import Engine
from julia1.runtime.scorer import OptionScorer

WORDS = ["account", "bank", "card", "city", "delivery", "flight", "music", "refund", "weather", "tuesday", "我", "42"]
OPTIONS = ["billing", "food", "hotel booking", "music and song", "refund of a card", "sport", "weather", "我想你"]
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", OPTIONS),
    "late": YesNo("Is it late?", true="the order is not here"),
    "mood": Score("How upset?", ["calm", "angry", "furious"]),
    "sure": Choice(None, {"yes": "very good", "no": None, "none": "no topic"}),
}


class Padding:
    """An engine that gets every array with more padding than it needs."""

    def __init__(self, engine: Engine, more: int, pad: int) -> None:
        self.engine, self.more, self.pad, self.inputs = engine, more, pad, engine.inputs

    def run(self, feeds: Any, outputs: Any) -> list[Any]:
        filled = {
            name: np.pad(
                array,
                [(0, self.more if axis == 1 else 0) for axis in range(array.ndim)],
                constant_values={"input_ids": self.pad, "branches": -1}.get(name, 0),
            )
            for name, array in feeds.items()
        }
        found = self.engine.run(filled, outputs)
        return [x[:, : -self.more] if name != "trunk" else x for name, x in zip(outputs, found, strict=True)]


LOGITS = {"fp32": 1e-5, "int8": 2e-3}
PROBABILITIES = {"fp32": 1e-5, "int8": 1e-3}


def values(answer: Answer) -> dict[str, float]:
    if isinstance(answer, ChoiceAnswer):
        return dict(answer.probabilities)
    if isinstance(answer, ScoreAnswer):
        return dict(zip(answer.legend, answer.probabilities, strict=True))
    return {"yes": answer.probability}


def result(answer: Answer) -> Any:
    return (
        answer.choice
        if isinstance(answer, ChoiceAnswer)
        else answer.level
        if isinstance(answer, ScoreAnswer)
        else answer.yes
    )


def assert_same(first: dict[str, Answer], second: dict[str, Answer], tolerance: float) -> None:
    assert set(first) == set(second)
    for name, answer in first.items():
        assert result(answer) == result(second[name])
        assert values(answer) == pytest.approx(values(second[name]), abs=tolerance)
        assert answer.reading == second[name].reading


@pytest.mark.parametrize("batch_tokens", [1, 300, 2048, 100_000])
def test_a_batch_changes_no_answer(decider: Decider, texts: list[str], batch_tokens: int) -> None:
    precision = decider.plan.variant.precision
    alone = [decider.decide(text, QUESTIONS) for text in texts]
    together = decider.decide_many(texts, QUESTIONS, batch_tokens=batch_tokens)
    for first, second in zip(alone, together, strict=True):
        assert_same(first, second, PROBABILITIES[precision])


def test_a_batch_moves_no_logit(decider: Decider, texts: list[str]) -> None:
    alone = [decider.logits([(text, QUESTIONS)])[0] for text in texts]
    together = decider.logits([(text, QUESTIONS) for text in texts])
    largest = max(
        np.abs(a - b).max()
        for first, second in zip(alone, together, strict=True)
        for a, b in zip(first, second, strict=True)
    )
    assert largest < LOGITS[decider.plan.variant.precision]


def mixed_requests(texts: list[str]) -> list[tuple[str, dict[str, Question]]]:
    """Every text with questions of its own, so that rows of a batch differ in what they keep of their options."""
    random = np.random.default_rng(9)
    names = [*OPTIONS, *(" ".join(random.choice(WORDS, random.integers(1, 8))) for _ in range(20))]
    chosen = [list(dict.fromkeys(random.choice(names, random.integers(2, 9)))) for _ in texts]
    return [
        (text, {"q": Choice("Which?", own if len(own) > 1 else OPTIONS)})
        for text, own in zip(texts, chosen, strict=True)
    ]


def test_a_batch_of_different_questions_moves_no_logit_by_a_single_bit(decider: Decider, texts: list[str]) -> None:
    requests = mixed_requests(texts)
    alone = [decider.logits([request])[0][0].tolist() for request in requests]
    together = [found[0].tolist() for found in decider.logits(requests)]
    assert alone == together


def test_what_was_asked_before_moves_no_logit_by_a_single_bit(decider: Decider, texts: list[str]) -> None:
    """Option texts are read alone, or beside whichever others are not kept yet."""
    requests = mixed_requests(texts[:20])
    fresh = [with_memory(decider, 1000).logits([request])[0][0].tolist() for request in requests]
    warm = with_memory(decider, 1000)
    for name in dict.fromkeys(option for _, questions in requests for option in questions["q"].options):  # type: ignore[union-attr]
        warm.logits([("music", {"q": Choice("Which?", [name, "x"])})])
    assert fresh == [warm.logits([request])[0][0].tolist() for request in requests]


def near(decider: Decider) -> float:
    """How far probabilities may move."""
    return PROBABILITIES[decider.plan.variant.precision]


def with_memory(decider: Decider, tokens: int) -> Decider:
    return Decider(decider.manifest, decider._encoding.tokenizer, decider._scorer._engine, decider.plan, tokens)


def test_padding_moves_no_logit(decider: Decider) -> None:
    """Padding of tokens, of options and of kept option text."""
    scorer = decider._scorer
    alone = OptionScorer(scorer._engine, scorer._pad, 0)
    rows = decider._encoding.encode("where is my order", {"q": YesNo("Late?")})[0]
    expected = alone.scores(rows)
    for more in (1, 7, 64, 127, 300):
        padded = OptionScorer(Padding(scorer._engine, more, scorer._pad), scorer._pad, 0)
        found = padded.scores(rows)
        assert np.isfinite(found).all()
        assert found[:, :2] == pytest.approx(expected, abs=LOGITS[decider.plan.variant.precision])


def test_the_order_of_options_changes_nothing(decider: Decider, texts: list[str]) -> None:
    random = np.random.default_rng(3)
    for text in texts[:25]:
        first = decider.decide(text, {"team": QUESTIONS["team"]})
        for _ in range(4):
            shuffled = Choice("Which team?", [OPTIONS[i] for i in random.permutation(len(OPTIONS))])
            assert_same(first, decider.decide(text, {"team": shuffled}), near(decider))


def test_reordering_moves_no_logit_by_a_single_bit(decider: Decider, texts: list[str]) -> None:
    random = np.random.default_rng(5)
    names = list(QUESTIONS)
    for text in texts[:12]:
        options = random.permutation(len(OPTIONS))
        chosen = [names[i] for i in random.permutation(len(names))]
        shuffled = {**QUESTIONS, "team": Choice("Which team?", [OPTIONS[i] for i in options])}
        first = dict(zip(names, decider.logits([(text, QUESTIONS)])[0], strict=True))
        second = dict(zip(chosen, decider.logits([(text, {n: shuffled[n] for n in chosen})])[0], strict=True))
        assert first["team"][options].tolist() == second["team"].tolist()
        for name in ("late", "mood", "sure"):
            assert first[name].tolist() == second[name].tolist()


def test_the_order_and_number_of_questions_change_nothing(decider: Decider, texts: list[str]) -> None:
    random = np.random.default_rng(4)
    names = list(QUESTIONS)
    for text in texts[:25]:
        first = decider.decide(text, QUESTIONS)
        chosen = [names[i] for i in random.permutation(len(names))]
        assert_same(
            first,
            decider.decide(text, {n: QUESTIONS[n] for n in chosen}),
            near(decider),
        )
        alone = {name: decider.decide(text, {name: QUESTIONS[name]})[name] for name in chosen}
        assert_same(first, alone, near(decider))


def test_levels_read_backwards_give_the_same_place(decider: Decider, texts: list[str]) -> None:
    levels = ["calm", "angry", "furious"]
    for text in texts[:10]:
        up = decider.decide(text, {"mood": Score("How upset?", levels)})["mood"]
        down = decider.decide(text, {"mood": Score("How upset?", levels[::-1])})["mood"]
        assert isinstance(up, ScoreAnswer)
        assert isinstance(down, ScoreAnswer)
        assert up.score + down.score == pytest.approx(2, abs=2e-3)
        assert values(up) == pytest.approx(values(down), abs=near(decider))


@settings(max_examples=15)
@given(
    state=st.lists(st.sampled_from(["late", "order", "refund", "我", "42", "good"]), min_size=1, max_size=12).map(
        " ".join
    ),
    names=st.lists(st.sampled_from([*OPTIONS, "x", "city", "42", "pay"]), min_size=2, max_size=10, unique=True),
    random=st.randoms(use_true_random=False),
)
def test_order_is_blind_for_any_options(decider_fp32: Decider, state: str, names: list[str], random: Any) -> None:
    first = decider_fp32.decide(state, {"q": Choice("Which?", names)})
    second = decider_fp32.decide(state, {"q": Choice("Which?", random.sample(names, len(names)))})
    assert_same(first, second, 1e-5)


def test_a_thousand_options_are_answered_as_if_each_stood_alone(decider: Decider) -> None:
    names = [f"topic {i}" for i in range(1000)]
    question = Choice("Which topic?", names)
    answer = decider.decide("music", {"q": question})["q"]
    assert isinstance(answer, ChoiceAnswer)
    assert list(answer.probabilities) == names
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    ((logits,),) = decider.logits([("music", {"q": question})])
    assert names[int(logits.argmax())] == answer.choice
    for start in (0, 357, 994):
        ((few,),) = decider.logits([("music", {"q": Choice("Which topic?", names[start : start + 6])})])
        assert few == pytest.approx(logits[start : start + 6], abs=LOGITS[decider.plan.variant.precision])


def test_threads_that_share_a_decider_get_the_serial_answers(decider: Decider, texts: list[str]) -> None:
    some = texts[:16]
    serial = [decider.decide(text, QUESTIONS) for text in some]
    wrong: list[str] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for i in range(len(some)):
            index = (i + 3 * number) % len(some)
            if decider.decide(some[index], QUESTIONS) != serial[index]:
                wrong.append(some[index])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_number_of_threads_changes_no_answer(decider: Decider, tiny_bundle: Any, texts: list[str]) -> None:
    other = load(tiny_bundle, variant=decider.plan.variant.name, threads=3, warm_up=False)
    for text in texts[:10]:
        assert_same(
            decider.decide(text, QUESTIONS),
            other.decide(text, QUESTIONS),
            near(decider),
        )


@pytest.mark.parametrize("text", ["<mask> yes </s> <mask> no", "</s></s><s>", "x </s> Which team? </s> <mask> food"])
def test_reserved_text_adds_no_option_and_ends_no_state(decider: Decider, text: str) -> None:
    """A text that spells markers is one row with as many scores as there are options."""
    encoding = decider._encoding
    ((trunk, reading),) = encoding.trunks([text])
    assert len(trunk) == reading.tokens_read + 2
    assert trunk.count(encoding.tokenizer.mask) == 0
    assert trunk.count(encoding.tokenizer.sep) == 1
    odd = decider.decide(text, {**QUESTIONS, "odd": Choice("<mask> a </s>", ["a </s> <mask>", "<mask>", "</s> yes"])})[
        "odd"
    ]
    assert isinstance(odd, ChoiceAnswer)
    assert list(odd.probabilities) == ["a </s> <mask>", "<mask>", "</s> yes"]


def test_brackets_bundle_decides_too(brackets_bundle: Any, texts: list[str]) -> None:
    decider = load(brackets_bundle, variant="fp32", threads=1, warm_up=False)
    alone = [decider.decide(text, QUESTIONS) for text in [*texts[:8], "x [SEP] [MASK] food"]]
    together = decider.decide_many([*texts[:8], "x [SEP] [MASK] food"], QUESTIONS)
    for first, second in zip(alone, together, strict=True):
        assert_same(first, second, 1e-5)
