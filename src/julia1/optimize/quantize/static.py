"""int8 with steps that calibration fixed beforehand: nothing is measured at run time; what it never saw is clipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx

from julia1.optimize.graph import OperatorGraph
from julia1.optimize.quantize.layers import Linear, Rewriter, chosen, linear_layers, node, steps_by_column
from julia1.optimize.quantize.observing import Range
from julia1.optimize.quantize.rows import FULL_RANGE, quantize_tables


def quantize_static(
    graph: OperatorGraph,
    ranges: Mapping[str, Range],
    keep: Collection[str] = (),
    *,
    tables: bool = True,
    most: int = FULL_RANGE,
) -> onnx.ModelProto:
    """Linear layers between ``QuantizeLinear`` and ``DequantizeLinear``, which engines make one int8 operator of.

    Only inputs and weights of linear layers are rounded: residual sums, softmax and normalization stay in fp32.

    Args:
        graph: of the model.
        ranges: of every linear layer's input, by tensor, see ``Observer.best_range``.
        keep: names of linear layers that stay in fp32.
        tables: whether embedding tables are stored in int8 too.
        most: largest code of a weight, see ``quantize_rows``.

    Raises:
        InputError: the operator set is too old, or ``keep`` names a layer that there is not.
    """
    rewriter = Rewriter(graph)
    rounded: dict[str, str] = {}
    for layer in chosen(linear_layers(graph), keep):
        rewriter.replace(layer.operator, _nodes(rewriter, layer, ranges[layer.value], rounded, most))
    if tables:
        quantize_tables(rewriter, graph)
    return rewriter.model()


def _nodes(rewriter: Rewriter, layer: Linear, how: Range, rounded: dict[str, str], most: int) -> list[onnx.NodeProto]:
    output, nodes = layer.operator.outputs[0], []
    if layer.value not in rounded:
        codes, rounded[layer.value] = (rewriter.name(f"{layer.value}.{part}") for part in ("codes", "rounded"))
        places = [
            rewriter.constant(np.float32(how.step), f"{layer.value}.step"),
            rewriter.constant(np.uint8(how.zero), f"{layer.value}.zero"),
        ]
        nodes += [
            node("QuantizeLinear", [layer.value, *places], codes),
            node("DequantizeLinear", [codes, *places], rounded[layer.value]),
        ]
    codes_of_weight, step = steps_by_column(layer.weight, most)
    stored = [rewriter.constant(codes_of_weight, f"{output}.int8"), rewriter.constant(step, f"{output}.steps")]
    weight = rewriter.name(f"{output}.weight")
    product = rewriter.name(f"{output}.product") if layer.bias else output
    nodes += [
        node("DequantizeLinear", stored, weight, axis=1),
        node("MatMul", [rounded[layer.value], weight], product),
    ]
    if layer.bias:
        nodes.append(node("Add", [product, layer.bias], output))
    return nodes
