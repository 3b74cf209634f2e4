"""Spans of a text as tags of its tokens (BIO), and back to characters of the text as it was given.

Tag 0 is *outside*; label ``i`` has the tags ``1 + 2 i`` (*begin*) and ``2 + 2 i`` (*inside*).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

OUTSIDE = 0
_JOINER = "\u200d"
Offsets = Sequence[tuple[int, int]]
"""Of each token, the characters it was made of: first, and one past the last."""


class TextSpan(NamedTuple):
    """A labelled part of a text.

    Attributes:
        start, end: characters, the end exclusive.
        label: number of the label.
    """

    start: int
    end: int
    label: int


def tag_count(labels: int) -> int:
    """Tags for so many labels."""
    return 1 + 2 * labels


def tags_of(spans: Sequence[TextSpan], text: str, offsets: Offsets) -> list[int]:
    """The tag of each token. A token belongs to the span that has most of its characters, blanks apart."""
    tags = [OUTSIDE] * len(offsets)
    previous: TextSpan | None = None
    for token, (first, last) in enumerate(offsets):
        start, end = _without_blanks(text, first, last)
        best = max(spans, key=lambda span: _common(span, start, end), default=None)
        if best is None or 2 * _common(best, start, end) < max(1, end - start):
            previous = None
            continue
        tags[token] = (2 if best is previous else 1) + 2 * best.label
        previous = best
    return tags


def best_tags(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The likeliest sequence in which *inside* follows *begin* or *inside* of the same label only (Viterbi).

    Args:
        scores: log-probabilities, float64 ``[tokens, tags]``.

    Returns:
        int64 ``[tokens]``.
    """
    tokens, tags = scores.shape
    inside = np.arange(2, tags, 2)
    came_from = np.zeros((tokens, tags), np.int64)
    total = scores[0].copy()
    total[inside] = -np.inf
    for token in range(1, tokens):
        best = int(total.argmax())
        came_from[token] = best
        reached = np.full(tags, total[best])
        from_begin = total[inside - 1] >= total[inside]
        came_from[token, inside] = np.where(from_begin, inside - 1, inside)
        reached[inside] = np.where(from_begin, total[inside - 1], total[inside])
        total = reached + scores[token]
    path = np.empty(tokens, np.int64)
    path[-1] = total.argmax()
    for token in range(tokens - 1, 0, -1):
        path[token - 1] = came_from[token, path[token]]
    return path


def spans_of(tags: Sequence[int], text: str, offsets: Offsets) -> list[tuple[TextSpan, range]]:
    """Spans with the tokens they cover, in the order of the text.

    A span begins and ends at a visible character, and never between a letter and its combining marks or within an emoji
    that is joined from several, where tokenizers may cut.
    """
    found: list[tuple[TextSpan, range]] = []
    first = -1
    for token in range(len(tags) + 1):
        tag = tags[token] if token < len(tags) else OUTSIDE
        inside = tag != OUTSIDE and tag % 2 == 0
        if first >= 0 and not inside:
            start, end = _whole_characters(text, offsets[first][0], offsets[token - 1][1])
            if start < end:
                found.append((TextSpan(start, end, (tags[first] - 1) // 2), range(first, token)))
            first = -1
        if tag % 2 == 1:
            first = token
    return found


def _common(span: TextSpan, start: int, end: int) -> int:
    return max(0, min(span.end, end) - max(span.start, start))


def _without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _whole_characters(text: str, start: int, end: int) -> tuple[int, int]:
    start, end = _without_blanks(text, start, end)
    while 0 < start < end and _continues(text, start):
        start -= 1
    while start < end < len(text) and _continues(text, end):
        end += 1
    return start, end


def _continues(text: str, place: int) -> bool:
    """Whether a character belongs to the one before it."""
    here = text[place]
    return here == _JOINER or text[place - 1] == _JOINER or unicodedata.category(here).startswith("M")
