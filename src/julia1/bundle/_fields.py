"""Reads plain JSON data field by field, and says exactly where a wrong value stands."""

from __future__ import annotations

import contextlib
import difflib
import math
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from julia1.errors import BundleError


@dataclass(frozen=True)
class Place:
    """Where a value stands, written ``bundle.json: variants[0].name``.

    Attributes:
        file: the file.
        keys: the way from its top to the value; empty for the whole file.
    """

    file: str
    keys: str = ""

    def key(self, name: str) -> Place:
        """The place of a key of this object."""
        return Place(self.file, f"{self.keys}.{name}" if self.keys else name)

    def item(self, index: int) -> Place:
        """The place of an item of this list."""
        return Place(self.file, f"{self.keys}[{index}]")

    def wrong(self, expected: str, got: object) -> BundleError:
        """The error that tells what was expected here."""
        return BundleError(f"{self}: expected {expected}, got {reprlib.repr(got)}")

    def __str__(self) -> str:
        return f"{self.file}: {self.keys}" if self.keys else self.file


def record(data: object, place: Place, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """An object with all the required keys and no unknown ones."""
    fields = mapping(data, place)
    known = [*required, *optional]
    refuse_unknown(fields, known, place)
    missing = [key for key in required if key not in fields]
    if missing:
        raise BundleError(f"{place}: missing key {missing[0]!r}; expected {', '.join(required)}")
    return fields


def refuse_unknown(keys: Iterable[str], known: Sequence[str], place: Place) -> None:
    """Raise for the first key that is not known, naming the nearest that is."""
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise BundleError(f"{place}: unknown key {reprlib.repr(key)}; {hint}")


def mapping(data: object, place: Place) -> dict[str, Any]:
    """An object."""
    if not isinstance(data, dict):
        raise place.wrong("an object", data)
    for key in data:
        if not isinstance(key, str):
            raise place.wrong("keys that are text", key)
    return data


def array(data: object, place: Place) -> list[tuple[Any, Place]]:
    """A list, each item with its place."""
    if not isinstance(data, list):
        raise place.wrong("a list", data)
    return [(item, place.item(index)) for index, item in enumerate(data)]


def text(data: object, place: Place) -> str:
    """A text that is not blank."""
    if not isinstance(data, str) or not data.strip():
        raise place.wrong("a text", data)
    return data


def integer(data: object, place: Place, least: int) -> int:
    """A whole number of at least ``least``."""
    if not isinstance(data, int) or isinstance(data, bool) or data < least:
        raise place.wrong(f"a whole number of at least {least}", data)
    return data


def number(data: object, place: Place) -> float:
    """A finite number."""
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        with contextlib.suppress(OverflowError):  # a whole number that no float can hold
            value = float(data)
            if math.isfinite(value):
                return value
    raise place.wrong("a finite number", data)


def one_of(known: Sequence[str], data: object, place: Place) -> str:
    """One of the names that are known; raises ``BundleError`` for another."""
    if data not in known:
        raise place.wrong(f"one of {', '.join(known)} (a newer julia1 may know more)", data)
    return str(data)
