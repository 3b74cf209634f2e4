"""The ways in which a step may be taken, from what was asked for down to what is safer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import onnx

from julia1.errors import InputError
from julia1.optimize.config import Calibration, Quantize
from julia1.optimize.graph import Arrays, OperatorGraph
from julia1.optimize.quantize.layers import FloatArray, linear_layers
from julia1.optimize.quantize.observing import Range, observe
from julia1.optimize.quantize.rows import FULL_RANGE, REDUCED_RANGE, quantize_rows
from julia1.optimize.quantize.smoothing import find_scales
from julia1.optimize.quantize.static import quantize_static
from julia1.optimize.quantize.weights import quantize_weights
from julia1.optimize.sensitivity import Movement, compare, fewest_kept

MOST_COMPARED = 64
"""Rows on which layers are compared."""
Good = Callable[[onnx.ModelProto], bool]


@dataclass(frozen=True)
class Attempt:
    """One way to take a step.

    Attributes:
        name: what it is called in the record.
        model: what came of it.
        kept: layers that it left in fp32.
    """

    name: str
    model: onnx.ModelProto
    kept: Sequence[str] = ()


class Quantizer:
    """Takes a quantization step.

    Args:
        step: as the file has it.
        graph: of the model before it.
        rows: to calibrate and to compare layers on.
        calibration: how ranges are found.
    """

    def __init__(self, step: Quantize, graph: OperatorGraph, rows: Sequence[Arrays], calibration: Calibration) -> None:
        self._step, self._graph, self._rows, self._calibration = step, graph, rows, calibration
        self._ranges: dict[str, Range] = {}
        self._scales: dict[str, FloatArray] | None = None

    def check(self) -> None:
        """Raise ``InputError`` when there is nothing to quantize, or nothing to calibrate on."""
        if not linear_layers(self._graph):
            raise InputError("the model has no linear layer in fp32 with a stored matrix: it may be quantized already")
        if not self._rows:
            raise InputError("there are no rows to calibrate on: give calibration: data")

    def attempts(self, good: Good) -> Iterator[Attempt]:
        """The ways to take it, the one that was asked for first; each is made when it is asked for.

        Args:
            good: whether a model is good enough; how many layers stay in fp32 goes by it.
        """
        step = self._step
        yield Attempt(_name(step), self.applied(step))
        if step.mixed_precision and (kept := self._fewest(step, good)):
            yield Attempt(f"{_name(step)}, {len(kept)} layers in fp32", self.applied(step, kept), kept)
        safer = _safer(step)
        if safer is not None:
            yield Attempt(_name(safer), self.applied(safer))

    def applied(self, step: Quantize, keep: Sequence[str] = ()) -> onnx.ModelProto:
        """The model after the step, with layers left in fp32."""
        most = REDUCED_RANGE if step.reduce_range else FULL_RANGE
        if step.scheme == "dynamic":
            scales = self._scales_for(most) if step.smoothing else {}
            return quantize_rows(self._graph, keep, tables=step.embeddings, most=most, scales=scales)
        if step.scheme == "static":
            return quantize_static(self._graph, self._static_ranges(), keep, tables=step.embeddings, most=most)
        return quantize_weights(self._graph, step.weight_bit, keep, tables=step.embeddings)

    def movements(self, step: Quantize) -> list[Movement]:
        """How far each linear layer's output departs under the step, in the order of the graph."""
        outputs = [layer.operator.outputs[0] for layer in linear_layers(self._graph)]
        return compare(self._graph.model, self.applied(step), outputs, self._rows[:MOST_COMPARED])

    def _fewest(self, step: Quantize, good: Good) -> list[str]:
        """The layers that must stay in fp32, empty when that does not help."""
        layers = linear_layers(self._graph)
        moved = {one.name: one.decibels for one in self.movements(step)}
        worst = sorted(layers, key=lambda layer: moved[layer.operator.outputs[0]])
        names = [layer.operator.name for layer in worst]
        return fewest_kept(names, lambda kept: good(self.applied(step, kept))) or []

    def _scales_for(self, most: int) -> dict[str, FloatArray]:
        if self._scales is None:
            self._scales = find_scales(self._graph, self._rows[:MOST_COMPARED], most)
        return self._scales

    def _static_ranges(self) -> dict[str, Range]:
        if not self._ranges:
            how = self._calibration
            values = [layer.value for layer in linear_layers(self._graph)]
            observers = observe(self._graph.model, values, self._rows)
            self._ranges = {name: one.best_range(how.method, how.percentile) for name, one in observers.items()}
        return self._ranges


def ways(step: Quantize) -> list[str]:
    """How a step may be taken, in words."""
    safer = _safer(step)
    return [
        _name(step),
        *(["the same with the most moved layers in fp32"] if step.mixed_precision else []),
        *([_name(safer)] if safer else []),
    ]


def _safer(step: Quantize) -> Quantize | None:
    """The step that moves less."""
    if step.weight_bit == 4:
        return replace(step, weight_bit=8)
    if step.scheme == "static":
        return replace(step, scheme="dynamic")
    return replace(step, scheme="weight_only", activation_bit=32) if step.scheme == "dynamic" else None


def _name(step: Quantize) -> str:
    bits = f"int{step.weight_bit}"
    return f"quantize {step.scheme} {bits}" + (
        " of 7 bits" if step.reduce_range and step.scheme != "weight_only" else ""
    )
