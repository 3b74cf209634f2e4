"""Cut rows into train, validation and test: families stay together, labels and languages stay balanced."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from julia1.errors import InputError
from julia1.train.data.duplicates import NEAR, content_of, families
from julia1.train.data.rows import DataRow, is_number, kind_of, labels_of

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """Row indices of each part, and of the augmented rows that belong to none because their origin is evaluated on."""

    train: list[int]
    val: list[int]
    test: list[int]
    left_out: list[int]


def split_rows(
    rows: Sequence[DataRow], shares: tuple[float, float, float] = (8, 1, 1), seed: int = 1, near: float | None = NEAR
) -> Split:
    """Split rows by ``shares``.

    Duplicates, near duplicates and rows of a group fall into one part, so that no text is trained on and tested on.
    Within that, each part gets its share of every label in every language, and training some rows of every label.
    Augmented rows are trained on only: one whose family is evaluated on is left out. The same rows, shares and seed
    give the same split in any order of rows.

    Raises:
        InputError: shares that are negative or all zero, or too few rows to fill every part that has a share.
    """
    if len(shares) != len(SPLITS) or min(shares) < 0 or not sum(shares):
        raise InputError(f"shares are {list(shares)}: give three numbers for train, val and test, such as 8:1:1")
    names = {name for row in rows for name in row.answers}
    numbers = frozenset(name for name in names if is_number(name, rows))
    members = families(rows, near).members()
    originals = [[i for i in family if not rows[i].augmented] for family in members]
    parts: list[list[int]] = [[] for _ in SPLITS]
    wanted = [share / sum(shares) for share in shares]
    filled: list[Counter[str]] = [Counter() for _ in SPLITS]
    left_out: list[int] = []
    draws = [min(_draw(content_of(rows[i]), seed) for i in family) for family in members]
    order = sorted(range(len(members)), key=lambda n: (-len(originals[n]), draws[n]))
    chosen_of: dict[int, int] = {}
    for number in order:
        strata = Counter(stratum for i in originals[number] for stratum in _strata(rows[i], numbers))
        if not strata:
            chosen = 0  # made up from nothing that is here: for training only
        else:
            chosen = max(range(len(SPLITS)), key=lambda p: (_need(strata, filled, wanted, p), wanted[p]))
        filled[chosen].update(strata)
        chosen_of[number] = chosen
    _teach_every_label(rows, originals, order, chosen_of, numbers)
    for number, chosen in chosen_of.items():
        for i in members[number]:
            if rows[i].augmented and chosen:
                left_out.append(i)
            else:
                parts[chosen].append(i)
    for name, part, share in zip(SPLITS, parts, wanted, strict=True):
        if share and not part:
            raise InputError(f"{len(members):,} distinct rows are too few for a {name} part of {share:.0%}")
    train, val, test = (sorted(part) for part in parts)
    return Split(train, val, test, sorted(left_out))


def _teach_every_label(
    rows: Sequence[DataRow],
    originals: Sequence[list[int]],
    order: Sequence[int],
    chosen_of: dict[int, int],
    numbers: frozenset[str],
) -> None:
    """Move the smallest family of a label that training would not have into training."""

    def labels(number: int) -> set[tuple[str, str]]:
        return {(name, value) for i in originals[number] for name, value in _values(rows[i], numbers)}

    taught = {pair for number, chosen in chosen_of.items() if not chosen for pair in labels(number)}
    for number in reversed(order):
        if chosen_of[number] and labels(number) - taught:
            chosen_of[number] = 0
            taught |= labels(number)


def _need(strata: Counter[str], filled: Sequence[Counter[str]], wanted: Sequence[float], part: int) -> float:
    """How much the part falls short of its share of these strata, the family included, in rows."""
    if not wanted[part]:
        return float("-inf")
    short = 0.0
    for stratum, number in strata.items():
        total = sum(counts[stratum] for counts in filled) + number
        short += number * (wanted[part] * total - filled[part][stratum])
    return short


def _strata(row: DataRow, numbers: frozenset[str]) -> list[str]:
    """What a row counts for: everything in all, each of its labels, and each in its language."""
    found = ["*"]
    for name, value in _values(row, numbers):
        found.append(f"{name}={value}")
        if row.language:
            found.append(f"{name}={value}/{row.language}")
    return found


def _values(row: DataRow, numbers: frozenset[str]) -> list[tuple[str, str]]:
    """Question and label of every answer of a row; a level counts as a label, and ``numbers`` are left out."""
    return [
        (name, value)
        for name, answer in row.answers.items()
        if name not in numbers
        for value in (labels_of(answer) if kind_of(answer) in ("choice", "labels", "soft", "tags") else (str(answer),))
    ]


def _draw(text: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}/{text}".encode()).hexdigest()
