"""Answers of heads beside what was wanted.

Confidence is that of ``julia1.answers``, which ``abstain_below`` compares. An answer is right when it is the label that
was wanted; of a labels head when all labels are, of a tags head when all spans of the text are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.answers import choice_confidence, labels_confidence, score_confidence
from julia1.bundle import Calibration
from julia1.bundle.heads import HeadSpec
from julia1.runtime.calibration import UNCALIBRATED, probabilities
from julia1.runtime.fixed import label_thresholds, log_softmax, sigmoid
from julia1.text.tags import best_tags, spans_of
from julia1.train.items import Item
from julia1.train.pairing import pair_scores

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """Answers of a head beside what was wanted.

    Attributes:
        confidence: float64 ``[rows]``.
        right: ``[rows]``.
        chances: what can be calibrated, float64 ``[units, classes]``: a unit is a row, or a token of a tags head.
        truth: the same shape; 0 and 1, or the shares of a soft label.
        top, hit: the probability of what was answered, and whether it was right, ``[units]``.
        given, wanted: what was answered and wanted in each row: the number of a label, ``[labels]`` of truth values, or
            spans.
    """

    confidence: FloatArray
    right: BoolArray
    chances: FloatArray
    truth: FloatArray
    top: FloatArray
    hit: BoolArray
    given: Sequence[Any] | npt.NDArray[Any]
    wanted: Sequence[Any] | npt.NDArray[Any]


def judge(
    head: HeadSpec,
    outputs: Sequence[npt.NDArray[np.float32]],
    items: Sequence[Item],
    calibration: Calibration = UNCALIBRATED,
) -> Judged:
    """The answers of a head of ``UNSURE_KINDS`` to items that answer it; at least one."""
    if head.kind == "tags":
        return _judge_tags(head, outputs, items, calibration)
    targets = np.stack([item.targets[head.name] for item in items]).astype(np.float64)
    if head.kind == "labels":
        chances = sigmoid(np.stack(outputs).astype(np.float64) / calibration.temperature)
        chosen, asked = chances >= label_thresholds(head), targets > 0.5
        sure = np.array([labels_confidence(*row) for row in zip(chances, chosen, strict=True)])
        right = (chosen == asked).all(axis=1)
        return Judged(sure, right, chances, targets, chances.ravel(), asked.ravel(), chosen, asked)
    if head.kind == "match":
        logits = np.array([pair_scores(head, values)[0] for values in outputs])
        yes = sigmoid(logits / calibration.temperature)
        shares = np.stack([1 - yes, yes], axis=1)
        truth = np.concatenate([1 - targets[:, :1], targets[:, :1]], axis=1)
    else:
        shares = np.stack([probabilities(values, calibration) for values in outputs])
        # a level's target is a bell around it, for training only
        truth = np.eye(len(head.labels))[targets.argmax(axis=1)] if head.kind == "score" else targets
    confidence = score_confidence if head.kind == "score" else choice_confidence
    found, best = shares.argmax(axis=1), truth.argmax(axis=1)
    sure = np.array([confidence(row) for row in shares])
    return Judged(sure, found == best, shares, truth, shares.max(axis=1), found == best, found, best)


def _judge_tags(
    head: HeadSpec, outputs: Sequence[npt.NDArray[np.float32]], items: Sequence[Item], calibration: Calibration
) -> Judged:
    sure, given, wanted, logs_of, chosen = [], [], [], [], []
    for values, item in zip(outputs, items, strict=True):
        logs = log_softmax(values.astype(np.float64) / calibration.temperature)
        tags = best_tags(logs) if len(logs) else np.zeros(0, np.int64)
        logs_of.append(logs.reshape(len(tags), head.outputs))
        chosen.append(tags)
        sure.append(float(np.exp(logs[np.arange(len(tags)), tags]).min(initial=1.0)) if len(tags) else 1.0)
        given.append({span for span, _ in spans_of(tags.tolist(), item.text, item.offsets)})
        wanted.append(set(item.spans[head.name]))
    right = np.array([one == other for one, other in zip(given, wanted, strict=True)])
    tags, chances = np.concatenate(chosen), np.exp(np.concatenate(logs_of))
    truth = np.concatenate([item.targets[head.name] for item in items]).astype(np.int64)
    top = chances[np.arange(len(tags)), tags]
    return Judged(np.array(sure), right, chances, np.eye(head.outputs)[truth], top, tags == truth, given, wanted)
