"""What of a graph can be stored and multiplied in fewer bits, and the nodes that take its place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from julia1.errors import InputError
from julia1.optimize.graph import Operator, OperatorGraph, inner_names

FloatArray = npt.NDArray[np.float32]
LEAST_OPSET = 13
"""Before it a weight has one step for all its channels."""


@dataclass(frozen=True)
class Linear:
    """A product with a stored matrix.

    Attributes:
        operator: it.
        value: the tensor that is multiplied.
        weight: fp32 ``[inputs, outputs]``.
        bias: tensor that the operator itself adds, '' for none.
    """

    operator: Operator
    value: str
    weight: FloatArray
    bias: str = ""


@dataclass(frozen=True)
class Table:
    """A stored table that rows are looked up in, fp32 ``[rows, width]``."""

    operator: Operator
    rows: FloatArray


def linear_layers(graph: OperatorGraph) -> list[Linear]:
    """The linear layers in order: ``MatMul`` and plain ``Gemm`` with a stored fp32 matrix."""
    found = []
    for one in graph.operators:
        if one.kind not in ("MatMul", "Gemm") or graph.is_constant(one.inputs[0]):
            continue
        weight = _matrix(graph, one.inputs[1])
        if weight is None or (one.kind == "Gemm" and not _plain(one)):
            continue
        if one.attributes.get("transB"):
            weight = np.ascontiguousarray(weight.T)
        found.append(Linear(one, one.inputs[0], weight, one.inputs[2] if len(one.inputs) > 2 else ""))
    return found


def lookup_tables(graph: OperatorGraph) -> list[Table]:
    """The embedding tables in order."""
    found = []
    for one in graph.operators:
        if one.kind != "Gather" or one.attributes.get("axis", 0) != 0 or graph.is_constant(one.inputs[1]):
            continue
        rows = _matrix(graph, one.inputs[0])
        if rows is not None:
            found.append(Table(one, rows))
    return found


def steps_by_column(weight: FloatArray, most: int) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """int8 codes ``[inputs, outputs]`` of ``-most … most`` and one fp32 step for each output."""
    step = np.abs(weight).max(axis=0) / most
    step = np.where(step > 0, step, 1).astype(np.float32)
    return np.clip(np.rint(weight / step), -most, most).astype(np.int8), step


class Rewriter:
    """A copy of a model in which operators are replaced.

    Args:
        graph: of the model, which stays as it is.

    Attributes:
        opset: version of the standard operators.

    Raises:
        InputError: its operator set is too old.
    """

    def __init__(self, graph: OperatorGraph, least_opset: int = LEAST_OPSET) -> None:
        self.opset = graph.opsets.get("ai.onnx", 0)
        if self.opset < least_opset:
            raise InputError(f"the model is in opset {self.opset}: export it in opset {least_opset} or later")
        self._graph = graph
        self._instead: dict[str, list[onnx.NodeProto]] = {}
        self._stored: dict[str, onnx.TensorProto] = {}
        self._names = {name for one in graph.operators for name in (*one.inputs, *one.outputs)}

    def name(self, wanted: str) -> str:
        """A tensor name that nobody has yet."""
        found, number = wanted, 1
        while found in self._names:
            found, number = f"{wanted}.{number}", number + 1
        self._names.add(found)
        return found

    def constant(self, value: npt.ArrayLike, wanted: str) -> str:
        """Store an array; returns its name."""
        name = self.name(wanted)
        self._stored[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def stored(self, tensor: onnx.TensorProto) -> str:
        """Store a tensor that NumPy has no type for; returns its name."""
        name: str = tensor.name
        self._stored[name] = tensor
        return name

    def replace(self, operator: Operator, nodes: Sequence[onnx.NodeProto]) -> None:
        """Put nodes in the place of an operator; the last must give its output."""
        self._instead[operator.name] = list(nodes)

    def model(self) -> onnx.ModelProto:
        """The model with what was replaced, and without what is then not read."""
        made = onnx.ModelProto()
        made.CopyFrom(self._graph.model)
        nodes = []
        for one, node in zip(self._graph.operators, self._graph.model.graph.node, strict=True):
            nodes += self._instead.get(one.name, [node])
        nodes = _without_unread(nodes, self._graph.outputs)
        tensors = {tensor.name: tensor for tensor in self._graph.model.graph.initializer} | self._stored
        read = {name for one in nodes for name in one.input} | inner_names(nodes) | set(self._graph.outputs)
        del made.graph.node[:], made.graph.initializer[:]
        made.graph.node.extend(nodes)
        made.graph.initializer.extend(tensor for name, tensor in tensors.items() if name in read)
        return made


def node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    """A node with one output, called like it."""
    return helper.make_node(kind, list(inputs), [output], name=output, **attributes)


def chosen(layers: Sequence[Linear], keep: Collection[str]) -> list[Linear]:
    """The layers but for those that are kept as they are.

    Raises:
        InputError: there is no layer of a name in ``keep``.
    """
    names = {layer.operator.name for layer in layers}
    unknown = sorted(set(keep) - names)
    if unknown:
        raise InputError(
            f"there is no linear layer {unknown[0]!r} to keep: the model has {', '.join(sorted(names)[:5])}, …"
        )
    return [layer for layer in layers if layer.operator.name not in keep]


def _matrix(graph: OperatorGraph, tensor: str) -> FloatArray | None:
    if not graph.is_constant(tensor):
        return None
    value = graph.value(tensor)
    return value if value.ndim == 2 and value.dtype == np.float32 else None


def _plain(one: Operator) -> bool:
    """Whether a ``Gemm`` is a product and a sum."""
    attributes: Mapping[str, Any] = one.attributes
    return not attributes.get("transA") and attributes.get("alpha", 1.0) == 1.0 and attributes.get("beta", 1.0) == 1.0


def _without_unread(nodes: Sequence[onnx.NodeProto], outputs: Collection[str]) -> list[onnx.NodeProto]:
    """Constants and names of constants that nobody reads any more are left out."""
    needed = {*outputs, *inner_names(nodes)}
    kept = []
    for one in reversed(nodes):
        if one.op_type in ("Constant", "Identity") and needed.isdisjoint(one.output):
            continue
        needed.update(one.input)
        kept.append(one)
    return kept[::-1]
