"""The file of an optimization: what is read, how it is judged, which steps are taken, and how much may be lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from julia1.errors import InputError
from julia1.optimize.judging import METRICS, Thresholds
from julia1.optimize.quantize.observing import METHODS, PERCENTILES
from julia1.train.recipe import fill

SCHEMES = ("dynamic", "static", "weight_only")
STEPS = ("quantize",)
RECALL, AGREEMENT, DROP = "recall_drop", "agreement", "_drop"


@dataclass(frozen=True)
class ModelFiles:
    """What is optimized.

    Attributes:
        input_path: an ONNX file whose first output are logits ``[rows, classes]``.
        output_path: a new folder.
        tokenizer: ``tokenizer.json`` of a model that reads text; the one beside the model when ``None``.
        labels: names of the classes in the order of the logits; those of a ``config.json`` beside the model when
            ``None``, or numbers.
        max_tokens: of a text, longer ones are cut.
    """

    input_path: str
    output_path: str
    tokenizer: str | None = None
    labels: list[str] | None = None
    max_tokens: int = 128


@dataclass(frozen=True)
class Evaluation:
    """Rows that the model is judged on.

    Attributes:
        data: labelled rows as ``julia1 data`` reads them, or an ``.npz`` file with an array for each input and
            ``labels``, numbers of the right classes.
        rows: at most so many, drawn at random; all when ``None``.
        metrics: that the report shows first.
    """

    data: str
    rows: int | None = None
    metrics: list[str] = field(default_factory=lambda: ["macro_f1", "accuracy"])


@dataclass(frozen=True)
class Calibration:
    """Rows that the ranges of activations come from.

    Attributes:
        data: as that of the evaluation, labels not needed; rows of the evaluation when ``None``.
        sample_num: at most so many.
        method: ``min_max``, ``percentile`` or ``entropy``.
        percentile: of the largest and the least value that have codes of their own, in percent.
    """

    data: str | None = None
    sample_num: int = 256
    method: str = "percentile"
    percentile: list[float] = field(default_factory=lambda: list(PERCENTILES))


@dataclass(frozen=True)
class Quantize:
    """Fewer bits.

    Attributes:
        type: ``quantize``.
        scheme: ``dynamic``, activations in int8 with one step a row, so that answers depend on no batch and no padding;
            ``static``, with steps from the calibration; ``weight_only``, products in fp32.
        weight_bit: 8, or 4 with ``weight_only``.
        activation_bit: 8; 32 with ``weight_only``.
        smoothing: with ``dynamic``, share channels with outliers between activations and weights where that helps.
        mixed_precision: leave the layers that lose most in fp32 where the model would lose too much.
        embeddings: store tables in int8 too.
        reduce_range: weights of 7 bits, for CPUs without an 8-bit dot product, whose sums of int8 products overflow.
    """

    type: str
    scheme: str = "dynamic"
    weight_bit: int = 8
    activation_bit: int = 8
    smoothing: bool = True
    mixed_precision: bool = True
    embeddings: bool = True
    reduce_range: bool = False


@dataclass(frozen=True)
class Optimization:
    """The steps, in their order."""

    steps: list[Any]


@dataclass(frozen=True)
class _File:
    model: ModelFiles
    evaluation: Evaluation
    optimization: Optimization
    calibration: Calibration = field(default_factory=Calibration)
    rollback_threshold: dict[str, float] = field(default_factory=dict)
    version: int = 1
    seed: int = 0


@dataclass(frozen=True)
class OptimizeConfig:
    """A whole optimization.

    Attributes:
        model, evaluation, calibration: see there.
        steps: in order.
        limits: how much may be lost.
        seed: of what is drawn.
    """

    model: ModelFiles
    evaluation: Evaluation
    calibration: Calibration
    steps: tuple[Quantize, ...]
    limits: Thresholds
    seed: int


def read_config(data: Mapping[str, Any], where: str, folder: Path) -> OptimizeConfig:
    """A configuration from the keys and values of a file.

    Args:
        data: of the file.
        where: how errors call it.
        folder: of the file; relative paths start there.

    Raises:
        InputError: an unknown or missing key, a value of another type or out of its bounds, an unknown step.
    """
    file = fill(_File, data, where)
    if file.version != 1:
        raise InputError(f"{where}: version is {file.version}: this julia1 reads version 1")
    for name in file.evaluation.metrics:
        if name not in METRICS:
            raise InputError(f"{where}: evaluation: there is no metric {name!r}: {', '.join(METRICS)}")
    _require_bounds(file, where)
    steps = tuple(_step(step, f"{where}: optimization: steps[{n}]") for n, step in enumerate(file.optimization.steps))
    if not steps:
        raise InputError(f"{where}: optimization: there are no steps: name at least one of {', '.join(STEPS)}")
    return OptimizeConfig(
        _located(file.model, folder, "input_path", "output_path", "tokenizer"),
        _located(file.evaluation, folder, "data"),
        _located(file.calibration, folder, "data"),
        steps,
        _limits(file.rollback_threshold, f"{where}: rollback_threshold"),
        file.seed,
    )


def _step(data: Any, where: str) -> Quantize:
    kind = data.get("type") if isinstance(data, dict) else None
    if kind not in STEPS:
        raise InputError(f"{where}: the type is {kind!r}: known steps are {', '.join(STEPS)}")
    step = fill(Quantize, data, where)
    if step.scheme not in SCHEMES:
        raise InputError(f"{where}: the scheme is {step.scheme!r}: one of {', '.join(SCHEMES)}")
    bits = (8, 4) if step.scheme == "weight_only" else (8,)
    if step.weight_bit not in bits:
        raise InputError(
            f"{where}: weight_bit is {step.weight_bit}: {' or '.join(map(str, bits))} with the scheme {step.scheme}"
            + ("" if step.scheme == "weight_only" else "; 4 with weight_only")
        )
    if step.activation_bit != 8 and not (step.activation_bit == 32 and step.scheme == "weight_only"):
        raise InputError(
            f"{where}: activation_bit is {step.activation_bit}: 8, or 32 with the scheme weight_only; no engine here "
            "multiplies others, and layers that need more are left in fp32 by mixed_precision"
        )
    return step


def _limits(given: Mapping[str, float], where: str) -> Thresholds:
    drops = {}
    for name, value in given.items():
        metric = name.removesuffix(DROP)
        if name in (RECALL, AGREEMENT):
            continue
        if metric == name or metric not in METRICS:
            known = ", ".join([*(f"{one}{DROP}" for one in METRICS), RECALL, AGREEMENT])
            raise InputError(f"{where}: unknown key {name!r}; known: {known}")
        drops[metric] = value
    more = {key: given[name] for name, key in ((RECALL, "recall_drop"), (AGREEMENT, "agreement")) if name in given}
    try:
        return Thresholds(**({"drops": drops} if drops else {}), **more)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _require_bounds(file: _File, where: str) -> None:
    calibration = file.calibration
    if calibration.method not in METHODS:
        raise InputError(f"{where}: calibration: the method is {calibration.method!r}: one of {', '.join(METHODS)}")
    high, low = calibration.percentile if len(calibration.percentile) == 2 else (0, 1)
    if not 0 <= low < 50 < high <= 100:
        raise InputError(
            f"{where}: calibration: percentile is {calibration.percentile}: two numbers, such as [99.99, 0.01]"
        )
    for name, value in (
        ("model: max_tokens", file.model.max_tokens),
        ("evaluation: rows", file.evaluation.rows),
        ("calibration: sample_num", calibration.sample_num),
    ):
        if value is not None and value < 1:
            raise InputError(f"{where}: {name} is {value}: at least 1")


def _located(part: Any, folder: Path, *names: str) -> Any:
    """A part of the configuration whose paths start at the file's folder."""
    values = {one.name: getattr(part, one.name) for one in fields(part)}
    for name in names:
        if values[name] is not None:
            values[name] = str(folder / values[name])
    return type(part)(**values)
