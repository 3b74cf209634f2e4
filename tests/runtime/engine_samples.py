"""What the tests of engines share: questions, and ways to open a bundle on an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from julia1 import Choice, Decider, Score, YesNo, load
from julia1.bundle import Bundle
from julia1.questions import Question
from julia1.runtime.engines import Engine, engine_file, open_engine

FP32 = 1e-4
"""How far a logit of one engine may be from that of another."""
NAMES = ["food", "music and song", "hotel booking in the city", "refund of a card", "我想你", "x"]
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", NAMES),
    "late": YesNo("Is it late?", true="the order is not here"),
    "mood": Score("How upset?", ["calm", "angry", "furious"]),
}


def loaded(bundle: Path, engine: str) -> Decider:
    return load(bundle, variant="fp32", engine=engine, threads=1, warm_up=False)


def opened(bundle: Bundle, engine: str, **settings: str) -> Engine:
    """The engine itself, on the fp32 variant."""
    path = bundle.path(engine_file(engine, bundle.variant("fp32")))
    return open_engine(engine, path, 1, settings)


def furthest(first: list[list[np.ndarray]], second: list[list[np.ndarray]]) -> float:
    return max(
        float(np.abs(a - b).max()) for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)
    )


def requests(texts: list[str]) -> list[tuple[str, dict[str, Question]]]:
    """Texts with many questions, and with few."""
    few: dict[str, Question] = {"q": Choice(None, ["sport", "food"])}
    return [(text, QUESTIONS if i % 3 else few) for i, text in enumerate(texts)]
