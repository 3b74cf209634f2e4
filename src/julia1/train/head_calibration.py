"""Temperatures, thresholds and deviations of fixed heads, fitted on validation rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from julia1.bundle import Calibration
from julia1.bundle.heads import PAIR_KINDS, HeadSpec
from julia1.runtime.fixed import log_softmax, sigmoid
from julia1.train.items import Item, Outputs
from julia1.train.pairing import pair_scores

LEAST_POSITIVES = 5
"""A label with fewer validation rows keeps a threshold of one half."""


def calibrate_heads(
    specs: Sequence[HeadSpec], outputs: Outputs, items: Sequence[Item]
) -> tuple[list[HeadSpec], dict[str, Calibration]]:
    """Heads with thresholds and deviations, and temperatures, fitted on validation rows."""
    heads: list[HeadSpec] = []
    calibration: dict[str, Calibration] = {}
    for spec in specs:
        kept = [i for i, item in enumerate(items) if spec.name in item.targets]
        if not kept:
            heads.append(spec)
            continue
        if spec.kind in PAIR_KINDS:
            if spec.kind == "match":
                logits = np.array([pair_scores(spec, outputs[spec.name][i])[:1] for i in kept])
                wanted = np.array([items[i].targets[spec.name] for i in kept])
                calibration[spec.name] = Calibration(_binary_temperature(logits, wanted))
            heads.append(spec)
            continue
        together = np.concatenate if spec.kind == "tags" else np.stack
        found = together([outputs[spec.name][i] for i in kept]).astype(np.float64)
        targets = together([items[i].targets[spec.name] for i in kept]).astype(np.float64)
        if spec.kind == "tags":
            calibration[spec.name] = Calibration(_temperature(found, np.eye(spec.outputs)[targets.astype(np.int64)]))
            heads.append(spec)
        elif spec.kind == "value":
            deviation = float(np.sqrt(np.square(found - targets).mean())) * spec.spread
            heads.append(replace(spec, deviation=deviation))
        elif spec.kind == "labels":
            best = _binary_temperature(found, targets)
            calibration[spec.name] = Calibration(best)
            heads.append(replace(spec, thresholds=label_thresholds(sigmoid(found / best), targets)))
        else:
            if spec.kind == "score":  # a level's target is a bell around it, but its probability is that of the level
                targets = np.eye(spec.outputs)[targets.argmax(axis=1)]
            calibration[spec.name] = Calibration(_temperature(found, targets))
            heads.append(spec)
    return heads, calibration


def label_thresholds(chances: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """For each label the threshold with the best F1 on these rows; one half where rows are few or nothing is gained."""
    found = []
    for column in range(chances.shape[1]):
        wanted = targets[:, column] > 0.5
        best, threshold = _f1(chances[:, column] >= 0.5, wanted), 0.5
        if wanted.sum() >= LEAST_POSITIVES:
            for candidate in np.linspace(0.1, 0.9, 17):
                score = _f1(chances[:, column] >= candidate, wanted)
                if score > best + 0.01:
                    best, threshold = score, float(round(candidate, 3))
        found.append(threshold)
    return tuple(found)


def _temperature(logits: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> float:
    """The temperature with the least cross-entropy."""

    def loss(temperature: float) -> float:
        return float(-(targets * log_softmax(logits / temperature)).sum())

    return _least(loss, np.geomspace(0.2, 8.0, 120))


def _binary_temperature(logits: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> float:
    """The temperature with the least binary cross-entropy."""

    def loss(temperature: float) -> float:
        chances = np.clip(sigmoid(logits / temperature), 1e-9, 1 - 1e-9)
        return float(-(targets * np.log(chances) + (1 - targets) * np.log(1 - chances)).mean())

    return _least(loss, np.geomspace(0.3, 5.0, 60))


def _least(loss: Callable[[float], float], temperatures: npt.NDArray[np.float64]) -> float:
    best: float = min(map(float, temperatures), key=loss)
    return round(best, 4)


def _f1(chosen: npt.NDArray[np.bool_], wanted: npt.NDArray[np.bool_]) -> float:
    both = float((chosen & wanted).sum())
    return 2 * both / max(1.0, float(chosen.sum() + wanted.sum()))
