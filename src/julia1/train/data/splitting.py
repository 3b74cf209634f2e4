"""Cut rows into train, validation and test: families stay together, labels and languages stay balanced."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from julia1.errors import InputError
from julia1.train.data.duplicates import NEAR, families
from julia1.train.data.rows import DataRow, kind_of, labels_of

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
    Within that, each part gets its share of every label in every language. Augmented rows are trained on only: one
    whose family is evaluated on is left out. The same rows, shares and seed give the same split in any order of rows.

    Raises:
        InputError: shares that are negative or all zero, or too few rows to fill every part that has a share.
    """
    if len(shares) != len(SPLITS) or min(shares) < 0 or not sum(shares):
        raise InputError(f"shares are {list(shares)}: give three numbers for train, val and test, such as 8:1:1")
    members = families(rows, near).members()
    originals = [[i for i in family if not rows[i].augmented] for family in members]
    parts: list[list[int]] = [[] for _ in SPLITS]
    wanted = [share / sum(shares) for share in shares]
    filled: list[Counter[str]] = [Counter() for _ in SPLITS]
    left_out: list[int] = []
    order = sorted(
        range(len(members)), key=lambda n: (-len(originals[n]), _draw(rows[members[n][0]].text, seed), members[n])
    )
    for number in order:
        strata = Counter(stratum for i in originals[number] for stratum in _strata(rows[i]))
        if not strata:
            chosen = 0  # made up from nothing that is here: for training only
        else:
            chosen = max(
                range(len(SPLITS)),
                key=lambda p: (_need(strata, filled, wanted, p), wanted[p], _draw(str(number), seed)),
            )
        filled[chosen].update(strata)
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


def _need(strata: Counter[str], filled: Sequence[Counter[str]], wanted: Sequence[float], part: int) -> float:
    """How much the part falls short of its share of these strata, the family included, in rows."""
    if not wanted[part]:
        return float("-inf")
    short = 0.0
    for stratum, number in strata.items():
        total = sum(counts[stratum] for counts in filled) + number
        short += number * (wanted[part] * total - filled[part][stratum])
    return short


def _strata(row: DataRow) -> list[str]:
    """What a row counts for: everything in all, and each of its labels in its language."""
    found = ["*"]
    for name, answer in row.answers.items():
        values = labels_of(answer) if kind_of(answer) in ("choice", "labels", "soft") else (str(answer),)
        found += [f"{name}={value}/{row.language}" for value in values]
    return found


def _draw(text: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}/{text}".encode()).hexdigest()
