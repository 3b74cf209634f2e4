"""Pseudo-labels: a model labels rows that nobody did, and is trained again on those that it is sure of (Lee 2013)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from julia1.bundle.heads import HeadSpec
from julia1.errors import InputError
from julia1.runtime.calibration import UNCALIBRATED, probabilities
from julia1.train.config import PseudoLabels
from julia1.train.data.checks import leaks
from julia1.train.data.rows import Answer, DataRow
from julia1.train.finetune import Report, outputs_of
from julia1.train.fit import check_before_training, tune
from julia1.train.head_calibration import calibrate_heads
from julia1.train.items import make_items
from julia1.train.package import Fitted, Tuned, package
from julia1.train.pairing import fitted_scales, reads_pairs
from julia1.train.parts import Parts
from julia1.train.recipe import FineTuning
from julia1.train.start import Start
from julia1.train.teaching import Teacher

LABELLED = ("choice", "yesno")
"""Heads with one answer, which a probability can be sure of."""


@dataclass(frozen=True)
class Round:
    """One training.

    Attributes:
        number: 0 for the one on the labelled rows alone.
        added: pseudo-labelled rows that it was trained on.
        score: on the validation rows; see ``Tuned``.
    """

    number: int
    added: int
    score: float


def self_train(
    parts: Parts,
    unlabelled: Sequence[DataRow],
    start: Start,
    output: Path,
    settings: FineTuning,
    how: PseudoLabels,
    *,
    name: str,
    version: str,
    report: Report | None = None,
    teacher: Teacher | None = None,
) -> tuple[Fitted, list[Round]]:
    """Train, label, train again; write the best round by the validation rows to ``output/bundle``.

    Rounds lie in ``output/round-N`` and are taken up. Unlabelled rows that are evaluated on are left out.

    Raises:
        InputError: a threshold, quota or number of rounds that makes no sense, or no head that can label.
    """
    check_before_training(parts, start, output, settings, name, version)
    if not 0.5 <= how.threshold < 1 or how.rounds < 1 or (how.quota is not None and how.quota < 1):
        raise InputError(
            f"pseudo-labels with threshold {how.threshold:g}, quota {how.quota}, rounds {how.rounds}: a threshold from "
            "0.5 to below 1, and at least one row and one round"
        )
    if reads_pairs(parts.train, settings):
        single = next((row.place for row in unlabelled if not row.second), None)
        if single is not None:
            raise InputError(f"{single}: the row has no second text, the labelled ones have")
    known = {place for place, _ in leaks([*parts.validation, *parts.test], unlabelled)}
    rows = [row for row in unlabelled if row.place not in known]
    tuned = tune(parts, start, output / "round-0", settings, report, teacher)
    best, best_parts, rounds = tuned, parts, [Round(0, 0, tuned.score)]
    for number in range(1, how.rounds + 1):
        added = label(tuned, rows, parts.train, how)
        if not added:
            break
        more = replace(parts, train=[*parts.train, *added], pseudo=len(added))
        tuned = tune(more, start, output / f"round-{number}", settings, report, teacher)
        rounds.append(Round(number, len(added), tuned.score))
        if tuned.score > best.score:
            best, best_parts = tuned, more
    if report:
        report({"kind": "package"})
    return package(best, best_parts, start, output / "bundle", name, version), rounds


def label(tuned: Tuned, rows: Sequence[DataRow], labelled: Sequence[DataRow], how: PseudoLabels) -> list[DataRow]:
    """The rows with the answers that the model is sure of, as augmented rows; those without one are left out.

    Raises:
        InputError: the model has no head with one answer.
    """
    heads = [spec for spec in fitted_scales(tuned.model) if spec.kind in LABELLED]
    if not heads:
        raise InputError("no head to label with: pseudo-labels are for choices and yes/no questions")
    exact = replace(tuned.settings, bf16=False)
    on_validation = outputs_of(tuned.model, tuned.validation, tuned.tokenizer.pad, exact)
    _, calibration = calibrate_heads(heads, on_validation, tuned.validation)
    items = make_items(rows, list(tuned.model.specs), tuned.tokenizer, tuned.settings, tuned.features, tuned.pair)
    outputs = outputs_of(tuned.model, items, tuned.tokenizer.pad, exact)
    answers: dict[int, dict[str, Answer]] = defaultdict(dict)
    soft = {name for row in labelled for name, answer in row.answers.items() if isinstance(answer, Mapping)}
    for head in heads:
        shares = np.stack([probabilities(v, calibration.get(head.name, UNCALIBRATED)) for v in outputs[head.name]])
        for row, answer in _sure(head, shares, how, _quotas(head, labelled, how)):
            answers[row][head.name] = {str(answer): 1.0} if head.name in soft else answer
    return [replace(rows[number], answers=found, augmented=True) for number, found in sorted(answers.items())]


def _quotas(head: HeadSpec, labelled: Sequence[DataRow], how: PseudoLabels) -> Mapping[str, int]:
    if how.quota is not None:
        return dict.fromkeys(head.labels, how.quota)
    counts: dict[str, int] = defaultdict(int)
    for row in labelled:
        answer = row.answers.get(head.name)
        if isinstance(answer, Mapping):
            counts[max(answer, key=lambda label: answer[label])] += 1
        elif isinstance(answer, bool):
            counts["yes" if answer else "no"] += 1
        elif isinstance(answer, str):
            counts[answer] += 1
    return counts


def _sure(
    head: HeadSpec,
    shares: npt.NDArray[np.float64],
    how: PseudoLabels,
    quotas: Mapping[str, int],
) -> list[tuple[int, Answer]]:
    """Rows and their answers, for each label the surest up to its quota."""
    found: list[tuple[int, Answer]] = []
    chosen = shares.argmax(axis=1)
    for number, name in enumerate(head.labels):
        own = [int(row) for row in np.flatnonzero(chosen == number) if shares[row, number] >= how.threshold]
        surest = sorted(own, key=lambda row: -shares[row, number])[: quotas.get(name, 0)]
        found += [(row, name == "yes" if head.kind == "yesno" else name) for row in surest]
    return found
