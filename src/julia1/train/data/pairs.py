"""Answers about two or more texts, as rows bring them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from julia1.content import render, shown
from julia1.errors import InputError

MOST_CANDIDATES = 200


@dataclass(frozen=True)
class Match:
    """Whether a row's two texts belong together."""

    belongs: bool

    def __str__(self) -> str:
        return "match" if self.belongs else "no match"


@dataclass(frozen=True)
class Best:
    """Number of the candidate that fits a row's text best."""

    number: int

    def __str__(self) -> str:
        return f"candidate {self.number}"


def read_candidates(place: str, value: Any) -> tuple[str, ...]:
    """The texts of a row's ``candidates``; none without them.

    Raises:
        InputError: no list, fewer than two or more than ``MOST_CANDIDATES``, or a blank or repeated text.
    """
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= MOST_CANDIDATES:
        raise InputError(f"{place}: 'candidates' is {shown(value)}: give a list of 2 to {MOST_CANDIDATES} texts")
    texts = tuple(render(text, f"{place}: a candidate") for text in value)
    if not all(text.strip() for text in texts):
        raise InputError(f"{place}: candidate {[bool(text.strip()) for text in texts].index(False)} is empty")
    if len(set(texts)) < len(texts):
        raise InputError(f"{place}: 'candidates' has {shown(max(texts, key=texts.count))} twice")
    return texts


def read_best(where: str, value: Any, candidates: int) -> Best:
    """The number of a candidate; raises ``InputError`` when there is none of it."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < candidates:
        raise InputError(f"{where} is {shown(value)}: give the number of a candidate, 0 to {candidates - 1}")
    return Best(value)
