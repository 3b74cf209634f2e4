"""Whether a model got worse: the same rows, two sets of answers, and how sure one can be of the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, erfc

import numpy as np
import numpy.typing as npt

from julia1.errors import InputError
from julia1.train.scores import Interval, area_under_curve, macro_f1

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
METRICS = ("accuracy", "macro_f1", "auc")
ROUNDS = 1000
CONFIDENCE = 0.95
LEAST_ROWS = 10
"""Of a class whose recall is guarded: of fewer, one row is 10 points or more."""


@dataclass(frozen=True)
class Thresholds:
    """How much a model may lose.

    Attributes:
        drops: metric to the largest drop, such as 0.01 for a point.
        recall_drop: of any class of ``LEAST_ROWS`` rows and more.
        agreement: least share of answers that are the same, 0 for any.
    """

    drops: Mapping[str, float] = field(default_factory=lambda: {"macro_f1": 0.01})
    recall_drop: float = 0.1
    agreement: float = 0.0

    def __post_init__(self) -> None:
        for name, drop in self.drops.items():
            if name not in METRICS:
                raise InputError(f"there is no metric {name!r} to guard: {', '.join(METRICS)}")
            if not 0 <= drop <= 1:
                raise InputError(f"the drop of {name} is {drop:g}: from 0 to 1")
        for name in ("recall_drop", "agreement"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name):g}: from 0 to 1")


@dataclass(frozen=True)
class Judgement:
    """A model beside the one it comes from.

    Attributes:
        metrics: its figures.
        drops: how much lower they are than before.
        recalls: drop of recall by class.
        agreement: share of the same answers.
        mcnemar: how probable as many changed rows would be, right ones to wrong ones and back, if neither model were
            better (exact McNemar test).
        failures: why it is not kept, in words; none when it is.
        notes: what should be known although it is kept.
    """

    metrics: Mapping[str, float]
    drops: Mapping[str, Interval]
    recalls: Mapping[str, float]
    agreement: float
    mcnemar: float
    failures: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def kept(self) -> bool:
        """Whether nothing fails."""
        return not self.failures


def figures(logits: FloatArray, wanted: IntArray) -> dict[str, float]:
    """Accuracy, macro-F1, and of two classes the area under the ROC curve.

    Args:
        logits: fp32 ``[rows, classes]``.
        wanted: numbers of the right classes, int64 ``[rows]``.
    """
    found = logits.argmax(axis=1)
    made = {"accuracy": float((found == wanted).mean()), "macro_f1": macro_f1(wanted, found)}
    if logits.shape[1] == 2 and len(np.unique(wanted)) == 2:
        made["auc"] = area_under_curve(wanted == 1, logits[:, 1] - logits[:, 0])
    return made


def judge(
    before: FloatArray, after: FloatArray, wanted: IntArray, classes: Sequence[str], limits: Thresholds, seed: int = 0
) -> Judgement:
    """Compare two models on the same rows.

    A metric fails when it dropped by more than it may *and* the drop is no noise: the paired bootstrap's interval of it
    lies above 0. Where the interval reaches beyond the limit although the drop does not, that is noted: more rows would
    be needed to be sure. A class fails when its recall dropped by more than it may and as many rows lost as that by
    chance are improbable (exact McNemar test within the class, 5 %).

    Args:
        before, after: logits fp32 ``[rows, classes]``.
        wanted: numbers of the right classes, int64 ``[rows]``.
        classes: their names.
        limits: how much may be lost.
        seed: of the bootstrap.

    Raises:
        InputError: there are no rows, or a metric is guarded that these rows do not have.
    """
    if not len(wanted):
        raise InputError("there are no rows to judge on: give at least one")
    was, now = figures(before, wanted), figures(after, wanted)
    missing = next((name for name in limits.drops if name not in was), None)
    if missing is not None:
        raise InputError(f"{missing} is guarded, and these rows have none: it takes two classes, both among the rows")
    drops = _drops(before, after, wanted, list(was), seed)
    found = [logits.argmax(axis=1) for logits in (before, after)]
    right = [one == wanted for one in found]
    failures, notes = [], []
    for name, limit in limits.drops.items():
        drop = drops[name]
        if drop.value > limit and drop.low > 0:
            failures.append(
                f"{name} fell by {drop.value:.4f} ({drop.low:.4f} to {drop.high:.4f}), {limit:g} is allowed: "
                f"{was[name]:.4f} to {now[name]:.4f}"
            )
        elif drop.high > limit:
            notes.append(
                f"{name} fell by {drop.value:.4f}, but with these {len(wanted):,} rows it may be {drop.high:.4f}, over "
                f"the {limit:g} that are allowed: more rows would tell"
            )
    recalls = {}
    for number, name in enumerate(classes):
        own = wanted == number
        if not own.any():
            continue
        recalls[name] = float(right[0][own].mean() - right[1][own].mean())
        if (
            own.sum() >= LEAST_ROWS
            and recalls[name] > limits.recall_drop
            and _mcnemar(*(one[own] for one in right)) < 0.05
        ):
            failures.append(
                f"recall of {name!r} fell from {right[0][own].mean():.3f} to {right[1][own].mean():.3f} on its "
                f"{int(own.sum()):,} rows, {limits.recall_drop:g} is allowed"
            )
    agreement = float((found[0] == found[1]).mean())
    if agreement < limits.agreement:
        failures.append(f"{agreement:.2%} of the answers are the same, {limits.agreement:.2%} are asked for")
    return Judgement(now, drops, recalls, agreement, _mcnemar(*right), tuple(failures), tuple(notes))


def _drops(
    before: FloatArray, after: FloatArray, wanted: IntArray, names: Sequence[str], seed: int
) -> dict[str, Interval]:
    """By metric, with the interval of a paired bootstrap over rows."""
    rng = np.random.default_rng(seed)
    was, now = figures(before, wanted), figures(after, wanted)
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        rows = rng.integers(0, len(wanted), len(wanted))
        one, other = figures(before[rows], wanted[rows]), figures(after[rows], wanted[rows])
        for name in names:
            if name in one:  # a draw may miss one of two classes
                drawn[name].append(one[name] - other[name])
    tails = 100 * np.array([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {name: Interval(was[name] - now[name], *map(float, np.percentile(drawn[name], tails))) for name in names}


def _mcnemar(before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]) -> float:
    """Two-sided probability of a split as uneven as the one between rows lost and rows won."""
    lost, won = int((before & ~after).sum()), int((~before & after).sum())
    total = lost + won
    if not total:
        return 1.0
    if total > 1000:  # the normal approximation with its correction, where binomials overflow
        return erfc(max(abs(lost - won) - 1, 0) / (2 * total) ** 0.5)
    tail = sum(comb(total, k) for k in range(max(lost, won), total + 1))
    return float(min(1.0, 2 * tail / 2**total))
