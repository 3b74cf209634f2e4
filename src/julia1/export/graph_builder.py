"""Builds an ONNX graph node by node; weights stay in the shared file, linear layers run in fp32 or in int8.

Graphs are written here and not traced from PyTorch: what an exporter emits for an encoder is twice as many nodes, and
at the length of a short text every node counts. Only standard operators are used.

*fp32*: a matrix is ``codes · scale / input scale``, folded to fp32 once when a session is made.

*int8*: activations are rounded to uint8 with one step a row, then multiplied as uint8 x int8. A row's step depends on
nothing but the row. The usual dynamic quantization takes one step a tensor, and an answer then depends on what it is
batched or padded with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from julia1.export.shared_weights import SharedWeights
from julia1.model.weights import INPUT_SCALE_SUFFIX, SCALE_SUFFIX

OPSET = 21
"""Opset 23 has an Attention operator, 4 % faster, which ONNX Runtime 1.23 (the last for Python 3.10) half knows."""
ZERO_POINT = 128
GELU_FLOOR = 0.17
"""GELU never falls below -0.17: shifted by this its output is positive and can use all 255 levels."""


class GraphBuilder:
    """Collects nodes and initializers. Every method that adds nodes returns the name of their result.

    Args:
        weights: the shared file.
        int8: multiply linear layers in int8, but for those that are asked to stay in fp32.
    """

    def __init__(self, weights: SharedWeights, int8: bool) -> None:
        self.weights = weights
        self.int8 = int8
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}
        self._names: dict[str, int] = {}

    def add(self, op_type: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """Add a node with one output."""
        return self.add_many(op_type, inputs, 1, name, **attributes)[0]

    def add_many(
        self, op_type: str, inputs: Sequence[str], outputs: int, name: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs."""
        stem = name or op_type
        count = self._names[stem] = self._names.get(stem, -1) + 1
        unique = f"{stem}.{count}" if count else stem
        results = [unique] if outputs == 1 else [f"{unique}.out{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, inputs, results, name=unique, **attributes))
        return results

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.float32, name: str = "") -> str:
        """A small constant; the same numbers are stored once."""
        array = np.asarray(value, dtype)
        label = name or f"const.{array.dtype.name}.{'x'.join(map(str, array.shape))}.{array.ravel().tolist()}"
        self._initializers.setdefault(label, numpy_helper.from_array(array, label))
        return label

    def stored(self, name: str) -> str:
        """A tensor of the weight file."""
        if name not in self._initializers:
            self._initializers[name] = self.weights.initializer(name)
        return name

    def flat(self, value: str, columns: int) -> str:
        """``[..., columns]`` to ``[rows, columns]``."""
        return self.add("Reshape", [value, self.constant([-1, columns], np.int64)])

    def layer_norm(self, value: str, name: str, epsilon: float) -> str:
        """Layer normalization over the last axis with the stored gain of ``name``, and its bias if it has one."""
        bias = [f"{name}.bias"] if f"{name}.bias" in self.weights.table else []
        inputs = [value, *map(self.stored, [f"{name}.weight", *bias])]
        return self.add("LayerNormalization", inputs, name, axis=-1, epsilon=epsilon)

    def linear(
        self,
        value: str,
        layer: str,
        *,
        after_gelu: bool = False,
        prescaled: bool = False,
        output_scale: npt.NDArray[np.float32] | None = None,
        output_shift: npt.NDArray[np.float32] | None = None,
    ) -> str:
        """A linear layer on ``[rows, inputs]``, in the precision of the graph.

        Args:
            value: the input.
            layer: stored name.
            after_gelu: the input is the output of a GELU.
            prescaled: the input has been shifted and divided by the layer's input scales already.
            output_scale, output_shift: give ``(outputs - shift) / scale``, which costs nothing; int8 only.
        """
        if not self.int8:
            return self.float_linear(value, layer)
        shift = self._input_shift(layer, after_gelu)
        scale, bias = self._scale_and_bias(layer, shift, output_scale, output_shift)
        factor = self.weights.input_scale(layer)
        if not prescaled:
            if shift is not None:
                value = self.add("Sub", [value, self.constant(shift, name=f"{layer}.shift")], f"{layer}.shifted")
            if factor is not None:
                inverse = self.constant(1 / factor, name=f"{layer}.inverse_scale")
                value = self.add("Mul", [value, inverse], f"{layer}.input")
        rounded, step = self._rounded(value, layer, after_gelu)
        zero = self.constant(0 if after_gelu else ZERO_POINT, np.uint8)
        # ONNX Runtime's own MatMulIntegerToFloat would save a pass: 1 to 2 % of the whole, not worth a private operator
        product = self.add("MatMulInteger", [rounded, self.stored(f"{layer}.weight"), zero], f"{layer}.integers")
        product = self.add("Cast", [product], f"{layer}.product", to=TensorProto.FLOAT)
        by_column = self.add("Mul", [product, scale], f"{layer}.by_column")
        return self.add("Add", [self.add("Mul", [by_column, step], f"{layer}.by_row"), bias], layer)

    def float_linear(self, value: str, layer: str) -> str:
        """A linear layer on ``[rows, inputs]`` in fp32, whatever the graph's precision."""
        product = self.add("MatMul", [value, self._float_matrix(layer)], f"{layer}.product")
        return self.add("Add", [product, self.stored(f"{layer}.bias")], layer)

    def model(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(self._nodes, "julia1", inputs, outputs, list(self._initializers.values()))
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=10, producer_name="julia1")

    def _input_shift(self, layer: str, after_gelu: bool) -> npt.NDArray[np.float32] | None:
        return np.array([-GELU_FLOOR], np.float32) if after_gelu else self.weights.input_shift(layer)

    def _scale_and_bias(
        self,
        layer: str,
        shift: npt.NDArray[np.float32] | None,
        output_scale: npt.NDArray[np.float32] | None,
        output_shift: npt.NDArray[np.float32] | None,
    ) -> tuple[str, str]:
        scale, bias = self.stored(f"{layer}.weight{SCALE_SUFFIX}"), self.stored(f"{layer}.bias")
        moved = self.weights.value(f"{layer}.bias")
        if shift is not None:
            moved = moved + (shift[:, None] * self.weights.matrix(layer)).sum(0)
        if output_shift is not None:
            moved = moved - output_shift
        if output_scale is not None:
            moved = moved / output_scale
            rescaled = self.weights.value(f"{layer}.weight{SCALE_SUFFIX}") / output_scale
            scale = self.constant(rescaled, name=f"{layer}.rescaled")
        if not (shift is None and output_shift is None and output_scale is None):
            bias = self.constant(moved, name=f"{layer}.moved_bias")
        return scale, bias

    def _float_matrix(self, layer: str) -> str:
        name = f"{layer}.weight"
        floats = self.add("Cast", [self.stored(name)], f"{name}.cast", to=TensorProto.FLOAT)
        value = self.add("Mul", [floats, self.stored(name + SCALE_SUFFIX)], f"{name}.scaled")
        if self.weights.input_scale(layer) is None:
            return value
        column = self.add(
            "Unsqueeze", [self.stored(name + INPUT_SCALE_SUFFIX), self.constant([1], np.int64)], f"{name}.column"
        )
        return self.add("Div", [value, column], f"{name}.float")

    def _rounded(self, value: str, layer: str, positive: bool) -> tuple[str, str]:
        """uint8 codes ``[rows, inputs]`` and their fp32 steps ``[rows, 1]``."""
        magnitude = value if positive else self.add("Abs", [value], f"{layer}.abs")
        axis = self.constant([1], np.int64)
        largest = self.add("ReduceMax", [magnitude, axis], f"{layer}.largest", keepdims=0)
        step = self.add("Mul", [largest, self.constant(1 / (255 if positive else 127))], f"{layer}.step")
        inputs = [value, step]
        if not positive:
            zero = self.constant(ZERO_POINT, np.uint8)
            inputs.append(self.add("Expand", [zero, self.add("Shape", [step])], f"{layer}.zero_points"))
        rounded = self.add("QuantizeLinear", inputs, f"{layer}.codes", axis=0)
        return rounded, self.add("Unsqueeze", [step, axis], f"{layer}.row_step")
