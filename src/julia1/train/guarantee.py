"""The lowest confidence threshold that keeps the error among answered inputs under a bound, with a given confidence.

Learn then Test (Angelopoulos et al. 2021, arXiv 2110.01052) with fixed-sequence testing: thresholds are tried from one
that is sure to hold down to lower ones, each by an exact binomial test on rows that nothing else was fitted on, until
one cannot be shown to hold. Which thresholds are tried, and from where, is read off other rows, so the tests stay fair.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from julia1.bundle import Calibration
from julia1.bundle.heads import HeadSpec
from julia1.errors import InputError
from julia1.runtime.calibration import UNCALIBRATED
from julia1.train.data.duplicates import content_of
from julia1.train.data.rows import DataRow, is_number, kind_of
from julia1.train.items import Item, Outputs
from julia1.train.judging import BoolArray, FloatArray, Judged, judge
from julia1.train.parts import Parts
from julia1.train.recipe import FineTuning
from julia1.train.sources import text_key

GUARDED = ("choice", "yesno", "score", "match")
"""Heads with one answer, which is right or wrong."""
CANDIDATES = 200
"""Thresholds that are tried at most."""
LITTLE_DOUBT = 1e-3
"""The first threshold that is tried is the highest of which other rows leave no more doubt (a p-value) than this."""


@dataclass(frozen=True)
class Guarantee:
    """What is guaranteed of the error of one head among the inputs that it answers.

    Attributes:
        head: its name.
        max_error, confidence: the error is at most this, with this confidence over the draw of the rows.
        rows: that it was tested on.
        threshold: confidence under which answers abstain; None when no threshold could be shown to hold.
        answered: share of those rows that it answers.
        errors: wrong ones among those answered.
        bound: of Clopper and Pearson, at a threshold chosen on the same rows: ``max_error`` is guaranteed, not it.
        test_answered, test_error: the same share on the test rows, and the error there, where there are some.
    """

    head: str
    max_error: float
    confidence: float
    rows: int
    threshold: float | None
    answered: float = 0.0
    errors: int = 0
    bound: float | None = None
    test_answered: float | None = None
    test_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)

    @property
    def warning(self) -> str:
        """What to tell when nothing could be guaranteed, else ''."""
        if self.threshold is not None:
            return ""
        return (
            f"{self.head}: no confidence threshold keeps the error under {self.max_error:.3g} with confidence "
            f"{self.confidence:.3g} on {self.rows:,} rows, so none was stored and every input is answered: give more "
            "validation rows, or a larger --max-error"
        )


def least_rows(max_error: float, confidence: float) -> int:
    """Answered rows without one error that it takes to show the bound."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - max_error) - 1e-9)


def halves(rows: Sequence[DataRow], settings: FineTuning) -> tuple[list[DataRow], list[DataRow]]:
    """Validation rows to stop and calibrate by, and those that the guarantee alone sees; none without a bound.

    The cut is by a hash of the group, or of the text where there is none, so it stays the same in any order of rows and
    copies of a text stay together.
    """
    if settings.max_error is None:
        return list(rows), []
    parts: tuple[list[DataRow], list[DataRow]] = ([], [])
    for row in rows:
        key = f"group {row.group}" if row.group else text_key(content_of(row))
        digest = hashlib.sha256(f"{settings.seed}/guarantee/{key}".encode("utf-8", "surrogatepass")).digest()
        parts[digest[0] % 2].append(row)
    return parts


def check_guarantee(parts: Parts, settings: FineTuning) -> None:
    """Raise when the bound makes no sense, or the validation rows could never show it.

    Raises:
        InputError: naming the number, or the question and how many rows it takes.
    """
    bound, confidence, rows = settings.max_error, settings.error_confidence, parts.validation
    if not 0 < confidence < 1:
        raise InputError(f"error_confidence is {confidence:g}: between 0 and 1, such as 0.95")
    if bound is None:
        return
    if not 0 < bound < 1:
        raise InputError(f"max_error is {bound:g}: between 0 and 1, such as 0.05")
    kept, held = halves(rows, settings)
    kinds = {name: kind_of(answer) for row in parts.train for name, answer in row.answers.items()}
    guarded = [name for name, kind in kinds.items() if kind in (*GUARDED, "soft") and not is_number(name, parts.train)]
    if not guarded:
        raise InputError("max_error bounds the error of choices, yes/no questions, scores and matches: there are none")
    least = least_rows(bound, confidence)
    for name in guarded:
        numbers = [sum(name in row.answers for row in half) for half in (kept, held)]
        if numbers[1] < least or not numbers[0]:
            raise InputError(
                f"an error of at most {bound:g} of {name!r} with confidence {confidence:g} takes {least:,} validation "
                f"rows that nothing else sees, even if none is wrong; half of the {len(rows):,} are held back for it, "
                f"{numbers[1]:,} with that answer: give {2 * least + 20:,} or more, or a larger max_error"
            )


def guard_heads(
    heads: Sequence[HeadSpec],
    outputs: Outputs,
    items: Sequence[Item],
    served: Sequence[Outputs],
    held: Sequence[Item],
    calibration: Mapping[str, Calibration],
    settings: FineTuning,
) -> tuple[list[HeadSpec], list[Guarantee]]:
    """Heads with the thresholds that can be guaranteed, and what is guaranteed of each.

    Args:
        heads: of the model.
        outputs, items: of rows that the model was stopped and calibrated by; they say which thresholds are tried.
        served: of each variant that may serve, the outputs of ``held``; a threshold must hold for all of them.
        held: rows that nothing was fitted on.
        calibration: by head.
        settings: with the bound.
    """
    assert settings.max_error is not None
    guarded, found = [], []
    for head in heads:
        kept = [i for i, item in enumerate(items) if head.name in item.targets]
        rows = [i for i, item in enumerate(held) if head.name in item.targets]
        if head.kind not in GUARDED or not kept or not rows:
            guarded.append(head)
            continue
        own = calibration.get(head.name, UNCALIBRATED)
        seen = judge(head, [outputs[head.name][i] for i in kept], [items[i] for i in kept], own)
        tries = thresholds_to_try(seen.confidence, seen.right, settings.max_error)
        judged = [judge(head, [of[head.name][i] for i in rows], [held[i] for i in rows], own) for of in served]
        one = guarantee_of(head.name, tries, judged, settings.max_error, settings.error_confidence)
        guarded.append(replace(head, abstain_below=one.threshold or 0.0))
        found.append(one)
    return guarded, found


def guarantee_of(
    name: str, tries: FloatArray, judged: Sequence[Judged], max_error: float, confidence: float
) -> Guarantee:
    """What can be guaranteed of a head, by the answers of each of its variants to the same rows."""
    ends = [lowest_threshold(tries, one.confidence, one.right, max_error, confidence) for one in judged]
    rows = len(judged[0].right)
    if any(end is None for end in ends):
        return Guarantee(name, max_error, confidence, rows, None)
    # between its start and its end every threshold of a variant was shown to hold: so the highest end holds for all
    threshold = max(end for end in ends if end is not None)
    counts = [(int((one.confidence >= threshold).sum()), one) for one in judged]
    shown = [
        (upper_bound(int((~one.right[one.confidence >= threshold]).sum()), number, confidence), number, one)
        for number, one in counts
    ]
    bound, number, worst = max(shown, key=lambda each: each[0])
    errors = int((~worst.right[worst.confidence >= threshold]).sum())
    return Guarantee(name, max_error, confidence, rows, threshold, number / rows, errors, bound)


def thresholds_to_try(confidence: FloatArray, right: BoolArray, max_error: float) -> FloatArray:
    """Thresholds in the order in which they are tested: from one that these rows leave little doubt of, down to 0.

    Args:
        confidence, right: of answers to rows that are not tested on, ``[rows]``.
        max_error: the bound.
    """
    shares = np.quantile(confidence, np.linspace(0, 1, CANDIDATES), method="lower")
    grid = np.unique(np.append(np.floor(shares * 1e4) / 1e4, 0.0))
    doubts = p_values(confidence, right, grid, max_error)
    sound = np.flatnonzero(doubts <= LITTLE_DOUBT)
    first = int(sound.max()) if len(sound) else int(doubts.argmin())
    found: FloatArray = grid[: first + 1][::-1]
    return found


def lowest_threshold(
    tries: FloatArray, confidence: FloatArray, right: BoolArray, max_error: float, level: float
) -> float | None:
    """The last of ``tries`` before the first that cannot be shown to hold; None when that is the first of all."""
    failed = p_values(confidence, right, tries, max_error) > 1 - level
    number = int(failed.argmax()) if failed.any() else len(tries)
    return float(tries[number - 1]) if number else None


def p_values(confidence: FloatArray, right: BoolArray, thresholds: FloatArray, max_error: float) -> FloatArray:
    """For each threshold, how likely so few errors among the answered rows would be if the error were ``max_error``
    or more: float64 ``[thresholds]``."""
    from scipy.stats import binom

    order = np.argsort(-confidence, kind="stable")
    errors = np.append(0, (~right[order]).cumsum())
    answered = np.searchsorted(-confidence[order], -thresholds, side="right")
    found: FloatArray = binom.cdf(errors[answered], answered, max_error)
    return found


def upper_bound(errors: int, rows: int, confidence: float) -> float:
    """Upper confidence bound of an error rate (Clopper and Pearson)."""
    from scipy.stats import beta

    return 1.0 if errors >= rows else float(beta.ppf(confidence, errors + 1, rows - errors))


def measured_on(
    guarantees: Sequence[Guarantee],
    heads: Sequence[HeadSpec],
    outputs: Outputs,
    items: Sequence[Item],
    calibration: Mapping[str, Calibration],
) -> list[Guarantee]:
    """The guarantees with what the test rows say of them; rows as for ``guard_heads``."""
    found, by_name = [], {head.name: head for head in heads}
    for one in guarantees:
        kept = [i for i, item in enumerate(items) if one.head in item.targets]
        if not kept or one.threshold is None:
            found.append(one)
            continue
        own = calibration.get(one.head, UNCALIBRATED)
        judged = judge(by_name[one.head], [outputs[one.head][i] for i in kept], [items[i] for i in kept], own)
        answered = judged.confidence >= one.threshold
        error = float((~judged.right[answered]).mean()) if answered.any() else None
        found.append(replace(one, test_answered=float(answered.mean()), test_error=error))
    return found
