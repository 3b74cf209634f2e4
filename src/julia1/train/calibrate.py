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
from julia1.runtime.calibration import question_kind
from julia1.runtime.decider import Decider
from julia1.runtime.fixed import log_softmax
from julia1.train.mix import Mix
from julia1.train.recipe import Recipe
from julia1.train.sources import text_key
from julia1.train.views import Drawing, Example

DRAWN_EXAMPLES = 1500
FULL_LIST_ROWS = 100
"""Rows of each choice set that are asked with all of its labels at once."""
UNSEEN_LIST_ROWS = 300
"""The same of a set whose labels were never trained, when temperatures are fitted."""


_NONE = np.zeros(1)


@dataclass(frozen=True)
class Scored:
    """One question's logits and wanted probabilities, both float64 ``[options]``."""

    kind: str
    logits: npt.NDArray[np.float64]
    target: npt.NDArray[np.float64]


def validation_examples(recipe: Recipe, data: Path) -> list[Example]:
    """Questions about the recipe's calibration sets: drawn as in training, and with whole label lists."""
    mix = Mix(replace(recipe, sources=recipe.calibration), data)
    return mix.draw(0, DRAWN_EXAMPLES) + _full_lists(mix.drawings, FULL_LIST_ROWS, recipe.seed)


def calibration_examples(recipe: Recipe, data: Path) -> list[Example]:
    """Like ``validation_examples``, but for what a user will ask: texts that training never saw, and whole lists of
    labels that it never saw. What was trained makes a model look surer than it may be, the more so with many options.
    """
    trained = Mix(recipe, data)
    texts = {text_key(row["text"]) for drawing in trained.drawings for row in drawing.labelled.rows}
    labels = {drawing.labelled.name for drawing in trained.drawings if drawing.source.view == "choice"}
    mix = Mix(replace(recipe, sources=recipe.calibration), data)
    for drawing in mix.drawings:
        unseen = [row for row in drawing.labelled.rows if text_key(row["text"]) not in texts]
        # a set may be known altogether: its other views are calibrated all the same
        drawing.labelled = replace(drawing.labelled, rows=unseen or drawing.labelled.rows)
    unknown = [drawing for drawing in mix.drawings if drawing.labelled.name not in labels]
    return mix.draw(0, DRAWN_EXAMPLES) + _full_lists(unknown, UNSEEN_LIST_ROWS, recipe.seed)


def _full_lists(drawings: Sequence[Drawing], number_of_rows: int, seed: int) -> list[Example]:
    """Choices among all labels of a set, described and not."""
    rng = random.Random(seed)
    examples = []
    for drawing in drawings:
        rows = [row for row in drawing.labelled.rows if "label" in row]
        if drawing.source.view != "choice" or len(drawing.labels) < 10 or not rows:
            continue
        for number, row in enumerate(rng.sample(rows, min(number_of_rows, len(rows)))):
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

    Only choices get a term that grows with the number of options, and a floor under it: the other types have few. The
    floor is there because few options come with hard questions (sentiment) and many with easy ones (intents); a line
    through both falls too far for lists that are longer still.
    """
    fitted = {}
    for kind in sorted({item.kind for item in scored}):
        items = _Padded.of([item for item in scored if item.kind == kind])
        slopes, floors = (np.linspace(-0.3, 0.6, 19), np.linspace(0.4, 1.2, 17)) if kind == "choice" else (_NONE, _NONE)
        best = _search(items, np.geomspace(0.3, 5.0, 25), slopes, floors)
        fine = best.temperature * np.linspace(0.88, 1.12, 13)
        if kind == "choice":
            slopes = best.per_log_options + np.linspace(-0.04, 0.04, 9)
            floors = best.least + np.linspace(-0.04, 0.04, 9)
        best = _search(items, fine, slopes, floors)
        numbers = (best.temperature, best.per_log_options, best.least)
        fitted[kind] = Calibration(*(round(float(value), 4) for value in numbers))
    return fitted


def cross_entropy(items: Sequence[Scored], calibration: Calibration) -> float:
    """Mean cross-entropy in nats."""
    return _Padded.of(items).cross_entropy(calibration) if items else 0.0


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


@dataclass(frozen=True)
class _Padded:
    """Questions as arrays, for thousands of temperatures to be tried.

    Attributes:
        logits, target: float64 ``[questions, most options]``, the logits -inf and the target 0 beyond a question's own.
        log_options: logarithm of the number of options, float64 ``[questions]``.
    """

    logits: npt.NDArray[np.float64]
    target: npt.NDArray[np.float64]
    log_options: npt.NDArray[np.float64]

    @classmethod
    def of(cls, items: Sequence[Scored]) -> _Padded:
        shape = len(items), max(len(item.logits) for item in items)
        logits, target = np.full(shape, -np.inf), np.zeros(shape)
        for row, item in enumerate(items):
            logits[row, : len(item.logits)], target[row, : len(item.logits)] = item.logits, item.target
        return cls(logits, target, np.log([len(item.logits) for item in items]))

    def cross_entropy(self, calibration: Calibration) -> float:
        """Mean cross-entropy in nats, no probability counted below 1e-12."""
        line = calibration.temperature + calibration.per_log_options * self.log_options
        logs = log_softmax(self.logits / np.maximum(calibration.least, line)[:, None])
        return float(-(self.target * np.maximum(logs, math.log(1e-12))).sum(axis=1).mean())


def _search(
    items: _Padded,
    temperatures: npt.NDArray[np.float64],
    slopes: npt.NDArray[np.float64],
    floors: npt.NDArray[np.float64],
) -> Calibration:
    candidates = [
        Calibration(float(t), float(s), max(0.05, float(floor)))
        for t in temperatures
        for s in slopes
        for floor in floors
    ]
    return min(candidates, key=items.cross_entropy)
