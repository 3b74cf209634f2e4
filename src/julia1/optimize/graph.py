"""An ONNX model as the operators that compute it: the shapes and types its tensors really have, and what each costs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from julia1.errors import InputError
from julia1.export.onnx_file import read_model

Arrays = Mapping[str, npt.NDArray[Any]]
OWN_DOMAINS = ("", "ai.onnx")
"""Names of the standard operator domain."""


@dataclass(frozen=True)
class Tensor:
    """A tensor, as one run saw it.

    Attributes:
        shape: of that run; ``None`` for what is no tensor (a sequence, an optional value left out).
        dtype: such as ``float32``.
        constant: it is stored in the model.
    """

    shape: tuple[int, ...] | None
    dtype: str
    constant: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape) if self.shape is not None else 0

    @property
    def bytes(self) -> int:
        """Bytes that the elements take where they are stored."""
        digits = re.search(r"\d+", self.dtype)  # of bool and text there are none
        return self.size * (int(digits[0]) if digits else 8) // 8


@dataclass(frozen=True)
class Operator:
    """A node of the graph.

    Attributes:
        name: unique; made up where the model gives none.
        kind: the operator, with its domain where that is not the standard one.
        inputs, outputs: names of tensors; '' for an input that is left out.
        attributes: by name.
        scope: path of the module that it comes from, as its exporter says; '' when it does not.
        multiplications: multiply-adds in one run; 0 for operators that multiply no matrices.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    scope: str = ""
    multiplications: int = 0


class OperatorGraph:
    """The operators of a model in the order they run in.

    Args:
        model: with its weights inside.
        feeds: an input for one run, from which shapes and types are taken; ``None`` for what the model itself says.

    Attributes:
        operators: in order.
        tensors: by name; those of graphs inside operators (``If``, ``Loop``) are not looked into.
        inputs, outputs: names.
        opsets: version of each operator domain that is imported.

    Raises:
        InputError: ONNX Runtime cannot run the model on the feeds.
    """

    def __init__(self, model: onnx.ModelProto, feeds: Arrays | None = None) -> None:
        self.model = model
        graph = model.graph
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = tuple(value.name for value in graph.input if value.name not in self._initializers)
        self.outputs = tuple(value.name for value in graph.output)
        self.opsets = {domain_name(one.domain): int(one.version) for one in model.opset_import}
        self.tensors = {
            tensor.name: Tensor(tuple(tensor.dims), _type_name(tensor.data_type), constant=True)
            for tensor in graph.initializer
        }
        self.tensors |= _declared(model) if feeds is None else _seen(model, feeds)
        self.operators = [self._operator(number, node) for number, node in enumerate(graph.node)]
        self._makers = {name: one for one in self.operators for name in one.outputs if name}
        self._readers: dict[str, list[Operator]] = defaultdict(list)
        for one in self.operators:
            for name in dict.fromkeys(one.inputs):
                self._readers[name].append(one)

    def maker(self, tensor: str) -> Operator | None:
        """The operator that computes a tensor, ``None`` for an input or a stored one."""
        return self._makers.get(tensor)

    def readers(self, tensor: str) -> list[Operator]:
        """The operators that read a tensor."""
        return self._readers.get(tensor, [])

    def is_constant(self, tensor: str) -> bool:
        """Whether a tensor is stored: by itself, in a ``Constant``, or under another name by an ``Identity``."""
        tensor, maker = self._source(tensor)
        return self._stored(tensor) or (maker is not None and maker.kind == "Constant")

    def value(self, tensor: str) -> npt.NDArray[Any]:
        """The numbers of a tensor that ``is_constant`` says is one."""
        tensor, maker = self._source(tensor)
        if maker is not None:
            kept = next(iter(maker.attributes.values()))
            return np.asarray(numpy_helper.to_array(kept) if isinstance(kept, onnx.TensorProto) else kept)
        found: npt.NDArray[Any] = numpy_helper.to_array(self._initializers[tensor])
        return found

    def stored_bytes(self) -> dict[str, int]:
        """Bytes of the stored tensors by operator: those that it is the first to read."""
        found: dict[str, int] = {}
        counted: set[str] = set()
        for one in self.operators:
            own = [name for name in one.inputs if name and name not in counted and self._stored(name)]
            counted.update(own)
            found[one.name] = sum(self.tensors[name].bytes for name in own)
        return found

    def _source(self, tensor: str) -> tuple[str, Operator | None]:
        """The tensor that one is another name of, and what makes it."""
        maker = self.maker(tensor)
        while maker is not None and maker.kind == "Identity":
            tensor = maker.inputs[0]
            maker = self.maker(tensor)
        return tensor, maker

    def _stored(self, name: str) -> bool:
        known = self.tensors.get(name)
        return known is not None and known.constant

    def _operator(self, number: int, node: onnx.NodeProto) -> Operator:
        kind = node.op_type if node.domain in OWN_DOMAINS else f"{node.domain}::{node.op_type}"
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        name = node.name or f"{kind}_{number}"
        made = Operator(name, kind, tuple(node.input), tuple(node.output), attributes, _scope(node))
        return replace(made, multiplications=_multiplications(made, self.tensors))


def inner_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Names that the graphs inside operators (``If``, ``Loop``) read or give."""
    found: set[str] = set()
    for node in nodes:
        for attribute in node.attribute:
            for inner in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                found |= {name for one in inner.node for name in one.input} | inner_names(inner.node)
                found |= {value.name for value in inner.output}
    return found


def domain_name(domain: str) -> str:
    """The name of an operator domain; the standard one is called by its long name."""
    return "ai.onnx" if domain in OWN_DOMAINS else domain


def open_graph(path: Path, feeds: Arrays | None = None) -> OperatorGraph:
    """The graph of an ONNX file; raises ``InputError`` when it is not one."""
    return OperatorGraph(read_model(path), feeds)


def new_session(model: onnx.ModelProto, optimised: bool = False) -> Any:
    """A session of ONNX Runtime on one thread for a model with its weights inside.

    Raises:
        InputError: ONNX Runtime does not take the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        content = model.SerializeToString()
    except Exception:  # protobuf has no class of its own for it
        raise InputError("the model is larger than 2 GB, which no engine takes in one piece") from None
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises classes of its own for each kind of failure
        raise InputError(f"ONNX Runtime does not take this model: {first_line(error)}") from None


def with_outputs(model: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """A copy of a model that gives inner tensors too, behind its own outputs."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    known = {value.name for value in shown.graph.output}
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in tensors if name not in known)
    return shown


def run(session: Any, outputs: Sequence[str] | None, feeds: Arrays) -> list[Any]:
    """What a session gives; raises ``InputError`` when it fails."""
    try:
        found: list[Any] = session.run(outputs, dict(feeds))
    except Exception as error:  # as above
        raise InputError(f"the model does not run on this input: {first_line(error)}") from None
    return found


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _scope(node: onnx.NodeProto) -> str:
    """PyTorch's exporter notes the modules around a node, outermost first and the node itself last; others name nodes
    by a path."""
    noted = next((one.value for one in node.metadata_props if one.key == "pkg.torch.onnx.name_scopes"), "")
    names = re.findall(r"'([^']*)'", noted)
    return names[-2] if len(names) > 1 else node.name.strip("/").replace("/", ".") if "/" in node.name else ""


def _declared(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Inputs, outputs and inner tensors as far as shape inference knows them; an axis that varies counts as 1."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    found = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and kind.HasField("shape"):
            shape = tuple(int(axis.dim_value) or 1 for axis in kind.shape.dim)
            found[value.name] = Tensor(shape, _type_name(kind.elem_type))
    return found


def _seen(model: onnx.ModelProto, feeds: Arrays) -> dict[str, Tensor]:
    """Every tensor of one run: all of them are made outputs, and nothing is fused."""
    inner = [name for node in model.graph.node for name in node.output if name]
    session = new_session(with_outputs(model, inner))
    names = [value.name for value in session.get_outputs()]
    found = {name: _as_tensor(value) for name, value in zip(names, run(session, names, feeds), strict=True)}
    return found | {name: Tensor(value.shape, value.dtype.name) for name, value in feeds.items()}


def _as_tensor(value: Any) -> Tensor:
    shape = getattr(value, "shape", None)
    return Tensor(None, type(value).__name__) if shape is None else Tensor(tuple(shape), value.dtype.name)


def _type_name(number: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(number).name)


def _multiplications(one: Operator, tensors: Mapping[str, Tensor]) -> int:
    """Multiply-adds of an operator: outputs times the length of the sum that makes each."""
    kind = one.kind.rpartition("::")[2]
    shapes = [tensors[name].shape if name in tensors else None for name in (*one.inputs, *one.outputs[:1])]
    *inputs, output = shapes if one.outputs else [*shapes, None]
    if output is None or not inputs or inputs[0] is None:
        return 0
    if kind in (
        "MatMul",
        "MatMulInteger",
        "QLinearMatMul",
        "FusedMatMul",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
    ):
        return prod(output) * (inputs[0][-1] if inputs[0] else 1)
    if kind == "MatMulNBits":
        return prod(output) * int(one.attributes["K"])
    if kind in ("Gemm", "QGemm"):
        return prod(output) * inputs[0][0 if one.attributes.get("transA") else 1]
    if kind in ("Conv", "ConvInteger", "QLinearConv", "FusedConv"):
        weight = inputs[3 if kind == "QLinearConv" else 1]
        return prod(output) * prod(weight[1:]) if weight else 0
    if kind in ("Attention", "MultiHeadAttention"):
        keys = inputs[1] if len(inputs) > 1 and inputs[1] else inputs[0]
        # both products: queries by keys, and their weights by values
        return 2 * prod(output) * keys[-2]
    return 0
