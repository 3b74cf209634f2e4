"""Weights in fewer bits: a smaller file, a little more speed.

ONNX Runtime 1.32 makes an operator of its own of such layers, ``MatMulNBits``, which rounds activations by blocks.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from julia1.errors import InputError
from julia1.optimize.graph import OperatorGraph
from julia1.optimize.quantize.layers import FloatArray, Rewriter, chosen, linear_layers, node, steps_by_column
from julia1.optimize.quantize.rows import FULL_RANGE, quantize_tables

BLOCK = 32
"""Inputs that share one step in 4 bits."""
BLOCK_OPSET = 21
"""Operator set from which steps may go by blocks, and types may have 4 bits."""


def quantize_weights(
    graph: OperatorGraph, bits: int = 8, keep: Collection[str] = (), *, tables: bool = True
) -> onnx.ModelProto:
    """Linear layers whose weights are stored in 8 or 4 bits, and embedding tables in 8.

    Args:
        graph: of the model.
        bits: 8, one step an output; or 4, one step for each block of ``BLOCK`` inputs of an output.
        keep: names of linear layers that stay in fp32.
        tables: whether embedding tables are stored in int8.

    Raises:
        InputError: another number of bits, an operator set that is too old for it, or a name in ``keep`` that is none.
    """
    if bits not in (8, 4):
        raise InputError(f"weights of {bits} bits: 8 or 4")
    rewriter = Rewriter(graph, BLOCK_OPSET if bits == 4 else 13)
    decoded: dict[str, str] = {}
    for layer in chosen(linear_layers(graph), keep):
        name = layer.operator.inputs[1]
        nodes = []
        if name not in decoded:
            decoded[name] = rewriter.name(f"{name}.decoded")
            nodes.append(_decoded(rewriter, layer.weight, name, decoded[name], bits))
        output = layer.operator.outputs[0]
        product = rewriter.name(f"{output}.product") if layer.bias else output
        nodes.append(node("MatMul", [layer.value, decoded[name]], product))
        if layer.bias:
            nodes.append(node("Add", [product, layer.bias], output))
        rewriter.replace(layer.operator, nodes)
    if tables:
        quantize_tables(rewriter, graph)
    return rewriter.model()


def _decoded(rewriter: Rewriter, weight: FloatArray, name: str, output: str, bits: int) -> onnx.NodeProto:
    if bits == 8:
        codes, step = steps_by_column(weight, FULL_RANGE)
        inputs = [rewriter.constant(codes, f"{name}.int8"), rewriter.constant(step, f"{name}.steps")]
        return node("DequantizeLinear", inputs, output, axis=1)
    small, steps = steps_by_block(weight)
    stored = helper.make_tensor(
        rewriter.name(f"{name}.int4"), TensorProto.INT4, small.shape, packed(small).tobytes(), raw=True
    )
    inputs = [rewriter.stored(stored), rewriter.constant(steps, f"{name}.steps")]
    return node("DequantizeLinear", inputs, output, axis=0, block_size=BLOCK)


def steps_by_block(weight: FloatArray) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Codes of -7 … 7 and fp32 steps ``[blocks, outputs]``."""
    inputs, outputs = weight.shape
    blocks = -(-inputs // BLOCK)
    full = np.zeros((blocks * BLOCK, outputs), np.float32)
    full[:inputs] = weight
    step = np.abs(full.reshape(blocks, BLOCK, outputs)).max(axis=1) / 7
    step = np.where(step > 0, step, 1).astype(np.float32)
    codes = np.clip(np.rint(weight / np.repeat(step, BLOCK, axis=0)[:inputs]), -7, 7).astype(np.int8)
    return codes, step


def packed(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Two codes of 4 bits a byte, the first in the lower half."""
    flat = codes.ravel().view(np.uint8) & 15
    flat = np.append(flat, np.uint8(0)) if len(flat) % 2 else flat
    return np.asarray(flat[::2] | flat[1::2] << 4, np.uint8)
