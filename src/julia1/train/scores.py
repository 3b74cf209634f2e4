"""Figures of right and given answers, as scikit-learn defines them, in NumPy: they are computed in deployments too.

They are Python's own floats: a checkpoint that held others could not be read again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def f1(right: BoolArray, given: BoolArray) -> float:
    """Harmonic mean of precision and recall over all elements of two arrays of one shape; 0 where there is nothing."""
    both, either = int((right & given).sum()), int(right.sum()) + int(given.sum())
    return 2 * both / either if either else 0.0


def macro_f1(right: Numbers, given: Numbers) -> float:
    """Mean F1 of the classes that are right or given somewhere; both ``[rows]``."""
    classes = np.union1d(right, given)
    return float(np.mean([f1(right == one, given == one) for one in classes]))


def quadratic_kappa(right: Numbers, given: Numbers, levels: int) -> float:
    """Cohen's kappa of levels 0 to ``levels - 1``, weighted by squared distance; 0 where chance is never wrong."""
    table = np.zeros((levels, levels))
    np.add.at(table, (right, given), 1)
    places = np.arange(levels)
    weights = np.square(places[:, None] - places)
    chance = float((weights * np.outer(table.sum(axis=1), table.sum(axis=0))).sum() / table.sum())
    return 1 - float((weights * table).sum()) / chance if chance else 0.0


def area_under_curve(right: BoolArray, scores: npt.NDArray[np.floating]) -> float:
    """Area under the ROC curve: how often a right one is above a wrong one, ties counting half; one half where all rows
    are alike."""
    positives = int(right.sum())
    negatives = len(right) - positives
    if not positives or not negatives:
        return 0.5
    _, places, numbers = np.unique(scores, return_inverse=True, return_counts=True)
    middles = numbers.cumsum() - (numbers - 1) / 2
    return float((middles[places][right].sum() - positives * (positives + 1) / 2) / (positives * negatives))
