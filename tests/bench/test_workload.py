"""What a soak asks: everything that a model takes, and of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from bench_samples import Toy, manifest

from julia1 import Choice, Decider, Score, YesNo
from julia1.bench.workload import BATCHES, PROBE, REQUEST_TOKENS, Workload
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.runtime.fixed import Given

TOPIC = HeadSpec("topic", "choice", ("a", "b"))


def asked(manifest: Any, number: int = 300, **settings: Any) -> Toy:
    toy = Toy()
    toy.work = lambda: None  # type: ignore[method-assign]
    workload = Workload(manifest, **settings)
    assert sum(workload.ask(toy) for _ in range(number)) >= number
    return toy


def test_an_open_model_is_asked_everything() -> None:
    toy = asked(manifest())
    states = [state for _, some, _ in toy.seen for state in some]
    texts = [state for state in states if isinstance(state, str)]
    assert any("订单" in text for text in texts) and any("😡" in text for text in texts)
    assert any("order" in text for text in texts) and any(isinstance(state, dict) for state in states)
    assert min(len(text.split()) for text in texts) == 1
    assert max(len(text.split()) for text in texts) > 64, "longer than is read"
    assert {len(some) for _, some, _ in toy.seen} >= {1, 2, 3, 5, 8, 16}
    questions = [question for _, _, (some, _) in toy.seen for question in some.values()]
    assert {type(question) for question in questions} == {Choice, YesNo, Score}
    assert len({len(some) for _, _, (some, _) in toy.seen}) > 1


def test_the_largest_requests_come_first() -> None:
    toy = asked(manifest("fixed", (TOPIC,)), number=len(BATCHES))
    assert [len(some) for _, some, _ in toy.seen] == list(reversed(BATCHES))
    for _, some, _ in toy.seen:
        words = sum(len(str(state).split()) for state in some)
        assert words <= REQUEST_TOKENS * 2


def test_the_same_seed_asks_the_same() -> None:
    one, other, third = (asked(manifest(), 40, seed=seed) for seed in (1, 1, 2))
    assert one.seen == other.seen != third.seen


def test_a_model_with_features_gets_known_unknown_and_missing_ones() -> None:
    features = FeatureSpec({"age": (40.0, 10.0)}, {"plan": ("free", "paid")})
    toy = asked(manifest("fixed", (TOPIC,), features))
    rows = []
    for kind, _, (_, more) in toy.seen:
        rows += [more["features"]] if kind == "decide" else more["features"]
    assert {row["plan"] for row in rows} == {"free", "paid", "never seen", None}
    ages = [row["age"] for row in rows]
    assert None in ages and any(age is not None and age > 1000 for age in ages)


def test_a_model_of_pairs_gets_second_texts_and_one_that_ranks_gets_candidates() -> None:
    toy = asked(manifest("fixed", (HeadSpec("match", "match", size=8), HeadSpec("best", "rank", size=8))))
    assert {kind for kind, _, _ in toy.seen} == {"decide", "decide_many", "rank"}
    assert all(more["second"] for kind, _, (_, more) in toy.seen if kind == "decide")
    assert all(all(more["seconds"]) for kind, _, (_, more) in toy.seen if kind == "decide_many")


def test_rows_and_questions_of_the_user_are_asked() -> None:
    rows = [Given("my own text"), Given("a rather longer text of my own, the longest"), Given("a middling text")]
    questions = {"mine": YesNo("Is it mine?")}
    toy = asked(manifest(), rows=rows, questions=questions)
    own = sum(any(one.state in some for one in rows) for _, some, _ in toy.seen)
    assert 0.6 < own / len(toy.seen) < 0.9
    assert all(some is questions for _, _, (some, _) in toy.seen)
    probe = Toy()
    Workload(manifest(), rows, questions).probe(probe)
    assert probe.seen == [("decide", ["a middling text"], (questions, {}))]


def test_the_probe_is_always_the_same() -> None:
    toy, workload = Toy(), Workload(manifest())
    workload.probe(toy)
    workload.ask(toy)
    workload.probe(toy)
    assert toy.seen[0] == toy.seen[2] and toy.seen[0][1] == [PROBE]


@pytest.mark.parametrize("seed", range(3))
def test_a_real_model_answers_all_of_it(decider_fp32: Decider, seed: int) -> None:
    workload = Workload(decider_fp32.manifest, seed=seed)
    workload.probe(decider_fp32)
    for _ in range(25):
        workload.ask(decider_fp32)
