"""The acceptance table: export error, quantization loss, F1 beside PyTorch, the time of a decision, a soak.

A figure is never made up: what cannot be measured here says why, and a figure that the bundle brings says that it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from julia1.bench.labelled import Labelled, Outputs
from julia1.bench.soak_report import SoakReport, judge
from julia1.bench.soaking import Report, soak
from julia1.bench.verdicts import Verdict, judged
from julia1.bench.workload import Workload
from julia1.bundle import Bundle, Variant
from julia1.errors import Julia1Error
from julia1.questions import Question
from julia1.runtime.cpu import probe
from julia1.runtime.decider import Decider, load
from julia1.runtime.variants import missing_needs

EXPORT_LIMIT = 1e-4
QUANTIZATION_POINTS = 1.0
F1_POINTS = 0.5
DECISION_SECONDS = 0.05
DECISIONS = 300
"""Rows that are timed at most, spread over all of them."""
WARM_DECISIONS = 10
MISSION_SOAK_MINUTES = 1440
FP32 = "fp32"
POINTS = 100
"""In a figure of 1."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Acceptance:
    """What was found.

    Attributes:
        verdicts: one a criterion.
        soak: what the last is of; None when it was left out.
        figures: by variant, and ``torch``: by head or question, its figures on the rows.
        rows: how many rows there were.
    """

    verdicts: tuple[Verdict, ...]
    soak: SoakReport | None
    figures: dict[str, dict[str, dict[str, float]]]
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "rows": self.rows,
            "criteria": [verdict.to_dict() for verdict in self.verdicts],
            "figures": self.figures,
            "soak": None if self.soak is None else self.soak.to_dict(),
        }


def accept(
    bundle: Bundle,
    decider: Decider,
    labelled: Labelled,
    questions: dict[str, Question] | None = None,
    *,
    soak_minutes: float = 2.0,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Acceptance:
    """Check a bundle against the acceptance table on this machine.

    PyTorch comes last: what it takes of memory and threads must not be seen by the soak.

    Args:
        bundle: the bundle.
        decider: of the variant that is to serve, warm.
        labelled: rows with the right answers.
        questions: what an open model is asked.
        soak_minutes: how long the soak is; 0 leaves it out.
        progress: told what is done next.
        report: told how far the soak is.
    """
    say = progress or (lambda _: None)
    say("timing decisions")
    decision = _decision(decider, labelled)
    say(f"answering {labelled.rows:,} rows with the variant {decider.plan.variant.name}")
    served = labelled.outputs(decider)
    figures = {decider.plan.variant.name: labelled.figures(served)}
    plain = _fp32(bundle)
    exact: Outputs | str
    if isinstance(plain, str):
        exact = plain
    elif plain.name == decider.plan.variant.name:
        exact = served
    else:
        say(f"answering them with the variant {plain.name}")
        exact = labelled.outputs(load(bundle.folder, variant=plain.name, threads=decider.plan.threads))
        figures[plain.name] = labelled.figures(exact)
    soaked = None
    if soak_minutes:
        say(f"soaking for {soak_minutes:g} min")
        workload = Workload(decider.manifest, labelled.given(), questions)
        soaked = judge(soak(decider, workload, soak_minutes * 60, report))
    say("answering them with PyTorch")
    torch = _torch(bundle, labelled)
    if not isinstance(torch, str):
        figures["torch"] = labelled.figures(torch)
    verdicts = (
        _export_error(bundle, plain, exact, torch),
        _quantization_loss(labelled, decider, plain, figures),
        _f1(labelled, decider, torch, figures),
        decision,
        _soak(soaked),
    )
    return Acceptance(verdicts, soaked, figures, labelled.rows)


def _decision(decider: Decider, labelled: Labelled) -> Verdict:
    """Requests of one row each, over rows from everywhere."""
    calls = labelled.calls(decider)
    step = max(1, len(calls) // DECISIONS)
    calls = calls[::step][:DECISIONS]
    for call in (calls * WARM_DECISIONS)[:WARM_DECISIONS]:
        call()
    seconds = []
    for call in calls:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    median, tail = (float(np.quantile(seconds, q)) for q in (0.5, 0.95))
    return judged(
        "single decision",
        tail < DECISION_SECONDS,
        f"median {median * 1000:.1f} ms, p95 {tail * 1000:.1f} ms",
        f"p95 < {DECISION_SECONDS * 1000:g} ms",
        f"{len(calls):,} requests of one row, {decider.plan.variant.name}, {decider.plan.threads} threads",
        median_seconds=median,
        p95_seconds=tail,
        requests=len(calls),
    )


def _export_error(bundle: Bundle, plain: Variant | str, exact: Outputs | str, torch: Outputs | str) -> Verdict:
    name, limit = "export error", f"< {EXPORT_LIMIT:.0e}"
    if not isinstance(exact, str) and not isinstance(torch, str):
        differences = [
            np.abs(one - other).ravel()
            for key, rows in torch.items()
            for one, other in zip(rows, exact[key], strict=True)
        ]
        flat = np.concatenate(differences)
        largest = float(flat.max(initial=0.0))
        note = f"fp32 graph beside PyTorch, over {len(flat):,} outputs of these rows"
        numbers = {"largest": largest, "compared": len(flat), "source": "measured"}
        return judged(name, largest < EXPORT_LIMIT, f"{largest:.1e}", limit, note, **numbers)
    why = exact if isinstance(exact, str) else str(torch)
    recorded = _recorded(next((v for v in bundle.manifest.variants if v.precision == FP32), None))
    if recorded is None:
        return Verdict(name, "not measured", limit=limit, note=why)
    note = f"what the bundle recorded at its export, not measured here: {why}"
    numbers = {"largest": recorded, "source": "recorded"}
    return judged(name, recorded < EXPORT_LIMIT, f"{recorded:.1e}", limit, note, **numbers)


def _recorded(variant: Variant | None) -> float | None:
    """The largest difference to PyTorch that a variant was exported with."""
    for key, value in (variant.measured if variant else {}).items():
        if key.startswith("largest ") and key.endswith(" difference to PyTorch") and isinstance(value, (int, float)):
            return float(value)
    return None


def _quantization_loss(
    labelled: Labelled, decider: Decider, plain: Variant | str, figures: dict[str, dict[str, dict[str, float]]]
) -> Verdict:
    name, limit = "quantization loss", f"< {QUANTIZATION_POINTS:g} point"
    if decider.plan.variant.precision == FP32:
        note = f"the variant that serves here, {decider.plan.variant.name}, is not quantized"
        return Verdict(name, "not measured", limit=limit, note=note)
    if isinstance(plain, str):
        return Verdict(name, "not measured", limit=limit, note=plain)
    losses = _losses(labelled, figures[plain.name], figures[decider.plan.variant.name])
    return _worst(name, losses, limit, labelled, lambda loss: loss < QUANTIZATION_POINTS, plain.name, decider)


def _f1(
    labelled: Labelled,
    decider: Decider,
    torch: Outputs | str,
    figures: dict[str, dict[str, dict[str, float]]],
) -> Verdict:
    name, limit = "F1 beside PyTorch", f"at most {F1_POINTS:g} point lower"
    if isinstance(torch, str):
        return Verdict(name, "not measured", limit=limit, note=torch)
    losses = _losses(labelled, figures["torch"], figures[decider.plan.variant.name])
    return _worst(name, losses, limit, labelled, lambda loss: loss <= F1_POINTS, "PyTorch", decider)


@dataclass(frozen=True)
class _Loss:
    """Points of its main figure that a head or question loses."""

    head: str
    figure: str
    before: float
    after: float

    @property
    def points(self) -> float:
        return (self.before - self.after) * POINTS


def _losses(labelled: Labelled, before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> list[_Loss]:
    from julia1.train.metrics import MAIN

    kinds = labelled.kinds()
    mains = {name: MAIN[kinds[name]] for name in before}
    return [_Loss(name, main, before[name][main], after[name][main]) for name, main in mains.items()]


def _worst(
    name: str,
    losses: Sequence[_Loss],
    limit: str,
    labelled: Labelled,
    holds: Callable[[float], bool],
    reference: str,
    decider: Decider,
) -> Verdict:
    worst = max(losses, key=lambda loss: loss.points)
    note = (
        f"{worst.head}: {worst.figure} {worst.before:.4f} with {reference}, {worst.after:.4f} with "
        f"{decider.plan.variant.name}, {labelled.rows:,} rows"
    )
    if labelled.rows < 2 * POINTS / QUANTIZATION_POINTS:
        note += f" (one of them is worth about {POINTS / labelled.rows:.1f} points: take more)"
    every = {one.head: {"figure": one.figure, "before": one.before, "after": one.after} for one in losses}
    figure = f"{worst.points:+.2f} points"
    return judged(name, holds(worst.points), figure, limit, note, points=worst.points, heads=every)


def _soak(report: SoakReport | None) -> Verdict:
    name, limit = "soak", "no growth, no drift"
    mission = f"the mission's own figure is {MISSION_SOAK_MINUTES:,} min: --soak-minutes {MISSION_SOAK_MINUTES}"
    if report is None:
        return Verdict(name, "not measured", limit=limit, note=f"left out; {mission}")
    wrong = [f"{one.name}: {one.note or one.figure}" for one in report.verdicts if one.status == "fail"]
    open_ones = [f"{one.name} not judged ({one.note})" for one in report.verdicts if one.status == "not measured"]
    seen = report.recording
    figure = f"{seen.seconds / 60:.1f} min, {seen.requests:,} requests"
    numbers = {"minutes": seen.seconds / 60, "interrupted": seen.interrupted}
    notes = [*wrong, *open_ones, *(["interrupted"] if seen.interrupted else [])]
    if seen.seconds < MISSION_SOAK_MINUTES * 60:
        notes.append(mission)
    memory = next(one for one in report.verdicts if one.name == "memory")
    if not wrong and memory.status == "not measured":
        return Verdict(name, "not measured", figure, limit, "; ".join(notes), numbers)
    return judged(name, not wrong, figure, limit, "; ".join(notes), **numbers)


def _fp32(bundle: Bundle) -> Variant | str:
    """The fp32 variant that runs here, or why there is none."""
    why = "the bundle has no fp32 variant"
    for variant in bundle.manifest.variants:
        if variant.precision == FP32:
            missing = missing_needs(variant, probe())
            if not missing:
                return variant
            why = f"the variant {variant.name} cannot run here: {missing}"
    return why


def _torch(bundle: Bundle, labelled: Labelled) -> Outputs | str:
    """What PyTorch gives for the rows, or why it gives nothing."""
    try:
        return labelled.reference(bundle)
    except ModuleNotFoundError as error:
        return f'{error.name} is not installed: pip install "julia1[train]"'
    except Julia1Error as error:
        return str(error)
