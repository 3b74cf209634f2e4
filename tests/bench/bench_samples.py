"""Deciders that are no models, one steady and some not; labelled rows, and questions about them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from julia1 import Choice, Question, Score, YesNo
from julia1.bundle import EncodingSettings
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.errors import InputError
from julia1.train.data.files import Columns
from julia1.train.data.rows import DataRow, read_rows

QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", ["shipping", "the  bank", "sport"]),
    "late": YesNo("Is it late?"),
    "mood": Score("How upset?", ["calm", "sad", "very angry"]),
}
ANSWERS: list[dict[str, Any]] = [
    {"team": "shipping", "late": True, "mood": 0},
    {"team": "the bank", "mood": 2},
    {"team": "sport", "late": False, "mood": 1.4},
]


def read(folder: Path, rows: Sequence[Mapping[str, Any]], **columns: Any) -> list[DataRow]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_rows([path], Columns(**columns)).rows


def open_rows(folder: Path, texts: Sequence[str]) -> list[DataRow]:
    return read(folder, [{"text": text, "answers": ANSWERS[i % 3]} for i, text in enumerate(texts)])


def manifest(
    kind: str = "open", heads: tuple[HeadSpec, ...] = (), features: FeatureSpec | None = None, **encoding: Any
) -> Any:
    """As much of a manifest as a workload reads."""
    settings = (
        EncodingSettings("options", 64, 32, 32, 200)
        if kind == "open"
        else EncodingSettings(**{"type": "fixed", "state_tokens": 64, **encoding})
    )
    compares = settings.type == "pair" or any(head.size for head in heads)
    return SimpleNamespace(
        kind=kind, heads=heads, features=features or FeatureSpec(), encoding=settings, compares=lambda: compares
    )


class Toy:
    """Answers nothing in a millisecond or so, and notes what it was asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, Any]] = []
        self.began = time.monotonic()

    def work(self) -> None:
        time.sleep(0.001)

    def decide(self, state: Any, questions: Any = None, **more: Any) -> None:
        self.seen.append(("decide", [state], (questions, more)))
        self.work()

    def decide_many(self, states: Any, questions: Any = None, **more: Any) -> None:
        self.seen.append(("decide_many", list(states), (questions, more)))
        self.work()

    def rank(self, query: Any, candidates: Any) -> None:
        self.seen.append(("rank", [query, *candidates], (None, {})))
        self.work()


class Leaking(Toy):
    """Keeps a little of every second."""

    def __init__(self, bytes_a_second: float) -> None:
        super().__init__()
        self.rate, self.kept = bytes_a_second, []

    def work(self) -> None:
        super().work()
        self.seen.clear()
        while sum(map(len, self.kept)) * 8 < self.rate * (time.monotonic() - self.began):
            self.kept.append(np.ones(8192))


class Settling(Toy):
    """Takes all it will ever need, soon."""

    def work(self) -> None:
        super().work()
        self.seen.clear()
        self.kept = np.ones(min(4 << 20, 1 << int(12 + 20 * (time.monotonic() - self.began))))


class Slowing(Toy):
    """Does more arithmetic the longer it runs."""

    def work(self) -> None:
        self.seen.clear()
        values = np.ones(20_000)
        for _ in range(5 + int(20 * (time.monotonic() - self.began))):
            values = np.sqrt(values)


class Failing(Toy):
    """Cannot answer long texts."""

    def decide_many(self, states: Any, questions: Any = None, **more: Any) -> None:
        raise InputError("this one cannot be answered")
