"""Sets to train on, as every contender of a benchmark gets them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from _common import SEED, sample
from julia1.bundle.heads import HeadSpec
from julia1.text import TextTokenizer
from julia1.train.data.pairs import Match
from julia1.train.data.rows import Answer, DataRow, find_heads
from julia1.train.data.spans import LabelledSpan, Spans
from julia1.train.data.splitting import split_rows
from julia1.train.items import Item, head_specs, make_items
from julia1.train.metrics import MAIN, figures_of
from julia1.train.pairing import reads_pairs
from julia1.train.recipe import FineTuning
from julia1.train.sources import read_set
from julia1.train.start import Start

Outputs = list[npt.NDArray[np.float32]]
"""Of each row, as ``julia1.train.items.Outputs`` has them of one head."""


@dataclass(frozen=True)
class Task:
    """A set to train on.

    Attributes:
        set: folder name.
        answer: the field that is learned.
        per_label: take so many training rows of each label; all when ``None``.
        rows: train on so many, drawn at random; all when ``None``.
        pairs: instead of the label of a text, learn whether two texts have the same one: from so many rows of a split,
            each beside another of its label and beside one of another label, both drawn at random.
        settings: what differs from the defaults, such as how many tokens are read.
        by_language: also print a figure for each language.
    """

    set: str
    answer: str = ""
    per_label: int | None = None
    rows: int | None = None
    pairs: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    by_language: bool = False


@dataclass
class Problem:
    """Rows of one task, ready for every contender."""

    spec: HeadSpec
    start: Start
    tokenizer: TextTokenizer
    settings: FineTuning
    pair: bool
    train: list[DataRow]
    val: list[DataRow]
    test: list[DataRow]

    def items(self, rows: Sequence[DataRow], settings: FineTuning | None = None) -> list[Item]:
        """The rows as the model takes them."""
        return make_items(rows, [self.spec], self.tokenizer, settings or self.settings, None, self.pair)

    def figures(self, outputs: Outputs, rows: Sequence[DataRow]) -> dict[str, float]:
        """The head's figures."""
        return figures_of([self.spec], {self.spec.name: outputs}, self.items(rows))[self.spec.name]

    def figure(self, outputs: Outputs, rows: Sequence[DataRow]) -> float:
        """The figure that the head is chosen by."""
        return self.figures(outputs, rows)[MAIN[self.spec.kind]]


def load_problem(task: Task, data: Path, start: Start, rows: int | None = None, seed: int = SEED) -> Problem:
    """Read a set; where it has no train split its val split is trained on, and where it has no val split a tenth of the
    training rows is put aside."""
    folder = data / task.set
    parts = {
        split: rows_of(folder, split, task.answer)
        for split in ("train", "val", "test")
        if (folder / f"{split}.jsonl").is_file()
    }
    if "train" not in parts:
        parts["train"] = parts.pop("val")
    train = parts["train"]
    if "val" not in parts:
        cut = split_rows(train, (9, 1, 0), SEED)
        parts["val"], train = [train[i] for i in cut.val], [train[i] for i in cut.train]
    if task.per_label is not None:
        train = few(train, task.per_label, seed)
    if task.pairs:
        train, parts["val"], parts["test"] = (
            pairs_of(part, task.pairs, seed) for part in (train, parts["val"], parts["test"])
        )
    train = sample(train, rows or task.rows)
    settings = replace(FineTuning(), seed=seed % 1000, **{"max_tokens": 64, **task.settings})
    pair = reads_pairs(train, settings)
    (spec,) = head_specs(find_heads([*train, *parts["val"], *parts["test"]]), train)
    return Problem(spec, start, start.tokenizer, settings, pair, train, parts["val"], parts["test"])


def rows_of(folder: Path, split: str, answer: str = "") -> list[DataRow]:
    """The rows of a normalised set as labelled rows."""
    rows = []
    for number, row in enumerate(read_set(folder, [split]).rows, start=1):
        place = f"{folder.name}/{split}:{number}"
        second = row.get("text_b", "")
        rows.append(
            DataRow(
                place, row["text"], {"answer": answer_of(row, answer)}, {}, row.get("lang", ""), "", False, row, second
            )
        )
    return rows


def answer_of(row: dict[str, Any], answer: str = "") -> Answer:
    """The answer of a normalised row, or the one that is named."""
    if "text_b" in row:
        return Match(row["label"] == "same meaning")
    for name in [answer] if answer else ["spans", "label", "labels", "score"]:
        if name in row:
            value = row[name]
            if name == "spans":
                return Spans(tuple(LabelledSpan(span["start"], span["end"], span["label"]) for span in value))
            return value if name == "label" else tuple(value) if name == "labels" else float(value)
    raise KeyError(f"{answer or 'an answer'} in {row}")


def few(rows: Sequence[DataRow], number: int, seed: int = SEED) -> list[DataRow]:
    """So many rows of each label, drawn without replacement."""
    by_label: dict[str, list[DataRow]] = defaultdict(list)
    for row in rows:
        by_label[str(row.answers["answer"])].append(row)
    return [row for own in by_label.values() for row in sample(own, number, seed)]


def pairs_of(rows: Sequence[DataRow], number: int, seed: int) -> list[DataRow]:
    """Two pairs for each of so many rows: one with a text of the same label, one with a text of another."""
    rng = random.Random(seed)
    pairs = []
    for row in sample(rows, number, seed):
        own = row.answers["answer"]
        for same in (True, False):
            others = [other for other in rows if (other.answers["answer"] == own) == same and other is not row]
            if others:
                other = rng.choice(others)
                place = f"{row.place} with {other.place}"
                pairs.append(replace(row, place=place, second=other.text, answers={"answer": Match(same)}))
    return pairs
