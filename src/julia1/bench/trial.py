"""One way to run a bundle, measured in a process of its own: its memory is its own, if it dies nothing else does."""

from __future__ import annotations

import math
import multiprocessing
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from julia1.answers import Answer, ValueAnswer
from julia1.bench.process import peak_memory
from julia1.bench.texts import made_up_text
from julia1.bundle import Manifest
from julia1.errors import Julia1Error
from julia1.questions import Choice, Question, YesNo
from julia1.runtime.decider import Decider, load
from julia1.runtime.fixed import Given
from julia1.runtime.golden.requests import said
from julia1.runtime.machine import death

SINGLE_TEXTS = 24
"""Of a workload, that are asked one by one in a round."""
TYPICAL_QUESTIONS: Mapping[str, Question] = {
    "team": Choice("Which team handles this?", ["billing", "shipping", "accounts", "other"]),
    "urgent": YesNo("Does it need an answer today?"),
}
_TYPICAL_TEXTS, _SHORTEST, _LONGEST = 64, 4, 120
"""How many, and their words, which lie evenly on the scale of ratios."""
_START_SECONDS, _ROUND_SECONDS = 300.0, 600.0


@dataclass(frozen=True)
class Load:
    """What is asked in a trial.

    Attributes:
        given: texts, with what goes with them.
        questions: of an open model; ``None`` for a model with fixed heads.
    """

    given: Sequence[Given]
    questions: Mapping[str, Question] | None


def typical_load(manifest: Manifest) -> Load:
    """Made-up texts from a chat line to a long mail, with what else the model takes, and what a service might ask."""
    rng = random.Random(1)
    given = []
    for number in range(_TYPICAL_TEXTS):
        share = ((number * 7) % _TYPICAL_TEXTS) / (_TYPICAL_TEXTS - 1)
        words = round(_SHORTEST * (_LONGEST / _SHORTEST) ** share)
        second = made_up_text(rng, max(1, words // 2)) if manifest.compares() else None
        given.append(Given(made_up_text(rng, words), second, dict.fromkeys(manifest.features.numbers) or None))
    return Load(given, None if manifest.kind == "fixed" else TYPICAL_QUESTIONS)


@dataclass(frozen=True)
class Way:
    """What is loaded: a variant on an engine with so many threads."""

    variant: str
    engine: str
    threads: int


class TrialFailed(Exception):
    """A trial could not be loaded, gave an error or died; the message says which."""


class Trial:
    """A process that has loaded a bundle in one way and measures when asked.

    Attributes:
        way: what it loaded.
        load_seconds: how long that took, without the start of Python.

    Raises:
        TrialFailed: it could not be loaded.
    """

    def __init__(self, bundle: Path, way: Way, work: Load) -> None:
        context = multiprocessing.get_context("spawn")
        self.way = way
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, bundle, way, work), daemon=True)
        self._process.start()
        theirs.close()
        self.load_seconds: float = self._answer(_START_SECONDS)

    def singles(self, step: int) -> list[float]:
        """Seconds of each of the first texts, asked one by one, rows padded to a multiple of ``step`` tokens."""
        found: list[float] = self._ask("singles", step)
        return found

    def together(self, batch_tokens: int, step: int) -> float:
        """Texts a second when all are asked at once."""
        found: float = self._ask("together", batch_tokens, step)
        return found

    def answers(self) -> list[dict[str, Any]]:
        """The answer to each text, without its figures: what was chosen, by question."""
        found: list[dict[str, Any]] = self._ask("answers")
        return found

    def memory(self) -> int:
        """Peak resident memory in bytes, 0 where the system does not tell."""
        found: int = self._ask("memory")
        return found

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, *what: Any) -> Any:
        try:
            self._connection.send(what)
        except OSError:
            raise TrialFailed(self._death()) from None
        return self._answer(_ROUND_SECONDS)

    def _answer(self, seconds: float) -> Any:
        try:
            if not self._connection.poll(seconds):
                self.close()
                raise TrialFailed(f"did not answer within {seconds:.0f} s")
            good, value = self._connection.recv()
        except (EOFError, OSError):
            raise TrialFailed(self._death()) from None
        if not good:
            self.close()
            raise TrialFailed(value)
        return value

    def _death(self) -> str:
        self._process.join(timeout=10)
        code = self._process.exitcode
        return death(-code) if code is not None and code < 0 else f"ended with {code}"


def _serve(connection: Connection, bundle: Path, way: Way, work: Load) -> None:
    try:
        began = time.perf_counter()
        decider = load(bundle, variant=way.variant, engine=way.engine, threads=way.threads, tuned=False)
        connection.send((True, time.perf_counter() - began))
        while True:
            name, *arguments = connection.recv()
            connection.send((True, _WHAT[name](decider, work, *arguments)))
    except EOFError:  # the parent has closed
        return
    except KeyboardInterrupt:
        return
    except (Julia1Error, MemoryError, ValueError, RuntimeError) as error:
        connection.send((False, str(error) or type(error).__name__))


def _singles(decider: Decider, work: Load, step: int) -> list[float]:
    stepped = decider.with_batches(decider.plan.batch_tokens, step)
    found = []
    for one in work.given[:SINGLE_TEXTS]:
        began = time.perf_counter()
        stepped.decide(one.state, work.questions, second=one.second, features=one.features)
        found.append(time.perf_counter() - began)
    return found


def _together(decider: Decider, work: Load, batch_tokens: int, step: int) -> float:
    stepped = decider.with_batches(batch_tokens, step)
    began = time.perf_counter()
    _all(stepped, work)
    return len(work.given) / (time.perf_counter() - began)


def _answers(decider: Decider, work: Load) -> list[dict[str, Any]]:
    return [{name: decided(answer) for name, answer in answers.items()} for answers in _all(decider, work)]


def decided(answer: Answer) -> Any:
    """What an answer decides, without its probabilities; a number in units of its deviation."""
    return answer.value / (answer.deviation or 1.0) if isinstance(answer, ValueAnswer) else said(answer).answer


def _all(decider: Decider, work: Load) -> Sequence[Mapping[str, Any]]:
    states, seconds, features = zip(*work.given, strict=True)
    if work.questions is not None:
        return decider.decide_many(states, work.questions)
    return decider.decide_many(states, seconds=seconds, features=features)


def _memory(decider: Decider, work: Load) -> int:
    found = peak_memory()
    return 0 if math.isnan(found) else int(found)


_WHAT: dict[str, Any] = {"singles": _singles, "together": _together, "answers": _answers, "memory": _memory}
