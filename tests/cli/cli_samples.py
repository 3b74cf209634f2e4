"""What the tests of the command share."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from julia1.answers import Answer, Reading, build_answer
from julia1.content import Content, render
from julia1.errors import InputError, TooLongError
from julia1.questions import Question

WORDS_READ = 50
ASK = ("--yesno", "Is it urgent?")


@dataclass
class Ran:
    """What a command left: exit code, standard output and standard error."""

    code: int
    out: str
    error: str

    @property
    def data(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)

    def failed(self, code: int = 2) -> str:
        """The one error line of a command that failed and printed nothing else."""
        assert self.code == code, (self.code, self.error)
        lines = self.error.splitlines()
        assert len(lines) == 1 and lines[0].startswith("julia1: error: "), self.error
        assert self.out == ""
        return lines[0]


@dataclass
class FakeDecider:
    """Answers by a hash of the text: the same for the same text, whatever it is batched with."""

    loaded: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Content] = field(default_factory=list)
    interrupt_at: Content = "never"
    manifest: Any = field(default_factory=lambda: SimpleNamespace(name="fake", version="1.0"))
    plan: Any = field(
        default_factory=lambda: SimpleNamespace(variant=SimpleNamespace(name="fp32"), engine="onnxruntime")
    )

    def load(self, bundle: object = None, **settings: Any) -> FakeDecider:
        self.loaded.append({"bundle": bundle, **settings})
        return self

    def decide(self, state: Content, questions: Mapping[str, Question], **settings: Any) -> dict[str, Answer]:
        return self.decide_many([state], questions, **settings)[0]

    def decide_many(
        self,
        states: Sequence[Content],
        questions: Mapping[str, Question],
        strict: bool = False,
        abstain_below: float | None = None,
    ) -> list[dict[str, Answer]]:
        if any(len(str(question.instructions)) > 200 for question in questions.values()):
            raise TooLongError("the instructions have too many tokens")
        self.seen += states
        if self.interrupt_at in states:
            raise KeyboardInterrupt
        return [self._one(state, questions, strict, abstain_below) for state in states]

    def _one(
        self, state: Content, questions: Mapping[str, Question], strict: bool, abstain_below: float | None
    ) -> dict[str, Answer]:
        text = render(state)
        words = len(text.split())
        if not words:
            raise InputError("the state is empty: nothing to decide on")
        if strict and words > WORDS_READ:
            raise TooLongError(f"the state has {words} tokens and the model reads {WORDS_READ}")
        reading = Reading(words, min(words, WORDS_READ))
        answers = {}
        for name, question in questions.items():
            seed = zlib.crc32(f"{text}|{question.instructions}".encode())
            shares = np.random.default_rng(seed).dirichlet(np.ones(len(question.option_texts())))
            answers[name] = build_answer(question, shares, reading, abstain_below)
        return answers


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    """A JSON-lines file."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
