"""Spans survive the way through tags, and end where characters end."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1.bundle import Bundle
from julia1.settings import model_path
from julia1.text import TextTokenizer
from julia1.text.tags import TextSpan, best_tags, spans_of, tag_count, tags_of


def words_and_offsets(text: str) -> list[tuple[int, int]]:
    """One token a word, with the blank before it, as SentencePiece has it."""
    offsets, at = [], 0
    for word in text.split(" "):
        offsets.append((max(0, at - 1), at + len(word)))
        at += len(word) + 1
    return offsets


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 2)), min_size=1, max_size=12))
def test_spans_of_whole_words_come_back(parts: list[tuple[int, int]]) -> None:
    words: list[str] = []
    spans = []
    for number, label in parts:
        start = len(" ".join(words)) + (1 if words else 0)
        words += [f"w{i}" for i in range(number)]
        if label >= 0:
            spans.append(TextSpan(start, len(" ".join(words)), label))
    text = " ".join(words)
    offsets = words_and_offsets(text)
    tags = tags_of(spans, text, offsets)
    assert max(tags) < tag_count(3)
    assert [span for span, _ in spans_of(tags, text, offsets)] == spans


def allowed(tags: tuple[int, ...]) -> bool:
    return all(
        tag == 0 or tag % 2 == 1 or before in (tag, tag - 1) for before, tag in zip((0, *tags), tags, strict=False)
    )


@given(st.integers(1, 4), st.integers(1, 2), st.integers(0, 10_000))
def test_the_best_allowed_sequence_is_found(tokens: int, labels: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(tokens, tag_count(labels)))
    every = itertools.product(range(tag_count(labels)), repeat=tokens)
    best = max(filter(allowed, every), key=lambda tags: sum(scores[i, tag] for i, tag in enumerate(tags)))
    assert tuple(best_tags(scores).tolist()) == best


def test_a_span_takes_its_combining_marks_and_joined_emoji_with_it() -> None:
    text = "e\u0301te\u0301 \U0001f469\u200d\U0001f467 x"
    assert [span for span, _ in spans_of([1], text, [(0, 4)])] == [TextSpan(0, 5, 0)]
    assert [span for span, _ in spans_of([1], text, [(6, 7)])] == [TextSpan(6, 9, 0)]
    assert [span for span, _ in spans_of([1], text, [(8, 9)])] == [TextSpan(6, 9, 0)]


def test_a_span_of_blanks_is_none() -> None:
    assert spans_of([1], "a  b", [(1, 3)]) == []


def test_a_token_belongs_to_the_span_with_most_of_it() -> None:
    text = "abcdef gh"
    spans = [TextSpan(0, 2, 0), TextSpan(2, 6, 1)]
    assert tags_of(spans, text, [(0, 6), (6, 9)]) == [3, 0]
    assert tags_of([TextSpan(0, 1, 0)], text, [(0, 6)]) == [0]


@pytest.fixture(scope="module")
def bundled_tokenizer() -> TextTokenizer:
    """The tokenizer of the model that ships."""
    opened = Bundle.open(model_path())
    return TextTokenizer.from_file(opened.path(opened.manifest.tokenizer))


TEXTS: list[Any] = [
    ("明天上午八点的闹钟", "闹钟"),
    ("please pay １２３ ㎏ now", "１２３ ㎏"),
    ("call \U0001f469\u200d\U0001f467 at ten", "\U0001f469\u200d\U0001f467"),
    ("un e\u0301te\u0301 chaud", "e\u0301te\u0301"),
    ("price\t\t12,50 euro\nnet", "12,50 euro"),
    ("say <mask> and </s> aloud", "aloud"),
    ("نزّل الأغنية من فضلك", "الأغنية"),
    ("การจองโรงแรม", "โรงแรม"),
]


@pytest.mark.parametrize(("text", "part"), TEXTS)
def test_a_part_of_a_text_comes_back_from_its_tokens(text: str, part: str, bundled_tokenizer: TextTokenizer) -> None:
    ((ids, offsets),) = bundled_tokenizer.ids_and_offsets([text])
    assert [ids] == bundled_tokenizer.ids([text])
    start = text.index(part)
    span = TextSpan(start, start + len(part), 0)
    ((found, _),) = spans_of(tags_of([span], text, offsets), text, offsets)
    assert text[found.start : found.end] == part
