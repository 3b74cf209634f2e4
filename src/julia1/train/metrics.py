"""How good the answers of a head are, by the field's usual figures. Needs NumPy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from julia1.bundle import Calibration
from julia1.bundle.heads import HeadSpec
from julia1.runtime.calibration import UNCALIBRATED
from julia1.runtime.fixed import label_thresholds, log_softmax, sigmoid
from julia1.text.tags import best_tags, spans_of
from julia1.train.items import Item, Outputs
from julia1.train.pairing import match_figures, rank_figures
from julia1.train.scores import area_under_curve, f1, macro_f1, quadratic_kappa

FloatArray = npt.NDArray[np.float32]

MAIN = {
    "choice": "macro_f1",
    "labels": "micro_f1",
    "yesno": "f1",
    "score": "quadratic_kappa",
    "value": "r2",
    "tags": "span_f1",
    "match": "auc",
    "rank": "mrr",
}
"""The figure that a head of each kind is chosen by; larger is better."""


def head_figures(
    head: HeadSpec, outputs: FloatArray, targets: FloatArray, calibration: Calibration = UNCALIBRATED
) -> dict[str, float]:
    """Figures of one head that gives one answer a row.

    Args:
        head: what it answers; a labels head chooses by its thresholds.
        outputs: fp32 ``[rows, outputs]``, logits.
        calibration: what a labels head's thresholds were fitted under.
        targets: fp32 ``[rows, outputs]``; of a choice, yes/no or score the largest is right.
    """
    if head.kind == "value":
        error = float(np.square(outputs - targets).mean())
        spread = float(np.square(targets - targets.mean()).mean())
        # without spread there is nothing to explain, and a bound keeps one head from deciding for all
        explained = max(-1.0, 1 - error / spread) if spread > 1e-9 else 0.0
        return {"r2": explained, "rmse": error**0.5 * head.spread}
    if head.kind == "labels":
        chosen = sigmoid(outputs.astype(np.float64) / calibration.temperature) >= label_thresholds(head)
        wanted = targets > 0.5
        return {
            "micro_f1": f1(wanted, chosen),
            "macro_f1": float(np.mean([f1(*pair) for pair in zip(wanted.T, chosen.T, strict=True)])),
            "exact": float((chosen == wanted).all(axis=1).mean()),
        }
    found, right = outputs.argmax(axis=1), targets.argmax(axis=1)
    accuracy = float((found == right).mean())
    if head.kind == "yesno":
        return {
            "f1": f1(right == 1, found == 1),
            "auc": area_under_curve(right == 1, outputs[:, 1] - outputs[:, 0]),
            "accuracy": accuracy,
        }
    if head.kind == "score":
        return {
            "quadratic_kappa": quadratic_kappa(right, found, len(head.labels)),
            "mean_absolute_error": float(np.abs(found - right).mean()),
            "accuracy": accuracy,
        }
    return {"macro_f1": macro_f1(right, found), "accuracy": accuracy}


def span_figures(outputs: Sequence[FloatArray], items: Sequence[Item], head: str) -> dict[str, float]:
    """Exact spans: F1, precision and recall over characters and label of all of them; and how many texts are all right.

    What lies beyond the tokens that were read counts as missed.
    """
    found_number = wanted_number = right = whole = 0
    for values, item in zip(outputs, items, strict=True):
        tags = best_tags(log_softmax(values.astype(np.float64))).tolist() if len(values) else []
        found = {span for span, _ in spans_of(tags, item.text, item.offsets)}
        wanted = set(item.spans[head])
        found_number, wanted_number = found_number + len(found), wanted_number + len(wanted)
        right += len(found & wanted)
        whole += found == wanted
    return {
        "span_f1": 2 * right / max(1, found_number + wanted_number),
        "precision": right / max(1, found_number),
        "recall": right / max(1, wanted_number),
        "exact": whole / max(1, len(items)),
    }


def figures_of(
    heads: Sequence[HeadSpec],
    outputs: Outputs,
    items: Sequence[Item],
    calibration: Mapping[str, Calibration] | None = None,
) -> dict[str, dict[str, float]]:
    """Figures of every head over the items that answer it."""
    figures = {}
    for head in heads:
        kept = [i for i, item in enumerate(items) if head.name in item.targets]
        if not kept:
            continue
        found = [outputs[head.name][i] for i in kept]
        if head.kind == "tags":
            figures[head.name] = span_figures(found, [items[i] for i in kept], head.name)
        elif head.kind == "match":
            figures[head.name] = match_figures(head, found, [bool(items[i].targets[head.name][0]) for i in kept])
        elif head.kind == "rank":
            figures[head.name] = rank_figures(head, found, [int(items[i].targets[head.name][0]) for i in kept])
        else:
            targets = np.stack([items[i].targets[head.name] for i in kept]).astype(np.float32)
            own = (calibration or {}).get(head.name, UNCALIBRATED)
            figures[head.name] = head_figures(head, np.stack(found), targets, own)
    return figures
