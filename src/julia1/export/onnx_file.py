"""From a graph over shared weights to one ONNX file that stands alone: weights inside, constants folded, any opset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnx.external_data_helper import load_external_data_for_model
from onnx.reference import ReferenceEvaluator

from julia1.errors import InputError
from julia1.export.graph_builder import OPSET

LEAST_OPSET = 18
"""BitwiseAnd, and Split with a number of outputs, begin here."""
MOST_INSIDE = (2 << 30) - (16 << 20)
"""Bytes of weights that fit into one protobuf message beside the graph; more go into a file beside it."""
GELU_OPSET = 20
"""Before it a GELU is spelled out."""


def require_opset(opset: int) -> None:
    """Raise ``InputError`` for an operator set that cannot be written."""
    most = onnx.defs.onnx_opset_version()
    if not LEAST_OPSET <= opset <= most:
        raise InputError(f"the opset is {opset}: {LEAST_OPSET} to {most} can be written (the graphs use {OPSET})")


def standalone(model: onnx.ModelProto, weights: Path, opset: int = OPSET) -> onnx.ModelProto:
    """The same graph with its weights inside, in the operator set asked for, and with constants folded.

    The embedding tables stay in low bits: they are decoded after the lookup, so there is no constant to fold, and the
    numbers are the same.

    Args:
        model: a graph of ``fixed_graph`` or ``option_graph``; it is changed.
        weights: the folder of its weight file.
        opset: the operator set, ``LEAST_OPSET`` or later.

    Raises:
        InputError: the graph cannot be written in that operator set.
    """
    require_opset(opset)
    load_external_data_for_model(model, str(weights))
    return folded(converted(model, opset))


def converted(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The graph in another operator set; with it goes the oldest format version (IR) that knows the set."""
    if opset != OPSET:
        if opset < GELU_OPSET:
            _spell_out_gelu(model.graph)
        try:
            model = version_converter.convert_version(model, opset)
        except Exception as error:  # the C++ library raises RuntimeError and others, with its source lines in the text
            first = str(error).strip().splitlines()[-1]
            raise InputError(f"this graph cannot be written in opset {opset} ({first}): leave --opset out") from None
    model.ir_version = helper.find_min_ir_version_for(list(model.opset_import))
    return model


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Compute every node that depends on constants only, and drop what is then not used; in place."""
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    kept = []
    for node in graph.node:
        if all(name in constants for name in node.input if name):
            constants.update(_computed(node, constants, model.opset_import))
        else:
            kept.append(node)
    used = {name for node in kept for name in node.input} | {output.name for output in graph.output}
    tensors = [
        stored[name] if name in stored else numpy_helper.from_array(np.ascontiguousarray(value), name)
        for name, value in constants.items()
        if name in used
    ]
    del graph.node[:]
    graph.node.extend(kept)
    del graph.initializer[:]
    graph.initializer.extend(tensors)
    return model


def save(model: onnx.ModelProto, path: Path) -> list[Path]:
    """Write a model; returns its files, a second one for weights only where one file cannot hold them."""
    beside = path.with_name(f"{path.name}.data")
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size > MOST_INSIDE:
        onnx.save_model(model, path, save_as_external_data=True, location=beside.name)
    else:
        onnx.save_model(model, path)
    return [path, beside] if size > MOST_INSIDE else [path]


def _computed(
    node: onnx.NodeProto, constants: dict[str, npt.NDArray[np.generic]], opset: object
) -> dict[str, npt.NDArray[np.generic]]:
    """The outputs of a node whose inputs are constants."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(constants[name].dtype), None)
        for name in dict.fromkeys(filter(None, node.input))
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    alone = helper.make_model(helper.make_graph([node], "constant", infos, results), opset_imports=opset)
    feeds = {name: constants[name] for name in node.input if name}
    return dict(zip(node.output, ReferenceEvaluator(alone).run(None, feeds), strict=True))


def _spell_out_gelu(graph: onnx.GraphProto) -> None:
    """GELU as ``x / 2 · (1 + erf(x / √2))``, in place."""
    if not any(node.op_type == "Gelu" for node in graph.node):
        return
    numbers = {"gelu.half": 0.5, "gelu.one": 1.0, "gelu.root": 0.5**0.5}
    for name, value in numbers.items():
        graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
    nodes = []
    for node in graph.node:
        if node.op_type != "Gelu":
            nodes.append(node)
            continue
        (value,), (result,) = node.input, node.output
        for op, inputs, part in (
            ("Mul", [value, "gelu.root"], "scaled"),
            ("Erf", [f"{result}.scaled"], "erf"),
            ("Add", [f"{result}.erf", "gelu.one"], "moved"),
            ("Mul", [value, "gelu.half"], "half"),
            ("Mul", [f"{result}.half", f"{result}.moved"], ""),
        ):
            name = f"{result}.{part}" if part else result
            nodes.append(helper.make_node(op, inputs, [name], name=name))
    del graph.node[:]
    graph.node.extend(nodes)
