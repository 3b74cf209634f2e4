"""The ONNX graph of an option model with a BERT encoder; ``julia1.model.option_model`` is the same in PyTorch.

PyTorch reads a row in one pass. The graph reads it in two, so that option texts, which see nothing but themselves, need
not be read again for every state:

    option text   a row that is all trunk; what is kept of it: keys and values of every layer, and the mean (``trunk``)
    state         trunk, branches and markers; markers also see the kept keys and values of their own option's text

Both are the same graph. A row of option text has no context, and its logits mean nothing.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from julia1.export.encoder_graph import additive_mask, bert_encoder, mean_of, require_known, unsqueeze
from julia1.export.graph_builder import GraphBuilder
from julia1.export.shared_weights import SharedWeights
from julia1.model.option_model import FEATURES
from julia1.runtime.scorer import (
    CONTEXT_KEYS,
    CONTEXT_LEAVES,
    CONTEXT_VALUES,
    KEYS,
    LOGITS,
    OPTION_VECTORS,
    TRUNK_MEAN,
    VALUES,
)
from julia1.text.options import INPUT_NAMES, TRUNK


def option_graph(weights: SharedWeights, precision: str) -> onnx.ModelProto:
    """The graph with dynamic rows, tokens, options and context; ``julia1.runtime.scorer`` documents its arrays.

    Args:
        weights: the shared weight file.
        precision: ``"fp32"`` or ``"int8"``.

    Raises:
        VerificationError: an encoder that this graph cannot express, or a tensor that is not in the file.
    """
    config = weights.config
    require_known(config)
    graph = GraphBuilder(weights, int8=precision == "int8")
    hidden, batched = bert_encoder(graph, config, _attention_mask(graph), "position_ids", context=True)
    width, layers = config["hidden_size"], range(config["num_hidden_layers"])
    _head(graph, hidden, batched, width)
    tokens, context = ["rows", "tokens"], ["rows", "context"]
    shapes: dict[str, list[str | int]] = {name: list(tokens) for name in INPUT_NAMES}
    shapes["markers"] = ["rows", "options"]
    shapes[CONTEXT_LEAVES] = list(context)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in shapes.items()]
    floats: dict[str, list[str | int]] = {OPTION_VECTORS: ["rows", "options", width]}
    floats.update((name.format(i), [*context, width]) for i in layers for name in (CONTEXT_KEYS, CONTEXT_VALUES))
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in floats.items()]
    results: dict[str, list[str | int]] = {LOGITS: ["rows", "options"], TRUNK_MEAN: ["rows", width]}
    results.update((name.format(i), [*tokens, width]) for i in layers for name in (KEYS, VALUES))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in results.items()]
    return graph.model(inputs, outputs)


def _head(graph: GraphBuilder, hidden: str, batched: str, width: int) -> None:
    """``trunk`` and ``logits`` from flat hidden states."""
    states = graph.add("Reshape", [hidden, batched], "states")
    last = graph.constant([-1], np.int64)
    in_trunk = graph.add("Equal", ["branches", graph.constant(TRUNK, np.int64)], "in_trunk")
    trunk = mean_of(graph, in_trunk, states)
    graph.add("Squeeze", [trunk, graph.constant([1], np.int64)], TRUNK_MEAN)
    markers = graph.add("GatherND", [states, unsqueeze(graph, "markers", 2)], "marker_states", batch_dims=1)
    spread = graph.add("Expand", [trunk, graph.add("Shape", [markers])])
    marker_product = graph.add("Mul", [markers, spread])
    text_product = graph.add("Mul", [OPTION_VECTORS, spread])
    parts = [markers, spread, marker_product, OPTION_VECTORS, text_product]
    features = graph.flat(graph.add("Concat", parts, "features", axis=-1), FEATURES * width)
    inner = graph.add("Gelu", [graph.linear(features, "head.hidden")])
    options = graph.add("Shape", ["markers"])
    read = graph.float_linear(inner, "head.score")  # two outputs an option: nothing to gain from eight bits
    read = graph.add("Reshape", [read, graph.add("Concat", [options, graph.constant([2], np.int64)], axis=0)], "read")
    score, gate = graph.add_many("Split", [read], 2, "score_and_gate", axis=2, num_outputs=2)
    lengths = [graph.add("ReduceL2", [vectors, last], keepdims=1) for vectors in (OPTION_VECTORS, trunk)]
    product = graph.add("Add", [graph.add("Mul", lengths), graph.constant(1e-6)])
    cosine = graph.add("Div", [graph.add("ReduceSum", [text_product, last], keepdims=1), product], "cosine")
    scale = graph.constant(np.exp(graph.weights.value("head.log_scale")), name="likeness_scale")
    likeness = graph.add("Mul", [graph.add("Sub", [cosine, graph.stored("head.centre")]), scale], "likeness")
    logits = graph.add("Add", [score, graph.add("Mul", [graph.add("Sigmoid", [gate]), likeness])])
    graph.add("Reshape", [logits, options], LOGITS)


def _attention_mask(graph: GraphBuilder) -> str:
    """Additive mask ``[rows, 1, tokens, context + tokens]``; ``tree_visibility`` explains it."""
    viewer_branch, seen_branch = unsqueeze(graph, "branches", 2), unsqueeze(graph, "branches", 1)
    viewer_leaf, seen_leaf = unsqueeze(graph, "leaves", 2), unsqueeze(graph, "leaves", 1)
    zero = graph.constant(0, np.int64)
    near = graph.add(
        "Or",
        [
            graph.add("Equal", [seen_branch, graph.constant(TRUNK, np.int64)]),
            graph.add("Equal", [seen_branch, viewer_branch]),
        ],
    )
    is_marker = graph.add("Greater", [viewer_leaf, zero])
    stem = graph.add("And", [near, graph.add("Equal", [seen_leaf, zero])], "sees_stem")
    itself = graph.add("And", [is_marker, graph.add("Equal", [viewer_leaf, seen_leaf])])
    text = graph.add("Equal", [viewer_leaf, unsqueeze(graph, CONTEXT_LEAVES, 1)])
    sees = [graph.add("And", [is_marker, text], "sees_text"), graph.add("Or", [stem, itself])]
    return additive_mask(graph, graph.add("Concat", sees, "sees", axis=2))
