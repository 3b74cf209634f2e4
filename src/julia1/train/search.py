"""Search over hyper-parameters: a grid, each combination a run of its own that can be taken up again."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from julia1.errors import InputError, TrainingError
from julia1.train.fit import check_before_training, tune
from julia1.train.package import Fitted, package
from julia1.train.parts import Parts
from julia1.train.recipe import FineTuning, fill
from julia1.train.start import Start
from julia1.train.teaching import Teacher

RESULT = "result.json"
MOST_RUNS = 500


@dataclass(frozen=True)
class Run:
    """One combination.

    Attributes:
        number: from 1 on, in the order of the grid.
        chosen: the hyper-parameters that are searched over.
        score: mean over the heads of the figure that each is chosen by, on the validation rows; ``None`` when training
            failed.
        seconds: that it took.
        problem: why training failed.
    """

    number: int
    chosen: Mapping[str, Any]
    score: float | None
    seconds: float
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dataclasses.asdict(self)


def parse_space(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``NAME=VALUE,VALUE`` as the values to try of each hyper-parameter.

    Raises:
        InputError: an unknown name, a value of another type, a name or value given twice, or too many combinations.
    """
    space: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise InputError(f"--search {text!r}: write NAME=VALUE,VALUE")
        if name in space:
            raise InputError(f"--search names {name} twice: give all its values at once")
        found = []
        for value in values.split(","):
            settings = fill(FineTuning, {name: _parsed(value.strip())}, f"--search {text!r}")
            found.append(getattr(settings, name))
        if len(set(found)) < len(found):
            raise InputError(f"--search {text!r}: a value stands twice")
        space[name] = found
    number = 1
    for found in space.values():
        number *= len(found)
    if number > MOST_RUNS:
        raise InputError(f"--search has {number:,} combinations, {MOST_RUNS} are taken at most: leave some out")
    return space


def combinations(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination, the last name varying fastest."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def search(
    parts: Parts,
    start: Start,
    output: Path,
    settings: FineTuning,
    space: Mapping[str, Sequence[Any]],
    *,
    name: str,
    version: str,
    report: Callable[[Run], None] | None = None,
    teacher: Teacher | None = None,
) -> tuple[Fitted, list[Run]]:
    """Train every combination, write the bundle of the best one to ``output/bundle``, and return all runs.

    Runs lie in ``output/runs``; one that is finished is not trained again, and one that was interrupted is taken up.
    The best is chosen by the validation rows; the test rows are read for it alone, at the end.

    Raises:
        InputError: a combination that cannot be trained, before any is.
        TrainingError: all of them failed.
    """
    grid = combinations(space)
    for chosen in grid:
        check_before_training(parts, start, output, replace(settings, **chosen), name, version)
    runs = []
    for number, chosen in enumerate(grid, start=1):
        run = _run(number, chosen, parts, start, output, settings, teacher)
        runs.append(run)
        if report:
            report(run)
    trained = [run for run in runs if run.score is not None]
    if not trained:
        raise TrainingError(f"every combination failed, the last because {runs[-1].problem}")
    best = max(trained, key=lambda run: run.score or 0.0)
    # a finished run comes back at once, at its best epoch
    tuned = tune(parts, start, _folder(output, best.number), replace(settings, **best.chosen), teacher=teacher)
    return package(tuned, parts, start, output / "bundle", name, version), runs


def _run(
    number: int,
    chosen: Mapping[str, Any],
    parts: Parts,
    start: Start,
    output: Path,
    settings: FineTuning,
    teacher: Teacher | None,
) -> Run:
    folder = _folder(output, number)
    result = folder / RESULT
    if result.is_file():
        saved = Run(**json.loads(result.read_text(encoding="utf-8")))
        if dict(saved.chosen) != dict(chosen):
            raise InputError(f"{folder} is a run of another search ({dict(saved.chosen)}): name another output folder")
        return saved
    began = time.monotonic()
    try:
        score, problem = tune(parts, start, folder, replace(settings, **chosen), teacher=teacher).score, ""
    except TrainingError as error:
        score, problem = None, str(error)
    run = Run(number, chosen, score, round(time.monotonic() - began, 1), problem)
    temporary = result.with_suffix(".tmp")
    temporary.write_text(json.dumps(run.to_dict(), ensure_ascii=False), encoding="utf-8")
    temporary.replace(result)
    return run


def _folder(output: Path, number: int) -> Path:
    return output / "runs" / f"{number:03d}"


def _parsed(text: str) -> Any:
    """A number or truth value where the text is one."""
    try:
        return json.loads(text)
    except ValueError:
        return text
