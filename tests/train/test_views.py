"""Every view makes questions that can be asked, with the right answer, over many draws."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from julia1 import Choice, Score, YesNo
from julia1.train.recipe import Recipe, Source
from julia1.train.sources import read_set
from julia1.train.views import VIEWS, Drawing, Example

DRAWS = 12
"""Draws of each row."""
KEYS = (
    "choice", "labels", "area", "sentiment", "upset", "score", "language", "answer_kind", "pair", "open", "parallel",
)  # fmt: skip


def drawing(source: Source, data: Path, recipe: Recipe) -> Drawing:
    return Drawing(read_set(data / source.set, source.splits), source, recipe.wordings)


def examples(source: Source, data: Path, recipe: Recipe) -> Iterator[tuple[dict[str, Any], Example]]:
    """Every example of every row over many seeds."""
    draw = drawing(source, data, recipe)
    view = VIEWS[source.view]
    for index, row in enumerate(draw.labelled.rows):
        for seed in range(DRAWS):
            example = view(row, draw, random.Random(f"{index}/{seed}"))
            if example is not None:
                yield row, example


def plain(name: str) -> str:
    return name.casefold().replace("_", " ").replace("-", " ")


@pytest.fixture(params=KEYS)
def source(request: pytest.FixtureRequest, sources: dict[str, Source]) -> Source:
    return sources[request.param]


def test_every_view_has_a_source_here(sources: dict[str, Source]) -> None:
    assert {source.view for source in sources.values()} == set(VIEWS)


def test_examples_are_valid(source: Source, data: Path, bundled_recipe: Recipe) -> None:
    number = 0
    for _, example in examples(source, data, bundled_recipe):
        number += 1
        assert str(example.state).strip()
        assert example.questions
        for question, target in example.questions:
            texts = question.option_texts()
            assert len(target) == len(texts) >= 2
            assert sum(target) == pytest.approx(1)
            assert min(target) >= 0
            assert len(set(texts)) == len(texts)
            if isinstance(question, Choice):
                assert len(texts) <= 22
    assert number > 5


def test_a_draw_is_the_same_for_the_same_generator(source: Source, data: Path, bundled_recipe: Recipe) -> None:
    draw = drawing(source, data, bundled_recipe)
    for row in draw.labelled.rows[:20]:
        first, second = (VIEWS[source.view](row, draw, random.Random(4)) for _ in range(2))
        assert first == second


@pytest.mark.parametrize("key", ["choice", "labels"])
def test_a_choice_has_its_right_label_or_none_of_these(
    key: str, sources: dict[str, Source], data: Path, bundled_recipe: Recipe
) -> None:
    labelled = read_set(data / sources[key].set, ["train"])
    synonyms = sources[key].names
    forms = {
        label: {plain(x) for x in (label, text, labelled.labels_zh[label], *synonyms.get(label, ()))}
        for label, text in labelled.labels.items()
    }
    none_of_these = {plain(x) for names in bundled_recipe.wordings["none"].values() for x in names}
    refusals = choices = 0
    for row, example in examples(sources[key], data, bundled_recipe):
        positives = [row["label"]] if "label" in row else row["labels"]
        blocked = {form for label in (*positives, *row.get("unknown", ())) for form in forms[label]}
        right = {form for label in positives for form in forms[label]}
        for question, target in example.questions:
            if not isinstance(question, Choice):
                continue
            choices += 1
            named = [plain(name) for name in question.options]
            gold = named[target.index(1.0)]
            others = [name for name, share in zip(named, target, strict=True) if not share]
            if gold in none_of_these:
                refusals += 1
                assert not blocked.intersection(named)
            else:
                assert gold in right
                assert not blocked.intersection(others)
    assert 0.02 < refusals / choices < 0.12


def test_membership_says_yes_for_the_labels_of_the_row_only(
    sources: dict[str, Source], data: Path, bundled_recipe: Recipe
) -> None:
    wordings = {**bundled_recipe.wordings, "yesno": {"en": ["{label}"], "zh": ["{label}"]}}
    recipe = Recipe("x", [], wordings)
    asked = {True: 0, False: 0}
    for key in ("choice", "labels"):
        labelled = read_set(data / sources[key].set, ["train"])
        by_form = {
            form: label for label, text in labelled.labels.items() for form in (label, text, labelled.labels_zh[label])
        }
        for row, example in examples(sources[key], data, recipe):
            positives = [row["label"]] if "label" in row else row["labels"]
            for question, target in example.questions:
                if isinstance(question, YesNo):
                    label = by_form[str(question.instructions)]
                    assert (target == [0.0, 1.0]) is (label in positives)
                    assert label not in row.get("unknown", ())
                    asked[label in positives] += 1
    assert 0.3 < asked[True] / (asked[True] + asked[False]) < 0.6


def test_options_and_wordings_are_drawn_anew(sources: dict[str, Source], data: Path, bundled_recipe: Recipe) -> None:
    draw = drawing(sources["choice"], data, bundled_recipe)
    row = draw.labelled.rows[0]
    drawn = [VIEWS["choice"](row, draw, random.Random(seed)) for seed in range(60)]
    choices = [e.questions[0][0] for e in drawn if e is not None and isinstance(e.questions[0][0], Choice)]
    assert len({tuple(question.options) for question in choices}) > 30
    assert len({question.instructions for question in choices}) > 8
    assert {len(question.options) for question in choices} >= {2, 3, 4, 5, 6}
    assert any(question.instructions is None for question in choices)
    assert any(all(text is None for text in question.options.values()) for question in choices)
    assert any(any(question.options.values()) for question in choices)


def test_areas_cover_their_labels(sources: dict[str, Source], data: Path, bundled_recipe: Recipe) -> None:
    found = set()
    for row, example in examples(sources["area"], data, bundled_recipe):
        ((question, target),) = example.questions
        gold = list(question.options)[target.index(1.0)]  # type: ignore[union-attr]
        assert row["label"].startswith(tuple(sources["area"].areas[gold]))
        found.add(gold)
    assert found == {"alarms", "music", "weather"}


def test_languages_are_named_rightly(sources: dict[str, Source], data: Path, bundled_recipe: Recipe) -> None:
    for row, example in examples(sources["language"], data, bundled_recipe):
        ((question, target),) = example.questions
        assert list(question.options)[target.index(1.0)] == sources["language"].names[row["lang"]][0]  # type: ignore[union-attr]


def test_sentiment_agrees_with_the_polarity(sources: dict[str, Source], data: Path, bundled_recipe: Recipe) -> None:
    polarity = sources["sentiment"].polarity
    signs = {"positive": 1, "negative": -1, "neutral": 0}
    words = {
        1: ("positive", "good", "favourable", "satisfied", "正面"),
        -1: ("negative", "bad", "unfavourable", "dissatisfied", "负面"),
        0: ("neutral", "neither good nor bad", "balanced", "indifferent", "中性"),
    }
    kinds = set()
    for row, example in examples(sources["sentiment"], data, bundled_recipe):
        signed = {signs[polarity[label]] for label in row["labels"]} or {0}
        (sign,) = signed  # rows of mixed polarity are left out
        ((question, target),) = example.questions
        kinds.add(type(question))
        if isinstance(question, Choice):
            assert plain(list(question.options)[target.index(1.0)]) in words[sign]
        elif isinstance(question, YesNo):
            positive = str(question.instructions) in [
                w for part in bundled_recipe.wordings["is_positive"].values() for w in part
            ]
            assert (target == [0.0, 1.0]) is ((sign == 1) is positive)
        else:
            place = sum(i * share for i, share in enumerate(target)) / (len(target) - 1)
            low_first = any(word in str(question.levels[0]) for word in ("negative", "负面"))
            expected = {1: 1.0, -1: 0.0, 0: 0.5}[sign] if low_first else {1: 0.0, -1: 1.0, 0: 0.5}[sign]
            assert abs(place - expected) <= 0.26
    assert kinds == {Choice, YesNo, Score}


def test_stars_fall_on_their_level_in_either_direction(
    sources: dict[str, Source], data: Path, bundled_recipe: Recipe
) -> None:
    directions = set()
    for row, example in examples(sources["score"], data, bundled_recipe):
        ((question, target),) = example.questions
        assert isinstance(question, Score)
        up = str(question.levels[0]) in ("very bad", "1星")
        directions.add(up)
        place = sum(i * share for i, share in enumerate(target if up else target[::-1]))
        assert place == pytest.approx(row["score"] - 1)
        assert len(str(example.state).split()) <= 160
    assert directions == {True, False}


def test_pairs_show_both_texts_under_names(sources: dict[str, Source], data: Path, bundled_recipe: Recipe) -> None:
    orders = set()
    for row, example in examples(sources["pair"], data, bundled_recipe):
        assert isinstance(example.state, dict)
        values = list(example.state.values())
        assert sorted(values) == sorted([row["text"], row["text_b"]])
        orders.add(values[0] == row["text"])
        ((_, target),) = example.questions
        assert target == ([0.0, 1.0] if row["label"] == "same meaning" else [1.0, 0.0])
    assert orders == {True, False}


def test_open_rows_keep_their_answer_and_lose_what_cannot_be_asked(
    sources: dict[str, Source], data: Path, bundled_recipe: Recipe
) -> None:
    states = set()
    for row, example in examples(sources["open"], data, bundled_recipe):
        states.add(example.state)
        ((question, target),) = example.questions
        assert list(question.options)[target.index(1.0)] == row["options"][row["answer"]].strip()  # type: ignore[union-attr]
    assert states == {"it rained", "a state"}


def test_question_words_give_the_kind_of_answer(sources: dict[str, Source], data: Path, bundled_recipe: Recipe) -> None:
    wanted = {
        "who pays": {"person", "human", "人物"},
        "where is": {"location", "place", "地点"},
        "how hot": {"number", "numeric value", "quantity", "数字"},
    }
    seen = set()
    for row, example in examples(sources["answer_kind"], data, bundled_recipe):
        ((question, target),) = example.questions
        gold = list(question.options)[target.index(1.0)]  # type: ignore[union-attr]
        for start, names in wanted.items():
            if row["text"].startswith(start):
                assert gold in names
                seen.add(start)
    assert seen == set(wanted)


def test_parallel_rows_ask_for_their_translation(
    sources: dict[str, Source], data: Path, bundled_recipe: Recipe
) -> None:
    draw = drawing(sources["parallel"], data, bundled_recipe)
    group_of = {row["text"]: row["group"] for row in draw.labelled.rows}
    language_of = {row["text"]: row["lang"] for row in draw.labelled.rows}
    wrong_in_the_same_language = wrong_ones = 0
    for row, example in examples(sources["parallel"], data, bundled_recipe):
        ((question, target),) = example.questions
        for text, share in zip(question.options, target, strict=True):  # type: ignore[union-attr]
            assert (group_of[text] == row["group"]) is (share == 1.0)
            assert share == 0 or language_of[text] != row["lang"]
            wrong_ones += share == 0
            wrong_in_the_same_language += share == 0 and language_of[text] == row["lang"]
    assert 0.3 < wrong_in_the_same_language / wrong_ones < 0.7
