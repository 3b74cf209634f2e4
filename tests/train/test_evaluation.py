"""How far probabilities can be believed: calibration, coverage, labels, confusions, retrieval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from sklearn.metrics import brier_score_loss, log_loss  # noqa: E402

from julia1.answers import Reading, TagsAnswer  # noqa: E402
from julia1.bundle import Calibration  # noqa: E402
from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.runtime.fixed import ReadState, head_answer  # noqa: E402
from julia1.text.tags import TextSpan, tags_of  # noqa: E402
from julia1.train.evaluation import (  # noqa: E402
    NONE,
    Confusion,
    calibrated,
    class_figures,
    confusions,
    coverage,
    coverage_at,
    evaluate,
)
from julia1.train.items import Item  # noqa: E402
from julia1.train.judging import judge  # noqa: E402
from julia1.train.metrics import head_figures  # noqa: E402
from julia1.train.pairing import retrieval_figures  # noqa: E402

CHOICE = HeadSpec("topic", "choice", ("food", "music", "city"))
LABELS = HeadSpec("tags", "labels", ("a", "b", "c"), thresholds=(0.3, 0.5, 0.7))
YESNO = HeadSpec("late", "yesno", ("no", "yes"))
SCORE = HeadSpec("stars", "score", ("1", "2", "3", "4"))
MATCH = HeadSpec("match", "match")
TAGS = HeadSpec("where", "tags", ("what", "mood"))
WARM = Calibration(1.7)


def rows_of(head: HeadSpec, number: int, seed: int) -> tuple[list[Any], list[Item]]:
    """Random outputs and targets, the latter often where the former are largest."""
    random = np.random.default_rng(seed)
    outputs, items = [], []
    for _ in range(number):
        logits = random.normal(0, 2, head.outputs).astype(np.float32)
        if head.kind == "labels":
            target = (logits + random.normal(0, 1.5, head.outputs) > 0).astype(np.float32)
        elif head.kind == "match":
            target = np.array([logits[0] + random.normal(0, 1.5) > 0], np.float32)
        else:
            best = int(np.argmax(logits + random.normal(0, 1.5, head.outputs)))
            target = np.eye(head.outputs, dtype=np.float32)[best]
            if head.kind == "score":
                target = 0.8 * target + 0.2 / head.outputs
        outputs.append(logits)
        items.append(Item([1], {head.name: target}))
    return outputs, items


def tagged(number: int = 30, seed: int = 3) -> tuple[list[Any], list[Item]]:
    random = np.random.default_rng(seed)
    text, offsets = "ab cd ef gh", [(0, 2), (3, 5), (6, 8), (9, 11)]
    outputs, items = [], []
    for _ in range(number):
        spans = [TextSpan(*offsets[i], int(random.integers(2))) for i in range(4) if random.random() < 0.4]
        tags = np.array(tags_of(spans, text, offsets), np.int64)
        outputs.append((np.eye(5)[tags] * 3 + random.normal(0, 1.3, (4, 5))).astype(np.float32))
        items.append(Item([1], {"where": tags}, text=text, offsets=offsets, spans={"where": spans}))
    return outputs, items


@pytest.mark.parametrize("head", [CHOICE, LABELS, YESNO, SCORE, MATCH], ids=lambda head: head.kind)
def test_confidence_is_what_answers_abstain_by(head: HeadSpec) -> None:
    outputs, items = rows_of(head, 40, seed=2)
    judged = judge(head, outputs, items, WARM)
    answers = [head_answer(head, values, WARM, ReadState("", Reading(1, 1), ())) for values in outputs]
    assert judged.confidence.tolist() == [answer.confidence for answer in answers]  # type: ignore[union-attr]
    for threshold in np.quantile(judged.confidence, [0.1, 0.5, 0.9]):
        marked = [head_answer(head, v, WARM, ReadState("", Reading(1, 1), ()), float(threshold)) for v in outputs]
        assert [a.abstained for a in marked] == (judged.confidence < threshold).tolist()  # type: ignore[union-attr]


def test_tags_are_judged_as_they_are_answered() -> None:
    outputs, items = tagged()
    judged = judge(TAGS, outputs, items, WARM)
    for number, (values, item) in enumerate(zip(outputs, items, strict=True)):
        answer = head_answer(TAGS, values, WARM, ReadState(item.text, Reading(4, 4), item.offsets))
        assert isinstance(answer, TagsAnswer)
        assert answer.confidence == judged.confidence[number]
        found = {(span.start, span.end, span.label) for span in answer.spans}
        wanted = {(span.start, span.end, TAGS.labels[span.label]) for span in item.spans["where"]}
        assert judged.right[number] == (found == wanted)
    assert 0 < judged.right.mean() < 1
    assert judged.chances.shape == judged.truth.shape == (120, 5)


def test_a_text_without_tokens_has_its_spans_missed() -> None:
    item = Item([1], {"where": np.zeros(0, np.int64)}, text="a", spans={"where": [TextSpan(0, 1, 0)]})
    judged = judge(TAGS, [np.zeros((0, 5), np.float32)], [item])
    assert judged.right.tolist() == [False]
    assert calibrated("tags", judged) is None


@pytest.mark.parametrize("head", [CHOICE, YESNO, SCORE, MATCH], ids=lambda head: head.kind)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=10)
def test_brier_and_likelihood_are_those_of_scikit_learn(head: HeadSpec, seed: int) -> None:
    judged = judge(head, *rows_of(head, 50, seed))
    found = calibrated(head.kind, judged)
    assert found is not None
    wanted = judged.truth.argmax(axis=1)
    classes = list(range(judged.chances.shape[1]))
    assert found.nll == pytest.approx(log_loss(wanted, judged.chances, labels=classes))
    expected = (
        brier_score_loss(wanted, judged.chances[:, 1], labels=[0, 1])
        if len(classes) == 2
        else np.mean([brier_score_loss(judged.truth[:, c], judged.chances[:, c], labels=[0, 1]) for c in classes])
        * len(classes)
    )
    assert found.brier == pytest.approx(expected)


def test_labels_are_calibrated_each_by_itself() -> None:
    # one label is half as likely as it says, the other twice: together they would look perfect
    chances = np.array([0.25, 0.5])
    logits = np.tile(np.log(chances / (1 - chances)), (400, 1)).astype(np.float32)
    targets = np.zeros((400, 2), np.float32)
    targets[:200, 0] = 1
    targets[:100, 1] = 1
    items = [Item([1], {"tags": target}) for target in targets]
    head = HeadSpec("tags", "labels", ("a", "b"))
    judged = judge(head, list(logits), items)
    found = calibrated("labels", judged)
    assert found is not None
    assert found.ece == pytest.approx(0.25, abs=1e-6)
    assert [one.ece for one in class_figures(head, judged)] == pytest.approx([0.25, 0.25], abs=1e-6)
    assert found.brier == pytest.approx(np.square(judged.chances - judged.truth).mean())
    assert found.nll == pytest.approx(np.mean([log_loss(targets[:, c], judged.chances[:, c]) for c in (0, 1)]))


def test_a_good_temperature_lowers_the_calibration_error() -> None:
    random = np.random.default_rng(5)
    logits = random.normal(0, 1.5, (3000, 3))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    wanted = [int(random.choice(3, p=row)) for row in shares]
    items = [Item([1], {"topic": np.eye(3, dtype=np.float32)[i]}) for i in wanted]
    outputs = list((3 * logits).astype(np.float32))  # three times too sure
    one = evaluate([CHOICE], {"topic": outputs}, items, {"topic": Calibration(3.0)}, [""] * 3000)["topic"]
    assert one.before is not None
    assert one.after is not None
    assert one.before.ece > 0.1
    assert one.after.ece < 0.03
    assert one.after.nll < one.before.nll
    assert one.after.brier < one.before.brier
    for found in (one.before, one.after):
        assert sum(bin_.rows for bin_ in found.bins) == 3000
        error = sum(bin_.rows * abs(bin_.confidence - bin_.accuracy) for bin_ in found.bins) / 3000
        assert error == pytest.approx(found.ece)
        assert all(bin_.low <= bin_.confidence <= bin_.high for bin_ in found.bins)


def test_coverage_by_hand() -> None:
    sure, right = np.array([0.95, 0.9, 0.9, 0.35, 0.1]), np.array([True, True, False, True, False])
    table = {one.threshold: (one.answered, one.accuracy) for one in coverage(sure, right)}
    assert table[0.0] == (1.0, 0.6)
    assert table[0.3] == (0.8, 0.75)
    assert table[0.9] == (pytest.approx(0.6), pytest.approx(2 / 3))
    assert table[0.95] == (0.2, 1.0)
    assert table[0.99] == (0.0, None)
    assert coverage_at(sure, right, 0.75) == 0.8
    assert coverage_at(sure, right, 1.0) == 0.2, "equal confidences are answered together"
    assert coverage_at(sure, ~np.ones(5, bool), 0.9) == 0.0


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 1.0]))
def test_coverage_is_what_a_threshold_reaches(rows: list[tuple[int, bool]], accuracy: float) -> None:
    sure, right = np.array([one / 4 for one, _ in rows]), np.array([one for _, one in rows])
    shares = [
        float((sure >= threshold).mean()) for threshold in sure if right[sure >= threshold].mean() >= accuracy - 1e-9
    ]
    assert coverage_at(sure, right, accuracy) == pytest.approx(max(shares, default=0.0))


def test_labels_and_confusions_by_hand() -> None:
    wanted, given_ = [0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 0, 2]
    outputs = [(4 * np.eye(3)[i]).astype(np.float32) for i in given_]
    items = [Item([1], {"topic": np.eye(3, dtype=np.float32)[i]}) for i in wanted]
    judged = judge(CHOICE, outputs, items)
    food, music, city = class_figures(CHOICE, judged)
    assert (food.label, food.support, food.precision, food.recall) == ("food", 3, 0.5, pytest.approx(1 / 3))
    assert (music.precision, music.recall) == (pytest.approx(1 / 3), 0.5)
    assert city.f1 == 1.0
    assert confusions(CHOICE, judged) == [Confusion("food", "music", 2), Confusion("music", "food", 1)]


def test_confusions_of_labels_and_spans() -> None:
    head = HeadSpec("tags", "labels", ("a", "b"))
    outputs = [np.array([3, -3], np.float32), np.array([-3, 3], np.float32), np.array([3, 3], np.float32)]
    items = [Item([1], {"tags": np.array(t, np.float32)}) for t in ([0, 1], [0, 0], [1, 1])]
    assert confusions(head, judge(head, outputs, items)) == [Confusion(NONE, "b", 1), Confusion("b", "a", 1)]

    text, offsets = "ab cd ef", [(0, 2), (3, 5), (6, 8)]
    spans = [TextSpan(0, 2, 0), TextSpan(3, 5, 1)]
    tags = np.array([3, 0, 1])  # mood where "what" was wanted, nothing, and one too many
    item = Item([1], {"where": np.array([1, 3, 0])}, text=text, offsets=offsets, spans={"where": spans})
    judged = judge(TAGS, [(9 * np.eye(5)[tags]).astype(np.float32)], [item])
    found = {(one.wanted, one.given) for one in confusions(TAGS, judged)}
    assert found == {("what", "mood"), ("mood", NONE), (NONE, "what")}
    assert [(one.label, one.support, one.recall) for one in class_figures(TAGS, judged)] == [
        ("what", 1, 0.0),
        ("mood", 1, 0.0),
    ]


def test_languages_are_told_apart() -> None:
    outputs, items = rows_of(CHOICE, 60, seed=4)
    languages = ["de" if i % 3 else "" for i in range(60)]
    one = evaluate([CHOICE], {"topic": outputs}, items, {}, languages)["topic"]
    assert {name: figures["rows"] for name, figures in one.languages.items()} == {"": 20, "de": 40}
    right = judge(CHOICE, outputs, items).right
    assert one.languages["de"]["accuracy"] == pytest.approx(right[[i for i in range(60) if i % 3]].mean())
    assert evaluate([CHOICE], {"topic": outputs}, items, {}, [""] * 60)["topic"].languages == {}


def test_heads_that_no_row_answers_are_left_out_and_values_have_figures_only() -> None:
    value = HeadSpec("price", "value", centre=1.0, spread=2.0)
    items = [Item([1], {"price": np.array([float(i)], np.float32)}) for i in range(4)]
    outputs = {"price": [np.array([i + 0.5], np.float32) for i in range(4)], "topic": [np.zeros(3, np.float32)] * 4}
    found = evaluate([CHOICE, value], outputs, items, {}, [""] * 4)
    assert set(found) == {"price"}
    assert found["price"].figures["rmse"] == pytest.approx(1.0)
    assert found["price"].before is None
    assert found["price"].coverage == []


def test_yes_or_no_has_an_area_under_its_curve() -> None:
    logits = np.array([[0, 1], [0, 3], [0, 2], [0, -1]], np.float32)
    targets = np.eye(2, dtype=np.float32)[[0, 1, 1, 0]]
    figures = head_figures(YESNO, logits, targets)
    assert figures["auc"] == 1.0
    assert figures["accuracy"] == 0.75, "a threshold of one half is not what the area goes by"
    assert head_figures(YESNO, logits, targets[[1, 1, 1, 1]])["auc"] == 0.5


def unit(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle)], np.float32)


def test_the_right_text_is_looked_for_among_all_candidates() -> None:
    head = HeadSpec("best", "rank", size=2, spread=10.0)
    texts = {(number,): unit(number / 10) for number in range(12)}
    items, outputs = [], []
    # the candidates 0..11 lie on an arc; each row knows two of them, and its query lies nearest to the right one
    for first, second, best, angle in ((0, 1, 0, 0.0), (2, 3, 1, 0.3), (4, 5, 0, 0.61), (6, 11, 1, 0.0)):
        ids = [(first,), (second,)]
        items.append(Item([90 + len(items)], {"best": np.array([best], np.float32)}, others=[list(i) for i in ids]))
        outputs.append(np.stack([unit(angle), *(texts[i] for i in ids)]))
    found = retrieval_figures(head, outputs, items)
    # places: first; first; 4 is beaten by 6 and 5 (nearer to 0.61); 11 is the last of all ten
    assert found["candidates"] == 8
    assert found["queries"] == 4
    assert found["recall@1"] == 0.5
    assert found["recall@5"] == 0.75
    assert found["recall@10"] == 1.0
    assert found["mrr"] == pytest.approx((1 + 1 + 1 / 3 + 1 / 8) / 4)


def test_matching_texts_are_found_and_a_query_is_no_candidate_of_its_own() -> None:
    head = HeadSpec("match", "match", size=2, spread=10.0)

    def row(query: int, other: int, match: bool) -> tuple[np.ndarray, Item]:
        target = {"match": np.array([match], np.float32)}
        return np.stack([unit(query / 10), unit(other / 10)]), Item([query], target, others=[[other]])

    # 1 asks for 2 and 4, of which the nearer counts; 2 asks for 1, and stands among the candidates itself
    outputs, items = zip(row(1, 2, True), row(1, 4, True), row(2, 1, True), row(5, 9, False), strict=True)
    found = retrieval_figures(head, outputs, items)
    assert (found["candidates"], found["queries"]) == (4, 2)
    assert found["mrr"] == 1.0
    assert retrieval_figures(head, outputs[3:], items[3:]) == {}


def test_a_constant_score_does_not_look_good() -> None:
    head = HeadSpec("best", "rank", size=2)
    items = [Item([50 + i], {"best": np.array([0], np.float32)}, others=[[2 * i], [2 * i + 1]]) for i in range(10)]
    found = retrieval_figures(head, [np.stack([unit(0)] * 3)] * 10, items)
    assert found["recall@10"] == 0.0
    assert found["mrr"] == pytest.approx(1 / 20)
