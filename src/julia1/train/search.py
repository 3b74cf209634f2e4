"""Search over hyper-parameters: each combination is a run of its own that can be taken up again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from julia1.errors import TrainingError
from julia1.train.finetune import LOG, DivergedError, Report
from julia1.train.fit import check_before_training, tune
from julia1.train.package import Fitted, package
from julia1.train.page import write_whole
from julia1.train.parts import Parts, data_hashes
from julia1.train.prepared import PreparedRows
from julia1.train.recipe import FineTuning
from julia1.train.space import Space, corners
from julia1.train.start import Start
from julia1.train.teaching import Teacher
from julia1.train.trials import Plan, Run, plan_of, require_same

RESULT = "result.json"


class _HopelessError(Exception):
    """Ends a run that is given up; never leaves this module."""


def search(
    parts: Parts,
    start: Start,
    output: Path,
    settings: FineTuning,
    space: Space,
    *,
    name: str,
    version: str,
    trials: int | None = None,
    report: Callable[[Run], None] | None = None,
    notice: Report | None = None,
    teacher: Teacher | None = None,
) -> tuple[Fitted, list[Run]]:
    """Train combinations, write the bundle of the best one to ``output/bundle``, and return all runs.

    Runs lie in ``output/runs``; one that is finished is not trained again, and one that was interrupted is taken up.
    The best is chosen by the validation rows; the test rows are read for it alone, at the end. Rows are tokenized once
    for all runs that read them alike.

    Args:
        parts, start, output, settings, name, version, teacher: as for ``fit``.
        space: what is tried.
        trials: runs of an optimiser; without it, and without a range in ``space``, every combination is trained.
        report: called with every run.
        notice: called once with what ``tune`` has to say of the rows, and when the bundle is begun.

    Raises:
        InputError: a combination that cannot be trained, before any is, or ``output`` holds another search.
        MissingExtraError: an optimiser is needed and not installed.
        TrainingError: all of them failed.
    """
    plan = plan_of(space, trials, settings.seed)
    of = _digest(parts, start, settings, space, teacher)
    for chosen in corners(space):
        check_before_training(parts, start, output, replace(settings, **chosen), name, version)
    rows = PreparedRows(parts, start, teacher)
    runs: list[Run] = []
    noticed: list[dict[str, Any]] = []

    def notice_once(record: dict[str, Any]) -> None:
        if notice and record not in noticed:
            noticed.append(record)
            notice(record)

    for number in range(1, plan.total + 1):
        folder = _folder(output, number)
        run = _finished(folder)
        if run is None:
            run = _train(number, plan, parts, start, folder, settings, rows, teacher, notice_once, of)
        else:
            require_same(run, plan, folder, of)
        runs.append(run)
        if report:
            report(run)
    trained = [run for run in runs if run.score is not None]
    if not trained:
        raise TrainingError(f"every combination failed, the last because {runs[-1].problem}")
    best = max(trained, key=lambda run: run.score or 0.0)
    # a finished run comes back at once, at its best epoch
    chosen_settings = replace(settings, **best.chosen)
    tuned = tune(parts, start, _folder(output, best.number), chosen_settings, teacher=teacher, rows=rows)
    if notice:
        notice({"kind": "package"})
    return package(tuned, parts, start, output / "bundle", name, version), runs


def _train(
    number: int,
    plan: Plan,
    parts: Parts,
    start: Start,
    folder: Path,
    settings: FineTuning,
    rows: PreparedRows,
    teacher: Teacher | None,
    notice: Report,
    of: str,
) -> Run:
    chosen = plan.next(number)
    began = time.monotonic()
    epochs: list[float] = []

    def watch(record: dict[str, Any]) -> None:
        if record["kind"] == "cut":
            notice(record)
        if "validation" in record:
            epochs.append(record["validation"])
            if plan.hopeless(len(epochs), record["validation"]):
                raise _HopelessError

    score, problem, given_up = None, "", False
    try:
        for record in _logged(folder):
            watch(record)
        score = tune(parts, start, folder, replace(settings, **chosen), watch, teacher, rows).score
    except DivergedError as error:
        problem = str(error)
    except _HopelessError:
        problem, given_up = f"given up after {len(epochs)} looks at the validation rows at {epochs[-1]:.4f}", True
    run = Run(number, chosen, score, round(time.monotonic() - began, 1), problem, epochs, given_up, of)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RESULT, json.dumps(run.to_dict(), ensure_ascii=False))
    plan.done(run)
    return run


def _digest(parts: Parts, start: Start, settings: FineTuning, space: Space, teacher: Teacher | None) -> str:
    """The same for searches whose runs can be compared: of the same rows, start, teacher and other settings."""
    others = {name: value for name, value in asdict(settings).items() if name not in space}
    known = [data_hashes(parts)["all"], start.name, teacher.name if teacher else "", others]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _finished(folder: Path) -> Run | None:
    path = folder / RESULT
    return Run(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def _logged(folder: Path) -> list[dict[str, Any]]:
    """Records of the epochs of a run that was interrupted; a line that was torn is none."""
    path = folder / LOG
    if not path.is_file():
        return []
    found = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if record["kind"] == "epoch":
                found[record["epoch"]] = record
    return list(found.values())


def _folder(output: Path, number: int) -> Path:
    return output / "runs" / f"{number:03d}"
