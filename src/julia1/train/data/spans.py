"""Labelled spans of a text, as rows bring them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from julia1.content import shown
from julia1.errors import InputError

_KEYS = ("start", "end", "label")


class LabelledSpan(NamedTuple):
    """Characters ``start`` to ``end`` (exclusive) of a text, and what they are."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Spans:
    """All labelled spans of a text, in its order; perhaps none."""

    items: tuple[LabelledSpan, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label, once."""
        return tuple(dict.fromkeys(span.label for span in self.items))

    def __str__(self) -> str:
        return ", ".join(f"{span.label} {span.start}-{span.end}" for span in self.items) or "(none)"


def read_spans(where: str, text: str, value: Sequence[Any], label: Callable[[str, Any], str]) -> Spans:
    """Check spans of a text.

    Args:
        where: place and name, for errors.
        text: what they are spans of.
        value: objects with ``start``, ``end`` and ``label``.
        label: checks and cleans a label.

    Raises:
        InputError: a span without these fields, outside the text, blank, or over another one.
    """
    found = []
    for entry in value:
        if not isinstance(entry, dict) or any(key not in entry for key in _KEYS):
            raise InputError(f"{where} has the span {shown(entry)}: a span has {', '.join(_KEYS)}")
        start, end = entry["start"], entry["end"]
        for key, place in (("start", start), ("end", end)):
            if isinstance(place, bool) or not isinstance(place, int):
                raise InputError(f"{where} has a span with the {key} {shown(place)}: give a number of characters")
        if not 0 <= start < end <= len(text):
            raise InputError(f"{where} has a span from {start} to {end}: the text has {len(text)} characters")
        if not text[start:end].strip():
            raise InputError(f"{where} has a span from {start} to {end}, where the text is blank")
        found.append(LabelledSpan(start, end, label(where, entry["label"])))
    found.sort()
    for one, other in itertools.pairwise(found):
        if other.start < one.end:
            raise InputError(
                f"{where} has spans over each other: {one.label} {one.start}-{one.end} and "
                f"{other.label} {other.start}-{other.end}: keep one"
            )
    return Spans(tuple(found))
