"""What a search tries: values of hyper-parameters, or ranges of them. Needs no PyTorch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from julia1.content import shown
from julia1.errors import InputError
from julia1.train.recipe import FineTuning, fill

LOG_SCALE = ("learning_rate", "head_learning_rate", "weight_decay")
"""Hyper-parameters of which factors matter, not differences: their ranges are drawn from on a logarithmic scale."""
MOST_RUNS = 500
_WRITE = "write NAME=VALUE,VALUE or NAME=LOW..HIGH"


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones for a hyper-parameter that is a whole number."""

    low: float
    high: float


Space = dict[str, list[Any] | Range]
"""Name of a hyper-parameter to what is tried of it."""


def plain_value(text: str) -> Any:
    """A number or truth value where the text is one, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_space(texts: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE,VALUE`` and ``NAME=LOW..HIGH`` of flags as they stand in a file; ``read_space`` checks them.

    Raises:
        InputError: no such form, or a name given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise InputError(f"--search {text!r}: {_WRITE}")
        if name in found:
            raise InputError(f"--search names {name} twice: give all its values at once")
        found[name] = values if ".." in values else [plain_value(value.strip()) for value in values.split(",")]
    return found


def read_space(data: Mapping[str, Any], where: str = "--search") -> Space:
    """The values or range of each hyper-parameter, from lists and ``LOW..HIGH``.

    Raises:
        InputError: an unknown name, a value of another type, a value given twice, or a range that is none.
    """
    space: Space = {}
    for name, given in data.items():
        place = f"{where}: {name}"
        if isinstance(given, str) and ".." in given:
            space[name] = _range(name, given, place)
        elif isinstance(given, list) and given:
            values = [_checked(name, value, where) for value in given]
            if len(set(values)) < len(values):
                raise InputError(f"{place}: a value stands twice in {given}")
            space[name] = values
        else:
            raise InputError(f"{place} is {shown(given)}: give a list of values, or LOW..HIGH")
    return space


def combinations(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination, the last name varying fastest.

    Raises:
        InputError: there are more than ``MOST_RUNS``.
    """
    number = 1
    for found in space.values():
        number *= len(found)
    if number > MOST_RUNS:
        raise InputError(
            f"the search has {number:,} combinations, {MOST_RUNS} are taken at most: leave some out, or try only some "
            "with --trials"
        )
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def corners(space: Space) -> Iterator[dict[str, Any]]:
    """Combinations of the values, and of the ends of ranges, ``MOST_RUNS`` at most: what is checked beforehand."""
    ends = [[one.low, one.high] if isinstance(one, Range) else one for one in space.values()]
    for values in itertools.islice(itertools.product(*ends), MOST_RUNS):
        yield dict(zip(space, values, strict=True))


def has_ranges(space: Space) -> bool:
    """Whether a grid cannot try it all."""
    return any(isinstance(one, Range) for one in space.values())


def _checked(name: str, value: Any, where: str) -> Any:
    return getattr(fill(FineTuning, {name: value}, where), name)


def _range(name: str, text: str, place: str) -> Range:
    low, high = (_checked(name, plain_value(end.strip()), place) for end in text.split("..", 1))
    if isinstance(low, (bool, str)) or not low < high:
        raise InputError(f"{place} is {text!r}: a range is LOW..HIGH of two numbers, the lower one first")
    return Range(low, high)
