"""Labelled rows by what they are for: to train on, to stop and calibrate by, to measure once at the end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from julia1.errors import InputError
from julia1.train.data.checks import leaks, require_trainable, unknown_labels
from julia1.train.data.rows import DataRow, DataSet, kind_of
from julia1.train.data.splitting import Split, split_rows


@dataclass(frozen=True)
class Parts:
    """Rows by what they are for.

    Attributes:
        train: to train on.
        validation: to stop and calibrate by.
        test: to measure once at the end; may be empty.
        pseudo: training rows that a model labelled.
        left_out: training rows that stand in the other parts too, or were made from rows there.
    """

    train: list[DataRow]
    validation: list[DataRow]
    test: list[DataRow]
    left_out: int = 0
    pseudo: int = 0


def make_parts(data: DataSet, validation: DataSet | None, test: DataSet | None, seed: int) -> Parts:
    """Rows by part; what is not given is cut from the training rows, 8:1:1 in all.

    Raises:
        InputError: nothing can be learned, or a part has a label that training does not know.
    """
    require_trainable(data)
    for name, other in (("validation", validation), ("test", test)):
        problems = unknown_labels(data, other, name) if other is not None else []
        if problems:
            raise InputError(problems[0])
    given = {
        name: [row for row in other.rows if not row.augmented]
        for name, other in (("validation", validation), ("test", test))
        if other is not None
    }
    evaluated = [row for rows in given.values() for row in rows]
    # a training row that is evaluated on, exactly, nearly or by its group, would be an answer learned by heart
    known = {place for place, _ in leaks(evaluated, data.rows)} if evaluated else set()
    rows = [row for row in data.rows if row.place not in known]
    if not rows:
        raise InputError("every training row stands in the validation or test rows too")
    cut = Split(list(range(len(rows))), [], [], [])
    if len(given) < 2:
        cut = split_rows(rows, (8.0, 0.0 if validation else 1.0, 0.0 if test else 1.0), seed)
    return Parts(
        [rows[i] for i in cut.train],
        given["validation"] if validation else [rows[i] for i in cut.val],
        given["test"] if test else [rows[i] for i in cut.test],
        len(data.rows) - len(rows) + len(cut.left_out),
    )


def data_hashes(parts: Parts) -> dict[str, str]:
    """SHA-256 of what is learned and measured from, by part, and of ``all`` three.

    Texts, answers and features of the rows count, in any order; where a row stands, its group and its language do not.
    """
    found = {"train": _hash(parts.train), "validation": _hash(parts.validation), "test": _hash(parts.test)}
    return {**found, "all": hashlib.sha256("".join(found.values()).encode()).hexdigest()}


def _hash(rows: Sequence[DataRow]) -> str:
    digest = hashlib.sha256()
    for own in sorted(hashlib.sha256(_canonical(row).encode()).digest() for row in rows):
        digest.update(own)
    return digest.hexdigest()


def _canonical(row: DataRow) -> str:
    answers = {
        name: [kind_of(answer), sorted(answer) if isinstance(answer, tuple) else answer]
        for name, answer in row.answers.items()
    }
    return json.dumps([row.text, row.second, row.candidates, answers, row.features], sort_keys=True, default=asdict)
