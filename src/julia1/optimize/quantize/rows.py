"""int8 with one step for each row of activations: answers do not depend on what a row is batched or padded with.

The usual dynamic quantization takes one step for a whole tensor: the same text then gets other logits in another batch.
Here a row's step depends on the row alone, and the products are of integers, which add up the same in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import TensorProto

from julia1.optimize.graph import OperatorGraph
from julia1.optimize.quantize.layers import (
    FloatArray,
    Linear,
    Rewriter,
    chosen,
    linear_layers,
    lookup_tables,
    node,
    steps_by_column,
)

AXES_AS_INPUT = 18
"""Operator set from which ``ReduceMax`` is given its axes as an input."""
ZERO_POINT = 128
FULL_RANGE, REDUCED_RANGE = 127, 63
"""Largest code of a weight. CPUs without an 8-bit dot product add two products of uint8 and int8 up in 16 bits, which
overflow above 64 (``vpmaddubsw``)."""


def quantize_rows(
    graph: OperatorGraph,
    keep: Collection[str] = (),
    *,
    tables: bool = True,
    most: int = FULL_RANGE,
    scales: Mapping[str, FloatArray] | None = None,
) -> onnx.ModelProto:
    """Linear layers in int8 with a step a row, and embedding tables with a step a row.

    Args:
        graph: of the model.
        keep: names of linear layers that stay in fp32.
        tables: whether embedding tables are stored in int8 too.
        most: largest code of a weight, ``FULL_RANGE`` or ``REDUCED_RANGE``.
        scales: of channels, by tensor, see ``smoothing.find_scales``.

    Raises:
        InputError: the operator set is too old, or ``keep`` names a layer that there is not.
    """
    rewriter = Rewriter(graph)
    shared = _Shared(rewriter, scales or {})
    for layer in chosen(linear_layers(graph), keep):
        _replace(rewriter, shared, layer, most)
    if tables:
        quantize_tables(rewriter, graph)
    return rewriter.model()


def quantize_tables(rewriter: Rewriter, graph: OperatorGraph) -> None:
    """Store embedding tables as int8 with one step a row; a lookup decodes the rows that it finds."""
    last = rewriter.constant(np.array([-1]), "tables.last")
    stored: dict[str, tuple[str, str]] = {}
    for table in lookup_tables(graph):
        one = table.operator
        name, ids = one.inputs
        if name not in stored:
            codes, step = steps_by_column(table.rows.T, FULL_RANGE)
            stored[name] = rewriter.constant(codes.T, f"{name}.int8"), rewriter.constant(step, f"{name}.steps")
        output = one.outputs[0]
        found, floats, steps, column = (
            rewriter.name(f"{output}.{part}") for part in ("codes", "floats", "step", "column")
        )
        rewriter.replace(
            one,
            [
                node("Gather", [stored[name][0], ids], found),
                node("Cast", [found], floats, to=TensorProto.FLOAT),
                node("Gather", [stored[name][1], ids], steps),
                node("Unsqueeze", [steps, last], column),
                node("Mul", [floats, column], output),
            ],
        )


class _Shared:
    """What layers that read the same value share: its codes and its steps."""

    def __init__(self, rewriter: Rewriter, scales: Mapping[str, FloatArray]) -> None:
        self._rewriter = rewriter
        self.scales = scales
        self._made: dict[str, tuple[str, str]] = {}
        constant = rewriter.constant
        self._last = constant(np.array([-1]), "rows.last")
        self._share = constant(np.float32(1 / 127), "rows.share")
        self._least = constant(np.float32(1e-30), "rows.least")
        self.zero = constant(np.uint8(ZERO_POINT), "rows.zero_point")

    def of(self, value: str, width: int, nodes: list[onnx.NodeProto]) -> tuple[str, str]:
        """Names of the uint8 codes, shaped like the value, and of the steps ``[..., 1]``; adds what makes them to
        ``nodes`` the first time."""
        if value in self._made:
            return self._made[value]
        name, read = self._rewriter.name, value
        if value in self.scales:
            read = name(f"{value}.even")
            nodes.append(node("Mul", [value, self._rewriter.constant(1 / self.scales[value], f"{value}.scale")], read))
        parts = ("size", "largest", "least", "step", "steps", "count", "zeros", "shape", "flat", "flat_codes", "codes")
        size, largest, least, step, flat_step, count, zeros, shape, flat, flat_codes, codes = (
            name(f"{value}.{part}") for part in parts
        )
        rows = self._rewriter.constant(np.array([-1, width]), f"{value}.rows")
        nodes += [
            node("Abs", [read], size),
            self._largest(size, largest),
            node("Max", [largest, self._least], least),
            node("Mul", [least, self._share], step),
            # one step a row takes a list of steps and two axes
            node("Reshape", [step, self._last], flat_step),
            node("Shape", [flat_step], count),
            node("Expand", [self.zero, count], zeros),
            node("Shape", [read], shape),
            node("Reshape", [read, rows], flat),
            node("QuantizeLinear", [flat, flat_step, zeros], flat_codes, axis=0),
            node("Reshape", [flat_codes, shape], codes),
        ]
        self._made[value] = codes, step
        return self._made[value]

    def _largest(self, size: str, output: str) -> onnx.NodeProto:
        if self._rewriter.opset < AXES_AS_INPUT:
            return node("ReduceMax", [size], output, axes=[-1], keepdims=1)
        return node("ReduceMax", [size, self._last], output, keepdims=1)


def _replace(rewriter: Rewriter, shared: _Shared, layer: Linear, most: int) -> None:
    nodes: list[onnx.NodeProto] = []
    codes, step = shared.of(layer.value, layer.weight.shape[0], nodes)
    scale = shared.scales.get(layer.value)
    weight, columns = steps_by_column(layer.weight if scale is None else layer.weight * scale[:, None], most)
    output = layer.operator.outputs[0]
    integers, floats, by_column, by_row = (
        rewriter.name(f"{output}.{part}") for part in ("integers", "floats", "by_column", "by_row")
    )
    nodes += [
        node("MatMulInteger", [codes, rewriter.constant(weight, f"{output}.int8"), shared.zero], integers),
        node("Cast", [integers], floats, to=TensorProto.FLOAT),
        node("Mul", [floats, rewriter.constant(columns, f"{output}.steps")], by_column),
        node("Mul", [by_column, step], by_row if layer.bias else output),
    ]
    if layer.bias:
        nodes.append(node("Add", [by_row, layer.bias], output))
    rewriter.replace(layer.operator, nodes)
