"""Rows by class and language, made more even: frequent ones are left out, rare ones stand several times."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from julia1.errors import InputError
from julia1.train.data.duplicates import content_of
from julia1.train.data.files import Columns
from julia1.train.data.rows import DataRow, DataSet, Head, is_number, labels_of

By = Literal["label", "language", "both"]
MOST_REPEATS = 10
"""A row stands so often at most: more of the same teaches it by heart and nothing else."""
NO_LABEL = "(none)"


@dataclass(frozen=True)
class Target:
    """How many rows each class should have: ``most``, ``least`` or both; or ``power`` alone.

    Attributes:
        most: rows of a class over it are left out.
        least: rows of a class under it are repeated.
        power: each class has a share of all rows that goes with its number to this power, as languages are drawn in
            the training of multilingual encoders (Conneau et al. 2020): 1 changes nothing, 0 makes all alike.
    """

    most: int | None = None
    least: int | None = None
    power: float | None = None

    def sizes(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Rows wanted of each class.

        Raises:
            InputError: nothing is wanted, or what contradicts itself.
        """
        if self.power is None:
            if self.most is None and self.least is None:
                raise InputError("nothing to balance by: give --most, --least or --power")
            if self.most is not None and self.least is not None and self.most < self.least:
                raise InputError(f"--most {self.most} is less than --least {self.least}: no class can be both")
            return {name: max(min(n, self.most or n), self.least or 0) for name, n in counts.items()}
        if self.most is not None or self.least is not None:
            raise InputError("--power stands alone, without --most and --least")
        weights = {name: number**self.power for name, number in counts.items()}
        each = sum(counts.values()) / sum(weights.values())
        return {name: max(1, round(each * weight)) for name, weight in weights.items()}


@dataclass(frozen=True)
class Balanced:
    """Rows as they should be written, and how many each class had and has.

    Attributes:
        rows: plain data, in the order in which the rows came, each followed by its repetitions.
        before, after: rows by class, most frequent first.
        left_out, repeated: how many.
        short: classes that would need more than ``MOST_REPEATS`` of a row.
    """

    rows: list[dict[str, Any]]
    before: dict[str, int]
    after: dict[str, int]
    left_out: int
    repeated: int
    short: list[str]


def balance(
    data: DataSet,
    target: Target,
    *,
    by: By = "label",
    question: str | None = None,
    seed: int = 1,
    columns: Columns | None = None,
) -> Balanced:
    """Balance rows.

    Which rows are left out depends on what they say and on the seed, not on their order; augmented ones go first. A
    repetition is marked as augmented and shares a group with its row, so that splitting and training never evaluate on
    either while the other is trained on.

    Args:
        data: the rows.
        target: rows wanted of a class.
        by: what a class is: a label, a language, or a label in a language.
        question: whose labels; may be left out where there is one question. A row with several labels counts for its
            rarest.
        seed: another one leaves other rows out.
        columns: names of the fields that mark a row.

    Raises:
        InputError: a question that is not there, not named, or has no classes; or a target that makes no sense.
    """
    columns = columns or Columns()
    classes = _classes(data, by, question)
    counts = Counter(classes)
    wanted = target.sizes(counts)
    members: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(classes):
        members[name].append(number)
    times = [0] * len(classes)
    short = []
    for name, own in members.items():
        order = sorted(own, key=lambda i: (data.rows[i].augmented, _draw(data.rows[i], i, seed)))
        size = min(wanted[name], MOST_REPEATS * len(own))
        if size < wanted[name]:
            short.append(name)
        for place, number in enumerate(order):
            times[number] = size // len(own) + (place < size % len(own))
    rows = [one for row, number in zip(data.rows, times, strict=True) for one in _repeated(row, number, columns)]
    after = Counter({name: sum(times[i] for i in own) for name, own in members.items()})
    return Balanced(
        rows,
        dict(counts.most_common()),
        {name: after[name] for name, _ in counts.most_common()},
        sum(number == 0 for number in times),
        sum(max(0, number - 1) for number in times),
        short,
    )


def _classes(data: DataSet, by: By, question: str | None) -> list[str]:
    """The class of each row."""
    languages = [row.language or NO_LABEL for row in data.rows]
    if by == "language":
        return languages
    labels = _labels(data, _head(data, question))
    return labels if by == "label" else [f"{one} / {other}" for one, other in zip(labels, languages, strict=True)]


def _head(data: DataSet, question: str | None) -> Head:
    if question is None and len(data.heads) > 1:
        raise InputError(f"the rows answer several questions, {', '.join(data.heads)}: name one with --question")
    head = next(iter(data.heads.values())) if question is None else data.heads.get(question)
    if head is None:
        raise InputError(f"no row answers {question!r}; the questions are: {', '.join(data.heads)}")
    if head.kind == "rank" or is_number(head.name, data.rows):
        raise InputError(f"{head.name!r} has no classes to balance: name another with --question, or --by language")
    return head


def _labels(data: DataSet, head: Head) -> list[str]:
    """The label of each row: of several its rarest, of a soft one the likeliest."""
    of_row = [_names(row, head) for row in data.rows]
    counts = Counter(name for found in of_row for name in found)
    return [min(found, key=lambda name: (counts[name], name)) for found in of_row]


def _names(row: DataRow, head: Head) -> tuple[str, ...]:
    answer = row.answers.get(head.name)
    if answer is None:
        return (NO_LABEL,)
    if isinstance(answer, Mapping):
        return (max(answer, key=lambda label: (answer[label], label)),)
    if isinstance(answer, bool):
        return ("yes" if answer else "no",)
    if isinstance(answer, (int, float)):
        return (f"{answer:.15g}",)
    if head.kind == "match":
        return (str(answer),)
    return labels_of(answer) or (NO_LABEL,)


def _repeated(row: DataRow, times: int, columns: Columns) -> Sequence[dict[str, Any]]:
    """The row as it was read, and its repetitions."""
    data = dict(row.data)
    if times < 2:
        return [data] * times
    if not row.group:
        data[columns.group] = f"repeated-{_digest(content_of(row))[:16]}"
    return [data, *({**data, columns.augmented: True} for _ in range(times - 1))]


def _draw(row: DataRow, number: int, seed: int) -> tuple[str, int]:
    return _digest(f"{seed}/{content_of(row)}"), number


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
