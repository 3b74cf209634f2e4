"""An optimization from its file to a folder: a baseline, step after step under guard, a record of all that was done."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from julia1.bundle.files import partial_name, write_whole
from julia1.errors import InputError, VerificationError
from julia1.export.onnx_file import read_model
from julia1.optimize.config import OptimizeConfig, Quantize
from julia1.optimize.graph import Arrays, OperatorGraph, new_session
from julia1.optimize.judging import Judgement, figures, judge
from julia1.optimize.quantize.layers import linear_layers
from julia1.optimize.rows import Rows, logits_of, read_labelled, read_unlabelled
from julia1.optimize.steps import Quantizer, ways
from julia1.optimize.timing import Stage, measure

MODEL_FILE, RECORD_FILE, PAGE_FILE = "model.onnx", "optimize_report.json", "optimize_report.html"
MOST_FAILURES = 2
"""Failures in a row that end a step."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Try:
    """One way that a step was taken, and what came of it.

    Attributes:
        step: number of the step, from 0.
        name: of the way.
        kept_layers: left in fp32.
        judgement: beside the baseline.
    """

    step: int
    name: str
    kept_layers: list[str]
    judgement: Judgement

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "kept": self.judgement.kept}


@dataclass(frozen=True)
class Result:
    """What an optimization came to.

    Attributes:
        baseline: figures of the model as it was.
        tries: in order.
        stages: what the baseline and each step that was kept cost.
        output: the folder.
    """

    baseline: dict[str, float]
    tries: list[Try]
    stages: list[Stage]
    output: Path
    rows: int = 0
    files: list[str] = field(default_factory=list)

    @property
    def rolled_back(self) -> list[int]:
        """Numbers of the steps of which nothing was kept."""
        steps = dict.fromkeys(one.step for one in self.tries)
        return [step for step in steps if not any(one.judgement.kept for one in self.tries if one.step == step)]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "rows": self.rows,
            "baseline": self.baseline,
            "tries": [one.to_dict() for one in self.tries],
            "stages": [asdict(stage) for stage in self.stages],
            "rolled_back": self.rolled_back,
        }


def optimize(config: OptimizeConfig, tell: Tell) -> Result:
    """Take the steps and write the result.

    Every way to take a step is judged against the *baseline*, in ONNX Runtime as it will serve, on the same rows; so
    small losses of several steps cannot add up unseen. What is good is kept, and the next step starts from it; two
    failures in a row end a step, and the model stays as it was before it. What was judged once is not judged again when
    an interrupted run is started anew.

    Args:
        config: of the run.
        tell: is told what happens, a line at a time.

    Raises:
        InputError: a file is missing or broken, rows and model do not fit, or the output folder is in use.
    """
    source, output = Path(config.model.input_path), Path(config.model.output_path)
    model, rows, calibration = _opened(config)
    run = _Run(config, output, source, tell)
    session = new_session(model, optimised=True)
    before = logits_of(session, rows)
    found = figures(before, rows.wanted)
    baseline = {name: found[name] for name in dict.fromkeys([*config.evaluation.metrics, *found]) if name in found}
    tell("baseline: " + ", ".join(f"{name} {value:.4f}" for name, value in baseline.items()))
    models = {"baseline": model}
    tries: list[Try] = []
    current = model
    for number, step in enumerate(config.steps):
        quantizer = Quantizer(step, OperatorGraph(current, rows.feeds[0]), calibration, config.calibration)
        quantizer.check()
        kept = run.take(number, step, quantizer, rows, before, tries)
        if kept is not None:
            current = kept
            models[tries[-1].name] = kept
    stages = measure(models, rows.feeds, tell)
    result = Result(baseline, tries, stages, output, len(rows.feeds))
    run.write(result, current, source)
    return result


def planned(config: OptimizeConfig) -> list[str]:
    """What a run would do, a line each, after its files were read and the model ran once.

    Raises:
        InputError: as ``optimize``.
    """
    model, rows, calibration = _opened(config)
    output = Path(config.model.output_path)
    _require_new(output)
    graph = OperatorGraph(model, rows.feeds[0])
    limits = config.limits
    drops = ", ".join(f"{name} by {drop:g}" for name, drop in limits.drops.items())
    lines = [
        f"model: {config.model.input_path}, {len(graph.operators):,} operators, "
        f"{len(linear_layers(graph))} linear layers",
        f"judged on {len(rows.feeds):,} rows of {len(rows.classes)} classes, calibrated on {len(calibration):,}",
    ]
    for number, step in enumerate(config.steps, start=1):
        Quantizer(step, graph, calibration, config.calibration).check()
        lines.append(f"step {number}: {', then where that loses too much '.join(ways(step))}")
    return [
        *lines,
        f"kept while nothing falls: {drops}, recall of a class by {limits.recall_drop:g}; at least "
        f"{limits.agreement:.0%} the same answers",
        f"written to {output}",
    ]


def _opened(config: OptimizeConfig) -> tuple[onnx.ModelProto, Rows, list[Arrays]]:
    """The model, the rows it is judged on, and those it is calibrated on."""
    model = read_model(Path(config.model.input_path))
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in stored]
    evaluation, calibration = config.evaluation, config.calibration
    rows = read_labelled(config.model, inputs, Path(evaluation.data), evaluation.rows, config.seed)
    place = Path(calibration.data or evaluation.data)
    return model, rows, read_unlabelled(config.model, inputs, place, calibration.sample_num, config.seed)


def _require_new(output: Path) -> None:
    if output.exists():
        raise InputError(f"{output} exists: name a new folder, nothing is overwritten")


class _Run:
    """The record of a run beside its output, so that it can be taken up."""

    def __init__(self, config: OptimizeConfig, output: Path, source: Path, tell: Tell) -> None:
        _require_new(output)
        self._config, self._output, self._tell = config, output, tell
        self._folder = output.with_name(f"{output.name}.run")
        self._fingerprint = _fingerprint(config, source)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write {self._folder}: {error.strerror}") from None

    def take(
        self,
        number: int,
        step: Quantize,
        quantizer: Quantizer,
        rows: Rows,
        before: npt.NDArray[np.float32],
        tries: list[Try],
    ) -> onnx.ModelProto | None:
        """Try the ways of a step until one is good; what it came to, ``None`` when nothing is kept."""

        def judged(model: onnx.ModelProto) -> Judgement:
            after = self._logits(model, rows)
            return judge(before, after, rows.wanted, rows.classes, self._config.limits, self._config.seed)

        attempts = quantizer.attempts(lambda model: judged(model).kept)
        for failures, attempt in enumerate(attempts, start=1):
            judgement = judged(attempt.model)
            tries.append(Try(number, attempt.name, list(attempt.kept), judgement))
            self._say(tries[-1])
            if judgement.kept:
                return attempt.model
            if failures >= MOST_FAILURES:
                break
        self._tell(f"step {number + 1} ({step.type}) is rolled back: the model stays as it was before it")
        return None

    def write(self, result: Result, model: onnx.ModelProto, source: Path) -> None:
        """Put the folder in place, whole or not at all; the record of the run goes."""
        from julia1.optimize.report import report_page

        partial = self._output.with_name(partial_name(self._output.name))
        try:
            partial.mkdir()
            (partial / MODEL_FILE).write_bytes(model.SerializeToString())
            for name in ("tokenizer.json", "config.json"):
                beside = source.parent / name
                if name == "tokenizer.json" and self._config.model.tokenizer:
                    beside = Path(self._config.model.tokenizer)
                if beside.is_file():
                    shutil.copyfile(beside, partial / name)
            content = {"fingerprint": self._fingerprint, "config": _plain(self._config), **result.to_dict()}
            write_whole(partial / RECORD_FILE, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
            write_whole(partial / PAGE_FILE, report_page(source.name, result))
            result.files.extend(sorted(one.name for one in partial.iterdir()))
            partial.rename(self._output)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise InputError(f"cannot write {self._output}: {error.strerror}") from None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _logits(self, model: onnx.ModelProto, rows: Rows) -> npt.NDArray[np.float32]:
        """What a model gives for the rows; read back where an earlier run had it already."""
        content = model.SerializeToString(deterministic=True)
        place = self._folder / f"{hashlib.sha256(self._fingerprint.encode() + content).hexdigest()[:24]}.npy"
        if place.is_file():
            try:
                found: npt.NDArray[np.float32] = np.load(place, allow_pickle=False)
                return found
            except (OSError, ValueError):
                place.unlink(missing_ok=True)
        found = logits_of(new_session(model, optimised=True), rows)
        partial = place.with_name(partial_name(place.name))
        with partial.open("wb") as stream:
            np.save(stream, found)
        partial.replace(place)
        return found

    def _say(self, one: Try) -> None:
        judgement = one.judgement
        told = ", ".join(f"{name} {value:.4f}" for name, value in judgement.metrics.items())
        self._tell(f"step {one.step + 1}, {one.name}: {told}, {judgement.agreement:.2%} the same answers")
        for reason in judgement.failures:
            self._tell(f"  not kept: {reason}")
        for note in judgement.notes:
            self._tell(f"  note: {note}")


def require_kept(result: Result) -> None:
    """Raise ``VerificationError`` when a step was rolled back."""
    if result.rolled_back:
        steps = ", ".join(str(step + 1) for step in result.rolled_back)
        raise VerificationError(
            f"step {steps} was rolled back; {result.output} holds the model with the steps that were kept"
        )


def _fingerprint(config: OptimizeConfig, source: Path) -> str:
    """Of all that decides the judgements: the model, the rows and the settings."""
    digest = hashlib.sha256(json.dumps(_plain(config), sort_keys=True, default=str).encode())
    place = source
    try:
        for place in (source, Path(config.evaluation.data), Path(config.calibration.data or config.evaluation.data)):
            digest.update(place.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {place}: {error.strerror}") from None
    return digest.hexdigest()


def _plain(config: OptimizeConfig) -> dict[str, Any]:
    data = asdict(config)
    data["limits"] = {**data["limits"], "drops": dict(config.limits.drops)}
    return data
