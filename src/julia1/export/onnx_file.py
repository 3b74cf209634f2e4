"""From a graph over shared weights to one ONNX file that stands alone: weights inside, constants folded, any opset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

from julia1.bundle.files import inside, reason
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
        InputError: the graph cannot be written in that operator set, or a weight is not where it says.
    """
    require_opset(opset)
    take_in_weights(model, weights)
    return folded(converted(model, opset))


def read_model(path: Path) -> onnx.ModelProto:
    """An ONNX file with its weights inside.

    Raises:
        InputError: it is not one, or its weights are not where it says.
        BundleError: its weights lie outside its folder.
    """
    try:
        model = onnx.load_model(path, load_external_data=False)
    except Exception as error:  # protobuf and the file system raise classes of their own
        raise InputError(f"{path} is not an ONNX file that can be read: {error}") from None
    take_in_weights(model, path.parent)
    return model


def take_in_weights(model: onnx.ModelProto, folder: Path) -> None:
    """Read the weights that a model has in files of ``folder``, in place.

    onnx's own loader refuses a file with several hard links, and installers make those: pip and uv link from a cache.

    Raises:
        InputError: a weight is not where the model says.
        BundleError: a file outside the folder is named.
    """
    for tensor in _tensors(model.graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.raw_data = _bytes_beside(tensor, folder)
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


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
        stored[name] if name in stored else numpy_helper.from_array(np.asarray(value, order="C"), name)
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


def _bytes_beside(tensor: TensorProto, folder: Path) -> bytes:
    said = {entry.key: entry.value for entry in tensor.external_data}
    file = inside(folder, said.get("location", ""))
    places = [said.get("offset") or "0", said.get("length") or "0"]
    if not all(place.isascii() and place.isdigit() for place in places):
        raise InputError(f"the weight {tensor.name!r} lies at no place in {file}: {said}")
    offset, length = map(int, places)
    try:
        size = file.stat().st_size
        length = length if "length" in said else max(0, size - offset)
        if offset + length > size:
            raise InputError(
                f"{file} has {size:,} bytes, and the weight {tensor.name!r} lies at {offset:,} to {offset + length:,}: "
                "it is not the file that the graph was written with"
            )
        with file.open("rb") as stream:
            stream.seek(offset)
            return stream.read(length)
    except OSError as error:
        raise InputError(f"cannot read {file}, where the weight {tensor.name!r} lies: {reason(error)}") from None


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Every stored tensor, those of attributes and of graphs in attributes too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors)
            for inner in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _tensors(inner)


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
