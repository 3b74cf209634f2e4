"""Fit one temperature a question type on validation rows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from julia1.bundle import Calibration
from julia1.questions import Choice
from julia1.runtime.calibration import probabilities, question_kind
from julia1.runtime.decider import Decider
from julia1.train.mix import Mix
from julia1.train.recipe import Recipe
from julia1.train.views import Example

DRAWN_EXAMPLES = 1500
FULL_LIST_ROWS = 100
"""Rows of each choice set that are asked with all of its labels at once."""


@dataclass(frozen=True)
class Scored:
    """One question's logits and wanted probabilities, both float64 ``[options]``."""

    kind: str
    logits: npt.NDArray[np.float64]
    target: npt.NDArray[np.float64]


def calibration_examples(recipe: Recipe, data: Path) -> list[Example]:
    """Questions about the recipe's calibration sets: drawn as in training, and with whole label lists."""
    mix = Mix(replace(recipe, sources=recipe.calibration), data)
    examples = mix.draw(0, DRAWN_EXAMPLES)
    rng = random.Random(recipe.seed)
    for drawing in mix.drawings:
        rows = [row for row in drawing.labelled.rows if "label" in row]
        if drawing.source.view != "choice" or len(drawing.labels) < 10 or not rows:
            continue
        for number, row in enumerate(rng.sample(rows, min(FULL_LIST_ROWS, len(rows)))):
            described = drawing.labelled.labels if number % 2 else dict.fromkeys(drawing.labels)
            question = Choice(drawing.labelled.meta["question"], described)
            examples.append(Example(row["text"], [(question, [float(x == row["label"]) for x in drawing.labels])]))
    return examples


def score_examples(decider: Decider, examples: Sequence[Example]) -> list[Scored]:
    """Logits of every question; the decider must not be calibrated yet."""
    requests = [(e.state, {str(i): question for i, (question, _) in enumerate(e.questions)}) for e in examples]
    scored = []
    for example, logits in zip(examples, decider.logits(requests), strict=True):
        for (question, target), values in zip(example.questions, logits, strict=True):
            scored.append(Scored(question_kind(question), values.astype(np.float64), np.asarray(target)))
    return scored


def fit_calibration(scored: Sequence[Scored]) -> dict[str, Calibration]:
    """The temperatures with the least cross-entropy, by question type, found on a grid and refined once.

    Only choices get a term that grows with the number of options: the other types have few.
    """
    fitted = {}
    for kind in sorted({item.kind for item in scored}):
        items = [item for item in scored if item.kind == kind]
        slopes = np.linspace(-0.3, 0.6, 19) if kind == "choice" else np.zeros(1)
        best = _search(items, np.geomspace(0.3, 5.0, 25), slopes)
        fine = best.temperature * np.linspace(0.88, 1.12, 13)
        around = best.per_log_options + np.linspace(-0.04, 0.04, 9) if kind == "choice" else np.zeros(1)
        best = _search(items, fine, around)
        fitted[kind] = Calibration(round(float(best.temperature), 4), round(float(best.per_log_options), 4))
    return fitted


def cross_entropy(items: Sequence[Scored], calibration: Calibration) -> float:
    """Mean cross-entropy in nats."""
    total = 0.0
    for item in items:
        found = np.maximum(probabilities(item.logits, calibration), 1e-12)
        total -= float(item.target @ np.log(found))
    return total / max(1, len(items))


def expected_calibration_error(confidence: npt.ArrayLike, right: npt.ArrayLike, bins: int = 15) -> float:
    """ECE over equal-width bins of the top probability: mean |accuracy - confidence|, weighted by bin size."""
    sure, hit = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    index = np.minimum((sure * bins).astype(int), bins - 1)
    error = 0.0
    for b in range(bins):
        inside = index == b
        if inside.any():
            error += inside.mean() * abs(sure[inside].mean() - hit[inside].mean())
    return float(error)


def _search(
    items: Sequence[Scored], temperatures: npt.NDArray[np.float64], slopes: npt.NDArray[np.float64]
) -> Calibration:
    candidates = [Calibration(float(t), float(s)) for t in temperatures for s in slopes if t + s * math.log(2) > 0.05]
    return min(candidates, key=lambda c: cross_entropy(items, c))
