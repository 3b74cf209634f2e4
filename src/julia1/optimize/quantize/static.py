"""int8 with steps that calibration fixed beforehand: nothing is measured at run time; what it never saw is clipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import TensorProto

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
    """Linear layers as products of integers.

    They are spelled out. Of ``QuantizeLinear`` and ``DequantizeLinear`` around a ``MatMul``, which engines are to make
    one operator of, ONNX Runtime 1.32 makes a ``Gemm`` with the bias first, and then decodes the weights in every run:
    five times slower than fp32 where it was measured.

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
    rounded: dict[str, tuple[str, str]] = {}
    for layer in chosen(linear_layers(graph), keep):
        rewriter.replace(layer.operator, _nodes(rewriter, layer, ranges[layer.value], rounded, most))
    if tables:
        quantize_tables(rewriter, graph)
    return rewriter.model()


def _nodes(
    rewriter: Rewriter, layer: Linear, how: Range, rounded: dict[str, tuple[str, str]], most: int
) -> list[onnx.NodeProto]:
    output, nodes = layer.operator.outputs[0], []
    if layer.value not in rounded:
        codes = rewriter.name(f"{layer.value}.codes")
        zero = rewriter.constant(np.uint8(how.zero), f"{layer.value}.zero")
        step = rewriter.constant(np.float32(how.step), f"{layer.value}.step")
        nodes.append(node("QuantizeLinear", [layer.value, step, zero], codes))
        rounded[layer.value] = codes, zero
    codes, zero = rounded[layer.value]
    weight, columns = steps_by_column(layer.weight, most)
    steps = rewriter.constant((columns * how.step).astype(np.float32), f"{output}.steps")
    integers, floats, product = (rewriter.name(f"{output}.{part}") for part in ("integers", "floats", "product"))
    nodes += [
        node("MatMulInteger", [codes, rewriter.constant(weight, f"{output}.int8"), zero], integers),
        node("Cast", [integers], floats, to=TensorProto.FLOAT),
        node("Mul", [floats, steps], product if layer.bias else output),
    ]
    if layer.bias:
        nodes.append(node("Add", [product, layer.bias], output))
    return nodes
