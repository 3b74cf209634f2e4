"""What a graph can do without: nodes that nobody reads, what could be computed once, the same numbers twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from julia1.errors import InputError, VerificationError
from julia1.export.onnx_file import folded
from julia1.optimize.graph import Arrays, Operator, OperatorGraph, inner_names, new_session, run

TOLERANCE = 1e-5
"""Largest difference of an output that a clean-up may make, as a share of the output's largest value."""


@dataclass(frozen=True)
class Waste:
    """What a graph can do without.

    Attributes:
        dead: operators whose outputs lead to no output of the model.
        constant: operators that depend on stored tensors only, ``Constant`` itself left out.
        nothing: operators that give what they are given: ``Identity``, ``Dropout``, a cast to the same type.
        twice: stored tensors that hold the same as another, by the name of that one.
        unread: stored tensors that no operator reads.
        unread_bytes, twice_bytes: what these take.
    """

    dead: tuple[str, ...]
    constant: tuple[str, ...]
    nothing: tuple[str, ...]
    twice: dict[str, str]
    unread: tuple[str, ...]
    unread_bytes: int
    twice_bytes: int


def find_waste(graph: OperatorGraph) -> Waste:
    """Look for it; nothing is changed."""
    stored = {tensor.name: tensor for tensor in graph.model.graph.initializer}
    known = set(stored)
    constant = []
    for one in graph.operators:
        if all(name in known for name in one.inputs if name) and not is_random(graph, one):
            known.update(one.outputs)
            if one.kind != "Constant":
                constant.append(one.name)
    read = {name for one in graph.operators for name in one.inputs} | set(graph.outputs)
    inner = inner_names(graph.model.graph.node)
    unread = tuple(name for name in stored if name not in read and name not in inner)
    twice = _same(graph.model)
    return Waste(
        tuple(_dead(graph, inner)),
        tuple(constant),
        tuple(one.name for one in graph.operators if _does_nothing(graph, one)),
        twice,
        unread,
        sum(graph.tensors[name].bytes for name in unread),
        sum(graph.tensors[name].bytes for name in twice),
    )


def cleaned(graph: OperatorGraph, feeds: Arrays) -> onnx.ModelProto:
    """The model without its waste.

    Args:
        graph: of the model, which stays as it is.
        feeds: an input; both models must give the same for it.

    Raises:
        VerificationError: the clean-up changed an output.
        InputError: the model does not run on the input, or answers by chance.
    """
    chance = next((one.name for one in graph.operators if is_random(graph, one)), None)
    if chance is not None:
        raise InputError(f"{chance} gives something else each time: export the model in evaluation mode, model.eval()")
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    _drop(model, graph)
    model = folded(model)
    _point_at_first(model)
    _require_same(graph.model, model, feeds)
    return model


def _dead(graph: OperatorGraph, inner: set[str]) -> list[str]:
    needed = {*graph.outputs, *inner}
    dead = []
    for one in reversed(graph.operators):
        if needed.isdisjoint(one.outputs):
            dead.append(one.name)
        else:
            needed.update(one.inputs)
    return dead[::-1]


def _does_nothing(graph: OperatorGraph, one: Operator) -> bool:
    if one.kind == "Cast":
        before, after = (graph.tensors.get(tensor) for tensor in (one.inputs[0], one.outputs[0]))
        return before is not None and after is not None and before.dtype == after.dtype
    return one.kind in ("Identity", "Dropout") and not (
        is_random(graph, one) or any(graph.readers(mask) or mask in graph.outputs for mask in one.outputs[1:])
    )


def is_random(graph: OperatorGraph, one: Operator) -> bool:
    """Whether an operator gives something else each time: noise, or a ``Dropout`` that is still in training mode."""
    if one.kind != "Dropout":
        return one.kind.startswith("Random") or one.kind in ("Bernoulli", "Multinomial")
    mode = one.inputs[2] if len(one.inputs) > 2 else ""
    return bool(mode) and not (graph.is_constant(mode) and not np.any(graph.value(mode)))


def _same(model: onnx.ModelProto) -> dict[str, str]:
    groups: dict[tuple[object, ...], str] = {}
    found = {}
    for tensor in model.graph.initializer:
        key = (tensor.data_type, tuple(tensor.dims), onnx.numpy_helper.to_array(tensor).tobytes())
        first = groups.setdefault(key, tensor.name)
        if first != tensor.name:
            found[tensor.name] = first
    return found


def _point_at_first(model: onnx.ModelProto) -> None:
    """Have everybody read the first of the tensors that hold the same."""
    twice = _same(model)
    outputs = {value.name for value in model.graph.output}
    for node in model.graph.node:
        node.input[:] = [twice.get(name, name) for name in node.input]
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in twice or tensor.name in outputs]
    if not inner_names(model.graph.node) & twice.keys():
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)


def _drop(model: onnx.ModelProto, graph: OperatorGraph) -> None:
    """Take out what leads nowhere and what does nothing."""
    inner = inner_names(graph.model.graph.node)
    dead = set(_dead(graph, inner))
    instead: dict[str, str] = {}
    kept = []
    for node, one in zip(model.graph.node, graph.operators, strict=True):
        if one.name in dead:
            continue
        node.input[:] = [instead.get(name, name) for name in node.input]
        if _does_nothing(graph, one) and node.output[0] not in graph.outputs and node.output[0] not in inner:
            instead[node.output[0]] = node.input[0]
            continue
        kept.append(helper.make_node(node.op_type, node.input, node.output, node.name, domain=node.domain))
        kept[-1].attribute.extend(node.attribute)
    del model.graph.node[:]
    model.graph.node.extend(kept)


def _require_same(before: onnx.ModelProto, after: onnx.ModelProto, feeds: Arrays) -> None:
    names = [value.name for value in before.graph.output]
    pairs = zip(names, *(run(new_session(model), names, feeds) for model in (before, after)), strict=True)
    for name, wanted, found in pairs:
        if not np.allclose(found, wanted, rtol=0, atol=TOLERANCE * float(np.abs(wanted).max(initial=1e-9))):
            raise VerificationError(
                f"the clean-up changed the output {name!r} by {np.abs(found - wanted).max():.2g}: it is not kept"
            )
