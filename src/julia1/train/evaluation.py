"""How far probabilities can be believed and where a head errs: calibration, coverage, labels, confusions, languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.bundle import Calibration
from julia1.bundle.heads import UNSURE_KINDS, HeadSpec
from julia1.runtime.calibration import UNCALIBRATED
from julia1.text.tags import TextSpan
from julia1.train.calibrate import expected_calibration_error
from julia1.train.items import Item, Outputs
from julia1.train.judging import BoolArray, FloatArray, Judged, judge
from julia1.train.metrics import figures_of
from julia1.train.pairing import retrieval_figures

BINS = 15
COVERAGE_THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
ACCURACIES = (0.9, 0.95, 0.99)
"""Accuracies of which it is told how much can be answered."""
MOST_CONFUSIONS = 50
NONE = "(none)"
"""Stands for no label among confusions."""


@dataclass(frozen=True)
class Bin:
    """Probabilities of one of ``BINS`` bins of equal width.

    Attributes:
        low, high: its bounds.
        rows: how many lie in it.
        confidence: their mean.
        accuracy: share of them that came true.
    """

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibrated:
    """How far probabilities can be believed.

    Attributes:
        ece: expected calibration error over ``BINS`` bins: of the probability of the answer; of labels that of each
            label, the mean over them; of tags that of the tag of a token.
        brier: mean squared distance from the truth: summed over the options of a choice, levels and tags; of yes, of a
            match and of each label by itself.
        nll: mean negative log-likelihood of the truth in nats; of labels the mean over them too.
        bins: of the reliability diagram, those that are not empty.
    """

    ece: float
    brier: float
    nll: float
    bins: list[Bin]


@dataclass(frozen=True)
class Coverage:
    """What is answered from a confidence on.

    Attributes:
        threshold: the confidence.
        answered: share of the rows with at least that.
        accuracy: share of those that is right; None where there are none.
    """

    threshold: float
    answered: float
    accuracy: float | None


@dataclass(frozen=True)
class ClassFigures:
    """Figures of one label.

    Attributes:
        support: rows that have it; of tags, spans.
        ece: of a labels head, the calibration error of its probability.
    """

    label: str
    precision: float
    recall: float
    f1: float
    support: int
    ece: float | None = None


@dataclass(frozen=True)
class Confusion:
    """How often one label was wanted and another given."""

    wanted: str
    given: str
    rows: int


@dataclass(frozen=True)
class HeadEvaluation:
    """All that is known of a head on one part of the rows.

    Attributes:
        kind: of the head.
        rows: that answer it.
        figures: see ``julia1.train.metrics``.
        before, after: calibration; None for heads without probabilities.
        coverage: by threshold.
        coverage_at: accuracy (0.9) to the largest share of rows that some threshold answers with at least that.
        classes: by label, in the head's order.
        confusions: the most frequent ones.
        retrieval: of heads that read texts apart: the right one among all candidates of the part.
        languages: language to figures and rows, where rows name one.
    """

    kind: str
    rows: int
    figures: dict[str, float]
    before: Calibrated | None = None
    after: Calibrated | None = None
    coverage: list[Coverage] = field(default_factory=list)
    coverage_at: dict[float, float] = field(default_factory=dict)
    classes: list[ClassFigures] = field(default_factory=list)
    confusions: list[Confusion] = field(default_factory=list)
    retrieval: dict[str, float] = field(default_factory=dict)
    languages: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**asdict(self), "coverage_at": {f"{key:g}": value for key, value in self.coverage_at.items()}}


def calibrated(kind: str, judged: Judged) -> Calibrated | None:
    """How far the probabilities can be believed; None where there are none."""
    chances, truth = judged.chances, judged.truth
    if not len(chances):
        return None
    inside = np.clip(chances, 1e-12, 1.0)
    if kind == "labels":
        outside = np.clip(1 - chances, 1e-12, 1.0)
        errors = [expected_calibration_error(*pair, bins=BINS) for pair in zip(chances.T, truth.T, strict=True)]
        ece, brier = float(np.mean(errors)), float(np.square(chances - truth).mean())
        nll = float(-(truth * np.log(inside) + (1 - truth) * np.log(outside)).mean())
    else:
        ece = expected_calibration_error(judged.top, judged.hit, bins=BINS)
        # of two classes both differences are the same: counted once, as is usual for yes or no
        share = 0.5 if kind in ("yesno", "match") else 1.0
        brier = share * float(np.square(chances - truth).sum(axis=1).mean())
        nll = float(-(truth * np.log(inside)).sum(axis=1).mean())
    return Calibrated(ece, brier, nll, _bins(judged.top, judged.hit))


def _bins(chances: FloatArray, hit: BoolArray) -> list[Bin]:
    index = np.minimum((chances * BINS).astype(int), BINS - 1)
    found = []
    for number in np.unique(index).tolist():
        own = index == number
        means = float(chances[own].mean()), float(hit[own].mean())
        found.append(Bin(number / BINS, (number + 1) / BINS, int(own.sum()), *means))
    return found


def coverage(confidence: FloatArray, right: BoolArray) -> list[Coverage]:
    """What is answered, and how well, at each of ``COVERAGE_THRESHOLDS``."""
    found = []
    for threshold in COVERAGE_THRESHOLDS:
        answered = confidence >= threshold
        accuracy = float(right[answered].mean()) if answered.any() else None
        found.append(Coverage(threshold, float(answered.mean()), accuracy))
    return found


def coverage_at(confidence: FloatArray, right: BoolArray, accuracy: float) -> float:
    """The largest share of rows that a threshold answers with at least this accuracy; 0 where none does."""
    order = np.argsort(-confidence, kind="stable")
    sure, hits = confidence[order], right[order].cumsum()
    numbers = np.arange(1, len(sure) + 1)
    # rows of one confidence are answered together
    last = np.append(sure[1:] != sure[:-1], True)
    enough = numbers[last & (hits >= accuracy * numbers - 1e-9)]
    return float(enough.max(initial=0) / len(sure))


def class_figures(head: HeadSpec, judged: Judged) -> list[ClassFigures]:
    """Precision, recall and F1 of each label."""
    names = ("no", "yes") if head.kind == "match" else head.labels
    if head.kind == "tags":
        return [_span_figures(name, number, judged) for number, name in enumerate(names)]
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(
        np.asarray(judged.wanted), np.asarray(judged.given), labels=list(range(len(names))), zero_division=0
    )
    errors: list[float | None] = [None] * len(names)
    if head.kind == "labels":
        pairs = zip(judged.chances.T, judged.truth.T, strict=True)
        errors = [expected_calibration_error(*pair, bins=BINS) for pair in pairs]
    return [
        ClassFigures(name, float(precision), float(recall), float(f1), int(support), error)
        for name, precision, recall, f1, support, error in zip(names, *columns, errors, strict=True)
    ]


def _span_figures(name: str, number: int, judged: Judged) -> ClassFigures:
    given, wanted, both = (
        sum(span.label == number for spans in every for span in spans)
        for every in (
            judged.given,
            judged.wanted,
            [one & other for one, other in zip(judged.given, judged.wanted, strict=True)],
        )
    )
    f1 = 2 * both / max(1, given + wanted)
    return ClassFigures(name, both / max(1, given), both / max(1, wanted), f1, wanted)


def confusions(head: HeadSpec, judged: Judged) -> list[Confusion]:
    """The most frequent confusions. Of labels: one was missed where another was wrongly given; of spans: the same
    characters had another label, or none."""
    names = ("no", "yes") if head.kind == "match" else head.labels
    counts: Counter[tuple[str, str]] = Counter()
    for given, wanted in zip(judged.given, judged.wanted, strict=True):
        if head.kind == "tags":
            counts.update(_span_confusions(names, given, wanted))
        elif head.kind == "labels":
            missed = [names[i] for i in np.flatnonzero(wanted & ~given)] or [NONE]
            added = [names[i] for i in np.flatnonzero(given & ~wanted)] or [NONE]
            counts.update((one, other) for one in missed for other in added if (one, other) != (NONE, NONE))
        elif given != wanted:
            counts[names[int(wanted)], names[int(given)]] += 1
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Confusion(*pair, number) for pair, number in ordered[:MOST_CONFUSIONS]]


def _span_confusions(names: Sequence[str], given: set[TextSpan], wanted: set[TextSpan]) -> list[tuple[str, str]]:
    places = {span[:2]: names[span.label] for span in given}
    asked = {span[:2]: names[span.label] for span in wanted}
    found = [(name, places.get(place, NONE)) for place, name in asked.items() if places.get(place) != name]
    return found + [(NONE, name) for place, name in places.items() if place not in asked]


def evaluate(
    heads: Sequence[HeadSpec],
    outputs: Outputs,
    items: Sequence[Item],
    calibration: Mapping[str, Calibration],
    languages: Sequence[str],
) -> dict[str, HeadEvaluation]:
    """Evaluate every head over the items that answer it.

    Args:
        heads: with the thresholds of their labels.
        outputs: of every item, by head.
        items: rows of one part.
        calibration: by head.
        languages: of each item, '' where it names none.
    """
    found = {}
    for head in heads:
        kept = [i for i, item in enumerate(items) if head.name in item.targets]
        if not kept:
            continue
        own, rows = [outputs[head.name][i] for i in kept], [items[i] for i in kept]
        temperature = calibration.get(head.name, UNCALIBRATED)
        figures = _figures(head, own, rows, temperature)
        retrieval = retrieval_figures(head, own, rows) if head.size else {}
        slices = _by_language(head, own, rows, temperature, [languages[i] for i in kept])
        if head.kind not in UNSURE_KINDS:
            found[head.name] = HeadEvaluation(head.kind, len(kept), figures, retrieval=retrieval, languages=slices)
            continue
        judged = judge(head, own, rows, temperature)
        found[head.name] = HeadEvaluation(
            head.kind,
            len(kept),
            figures,
            calibrated(head.kind, judge(head, own, rows)),
            calibrated(head.kind, judged),
            coverage(judged.confidence, judged.right),
            {accuracy: coverage_at(judged.confidence, judged.right, accuracy) for accuracy in ACCURACIES},
            class_figures(head, judged),
            confusions(head, judged),
            retrieval,
            slices,
        )
    return found


def _figures(
    head: HeadSpec, outputs: list[npt.NDArray[np.float32]], items: Sequence[Item], calibration: Calibration
) -> dict[str, float]:
    return figures_of([head], {head.name: outputs}, items, {head.name: calibration})[head.name]


def _by_language(
    head: HeadSpec,
    outputs: list[npt.NDArray[np.float32]],
    items: Sequence[Item],
    calibration: Calibration,
    languages: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Rows and figures of each language; nothing when no row names one."""
    found: dict[str, dict[str, float]] = {}
    for language in sorted(set(languages)) if any(languages) else ():
        own = [i for i, name in enumerate(languages) if name == language]
        figures = _figures(head, [outputs[i] for i in own], [items[i] for i in own], calibration)
        found[language] = {"rows": len(own), **figures}
    return found
