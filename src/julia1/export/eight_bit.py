"""Rewrite a traced graph so that its weights come, as int8, from one shared file; in fp32 or in int8 arithmetic.

*fp32*: each matrix is ``codes · scale``, folded to fp32 once when a session is made.

*int8*: activations are quantized at run time with one scale a token row, then multiplied as uint8 × int8 in
``MatMulInteger``. A row's scale depends on nothing but the row, so an answer cannot depend on what it is batched or
padded with; the usual dynamic quantization takes one scale a tensor and fails exactly there. Only standard operators:
``QuantizeLinear`` with one scale a row of the flattened input does the rounding in a single pass.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from julia1.errors import VerificationError
from julia1.model.weights import SCALE_SUFFIX

ZERO_POINT = 128
GELU_FLOOR = 0.17
"""GELU never falls below -0.17: shifted by this its output is positive and can use all 255 levels."""

_TYPES = {"F32": TensorProto.FLOAT, "I8": TensorProto.INT8}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in a safetensors file."""

    type: int
    shape: tuple[int, ...]
    offset: int
    length: int


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The table of contents of a safetensors file, offsets counted from the start of the file."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    return {
        name: StoredTensor(
            _TYPES[entry["dtype"]],
            tuple(entry["shape"]),
            8 + size + entry["data_offsets"][0],
            entry["data_offsets"][1] - entry["data_offsets"][0],
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }


class SharedWeights:
    """Names the stored tensor behind an initializer, by content: exporters rename and transpose weights."""

    def __init__(self, path: Path) -> None:
        from safetensors.numpy import load_file

        self.location = path.name
        self.table = stored_tensors(path)
        tensors: Mapping[str, npt.NDArray[Any]] = load_file(path)
        self._arrays = tensors
        self._by_content: dict[tuple[tuple[int, ...], bytes], str] = {}
        for name, array in tensors.items():
            if name.endswith(SCALE_SUFFIX):
                continue
            scale = tensors.get(name + SCALE_SUFFIX)
            value = array.astype(np.float32)
            if scale is not None:
                value = value * scale
            self._by_content.setdefault(_content_key(value), name)

    def find(self, value: npt.NDArray[Any]) -> str | None:
        """The stored name of a float initializer, or ``None``."""
        return self._by_content.get(_content_key(value))

    def quantized(self, name: str) -> bool:
        """Whether a stored tensor is codes with a scale."""
        return name + SCALE_SUFFIX in self.table

    def column_sums(self, name: str) -> npt.NDArray[np.float32]:
        """Sum over inputs of a linear layer's weights, fp32 ``[outputs]``."""
        sums = self._arrays[name].astype(np.int64).sum(axis=0)
        scaled: npt.NDArray[np.float64] = sums * self._arrays[name + SCALE_SUFFIX].astype(np.float64)
        return scaled.astype(np.float32)

    def tensor(self, name: str) -> TensorProto:
        """The initializer that refers to a stored tensor."""
        stored = self.table[name]
        proto = TensorProto(name=name, data_type=stored.type, dims=stored.shape)
        proto.data_location = TensorProto.EXTERNAL
        for key, text in (("location", self.location), ("offset", str(stored.offset)), ("length", str(stored.length))):
            proto.external_data.add(key=key, value=text)
        return proto


def rewrite(traced: onnx.ModelProto, weights: SharedWeights, precision: str) -> onnx.ModelProto:
    """The graph with its weights in the shared file.

    Args:
        traced: a graph from ``trace``, weights inside, rounded by ``round_weights``.
        weights: the shared file.
        precision: ``"fp32"`` or ``"int8"``.

    Raises:
        VerificationError: a matrix of the graph does not stand in the file.
    """
    return _Rewriter(traced, weights, precision).run()


class _Rewriter:
    def __init__(self, traced: onnx.ModelProto, weights: SharedWeights, precision: str) -> None:
        self.traced = traced
        self.weights = weights
        self.int8 = precision == "int8"
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, TensorProto] = {}
        self.stored: dict[str, str] = {}  # initializer of the traced graph -> stored name
        self.floats: dict[str, str] = {}  # stored name -> value with fp32 weights
        self.rows: dict[str, tuple[str, str]] = {}  # activation -> (quantized rows, row scales)
        self.producer = {output: node for node in traced.graph.node for output in node.output}
        self.leading: dict[tuple[str, int], str] = {}
        self.zeros: dict[str, str] = {}

    def run(self) -> onnx.ModelProto:
        graph = self.traced.graph
        for initializer in graph.initializer:
            value = numpy_helper.to_array(initializer)
            name = self.weights.find(value) if value.dtype == np.float32 and value.size > 1 else None
            if name is None:
                if value.dtype == np.float32 and value.ndim == 2 and value.size > 4096:
                    raise VerificationError(f"the weight {initializer.name} {value.shape} is not in the weight file")
                self.initializers[initializer.name] = initializer
            else:
                self.stored[initializer.name] = name
        for node in graph.node:
            self.rewrite_node(node)
        used = {name for node in self.nodes for name in node.input}
        made = {name for node in self.nodes for name in node.output}
        kept = [tensor for name, tensor in self.initializers.items() if name in used]
        for node in self.nodes:
            node.ClearField("metadata_props")  # the exporter's stack traces: half of the file
        shapes = [value for value in graph.value_info if value.name in made]
        rewritten = helper.make_graph(self.nodes, graph.name, graph.input, graph.output, kept, value_info=shapes)
        return helper.make_model(
            rewritten, opset_imports=self.traced.opset_import, ir_version=10, producer_name="julia1"
        )

    def rewrite_node(self, node: onnx.NodeProto) -> None:
        names = [self.stored.get(name) for name in node.input]
        quantized = [name is not None and self.weights.quantized(name) for name in names]
        if node.op_type == "Gather" and quantized[0]:
            self.gather(node, str(names[0]))
        elif node.op_type == "MatMul" and quantized[1] and self.int8:
            self.integer_product(node, str(names[1]))
        else:
            kept = onnx.NodeProto()
            kept.CopyFrom(node)
            del kept.input[:]
            for name, stored, is_codes in zip(node.input, names, quantized, strict=True):
                if stored is None:
                    kept.input.append(name)
                else:
                    kept.input.append(self.float_value(stored) if is_codes else self.refer(stored))
            self.nodes.append(kept)

    def gather(self, node: onnx.NodeProto, name: str) -> None:
        """Rows of an embedding: codes and scales are gathered apart, so the table itself is never expanded."""
        out = node.output[0]
        codes = self.add("Gather", [self.refer(name), node.input[1]], f"{out}.codes")
        scale = self.add("Gather", [self.refer(name + SCALE_SUFFIX), node.input[1]], f"{out}.row_scale")
        floats = self.add("Cast", [codes], f"{out}.float", to=TensorProto.FLOAT)
        self.add("Mul", [floats, scale], out)

    def float_value(self, name: str) -> str:
        """fp32 weights of a stored matrix; a session folds this to a constant when it is made."""
        if name not in self.floats:
            floats = self.add("Cast", [self.refer(name)], f"{name}.cast", to=TensorProto.FLOAT)
            self.floats[name] = self.add("Mul", [floats, self.refer(name + SCALE_SUFFIX)], f"{name}.float")
        return self.floats[name]

    def integer_product(self, node: onnx.NodeProto, name: str) -> None:
        out, activation = node.output[0], node.input[0]
        shifted = self.is_gelu(activation)
        codes, row_scale = self.quantized_rows(activation, shifted)
        zero = 0 if shifted else ZERO_POINT
        product = self.add(
            "MatMulInteger",
            [codes, self.refer(name), self.constant(f"zero_{zero}", np.array(zero, np.uint8))],
            f"{out}.int",
        )
        floats = self.add("Cast", [product], f"{out}.cast", to=TensorProto.FLOAT)
        scaled = self.add("Mul", [floats, self.refer(name + SCALE_SUFFIX)], f"{out}.by_column")
        rows = self.add("Mul", [scaled, row_scale], f"{out}.by_row")
        if shifted:
            correction = self.constant(f"{name}.shift", -np.float32(GELU_FLOOR) * self.weights.column_sums(name))
            rows = self.add("Add", [rows, correction], f"{out}.unshifted")
        columns = self.weights.table[name].shape[1]
        self.add("Reshape", [rows, self.output_shape(activation, columns)], out)

    def quantized_rows(self, activation: str, shifted: bool) -> tuple[str, str]:
        """uint8 codes ``[rows, inputs]`` and fp32 scales ``[rows, 1]`` of an activation, made once for all readers."""
        if activation not in self.rows:
            last = int(self.dimensions(activation)[-1].dim_value)
            flat = self.add(
                "Reshape",
                [activation, self.constant(f"flat_{last}", np.array([-1, last], np.int64))],
                f"{activation}.flat",
            )
            if shifted:
                magnitude = flat = self.add(
                    "Add",
                    [flat, self.constant("gelu_floor", np.array(GELU_FLOOR, np.float32))],
                    f"{activation}.shifted",
                )
                levels = 255
            else:
                magnitude = self.add("Abs", [flat], f"{activation}.abs")
                levels = 127
            axis = self.constant("axis_one", np.array([1], np.int64))
            largest = self.add("ReduceMax", [magnitude, axis], f"{activation}.max", keepdims=0)
            step = self.constant(f"step_{levels}", np.array(1 / levels, np.float32))
            scale = self.add("Mul", [largest, step], f"{activation}.scale")
            inputs = [flat, scale] if shifted else [flat, scale, self.zero_points(activation, scale)]
            codes = self.add("QuantizeLinear", inputs, f"{activation}.codes", axis=0)
            column = self.add("Unsqueeze", [scale, axis], f"{activation}.row_scale")
            self.rows[activation] = codes, column
        return self.rows[activation]

    def zero_points(self, activation: str, scale: str) -> str:
        """One zero point a row, shared by all activations of the same leading axes."""
        second = self.dimensions(activation)[1].dim_param
        if second not in self.zeros:
            shape = self.add("Shape", [scale], f"{second}.row_count")
            zero = self.constant(f"zero_{ZERO_POINT}", np.array(ZERO_POINT, np.uint8))
            self.zeros[second] = self.add("Expand", [zero, shape], f"{second}.zero_points")
        return self.zeros[second]

    def is_gelu(self, activation: str) -> bool:
        producer = self.producer.get(activation)
        return producer is not None and producer.op_type == "Gelu"

    def dimensions(self, activation: str) -> Any:
        for value in self.traced.graph.value_info:
            if value.name == activation:
                return value.type.tensor_type.shape.dim
        raise VerificationError(f"the traced graph has no shape for {activation}")

    def output_shape(self, activation: str, columns: int) -> str:
        """``[rows, tokens or options, columns]`` as a run-time shape, made once.

        The last number is written out, so that shape inference sees the width and a runtime may fuse what follows.
        """
        second = self.dimensions(activation)[1].dim_param
        key = (second, columns)
        if key not in self.leading:
            source = "markers" if second == "options" else "input_ids"
            shape = self.add("Shape", [source], f"{source}.shape.{columns}")
            last = self.constant(f"columns_{columns}", np.array([columns], np.int64))
            self.leading[key] = self.add("Concat", [shape, last], f"{source}.leading.{columns}", axis=0)
        return self.leading[key]

    def add(self, op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.initializers.setdefault(name, numpy_helper.from_array(np.asarray(value), name))
        return name

    def refer(self, name: str) -> str:
        self.initializers.setdefault(name, self.weights.tensor(name))
        return name


def _content_key(value: npt.NDArray[Any]) -> tuple[tuple[int, ...], bytes]:
    return value.shape, hashlib.sha256(np.ascontiguousarray(value, np.float32).tobytes()).digest()
