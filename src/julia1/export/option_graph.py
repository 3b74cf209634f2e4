"""The ONNX graph of an option model with a BERT encoder; ``julia1.model.option_model`` is the same in PyTorch.

PyTorch reads a row in one pass. The graph reads it in two, so that option texts, which see nothing but themselves, need
not be read again for every state:

    option text   a row that is all trunk; what is kept of it: keys and values of every layer, and the mean (``trunk``)
    state         trunk, branches and markers; markers also see the kept keys and values of their own option's text

Both are the same graph. A row of option text has no context, and its logits mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from julia1.errors import VerificationError
from julia1.export.graph_builder import GraphBuilder
from julia1.export.shared_weights import SharedWeights
from julia1.model.option_model import FEATURES
from julia1.model.weights import SCALE_SUFFIX
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

MODEL_TYPES = ("bert",)


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
    hidden, batched = _encoder(graph, config)
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


def require_known(config: Mapping[str, Any]) -> None:
    """Raise ``VerificationError`` for an encoder, given as its Hugging Face config, that no graph is known for."""
    model_type, activation = config.get("model_type"), config.get("hidden_act", "gelu")
    if model_type not in MODEL_TYPES or activation != "gelu":
        raise VerificationError(
            f"no graph is known for a {model_type} encoder with {activation}; known: {', '.join(MODEL_TYPES)} with gelu"
        )


def _encoder(graph: GraphBuilder, config: Mapping[str, Any]) -> tuple[str, str]:
    """Last hidden states ``[rows · tokens, width]``, and the run-time shape ``[rows, tokens, width]``."""
    width, heads, epsilon = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    depth = width // heads
    shape = graph.add("Shape", ["input_ids"], "shape")
    batched = graph.add("Concat", [shape, graph.constant([width], np.int64)], "shape.batched", axis=0)
    mask = _attention_mask(graph)
    embeddings = "encoder.embeddings"
    words = _embedding(graph, f"{embeddings}.word_embeddings", "input_ids", width)
    places = _embedding(graph, f"{embeddings}.position_embeddings", "position_ids", width)
    kind = _embedding(graph, f"{embeddings}.token_type_embeddings", graph.constant([[0]], np.int64), width)
    hidden = graph.add("Add", [graph.add("Add", [words, places]), kind])
    hidden = graph.flat(graph.layer_norm(hidden, f"{embeddings}.LayerNorm", epsilon), width)
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.encoder.layer.{number}"
        joint, out = f"{layer}.attention.self.qkv", f"{layer}.attention.output.dense"
        inner, outer = f"{layer}.intermediate.dense", f"{layer}.output.dense"
        of_out = graph.weights.input_scale(out)
        scale = np.ones(3 * width, np.float32)
        if graph.int8:
            scale[:width] = depth**0.5
            if of_out is not None:  # attended rows are mixtures of rows of values: what scales the one scales the other
                scale[2 * width :] = of_out
        together = graph.linear(hidden, joint, output_scale=scale)
        parts = graph.add_many("Split", [together], 3, f"{joint}.split", axis=1, num_outputs=3)
        names = ("", KEYS.format(number), VALUES.format(number))
        query, key, value = (graph.add("Reshape", [p, batched], n) for p, n in zip(parts, names, strict=True))
        key = graph.add("Concat", [CONTEXT_KEYS.format(number), key], f"{layer}.keys", axis=1)
        value = graph.add("Concat", [CONTEXT_VALUES.format(number), value], f"{layer}.values", axis=1)
        apart = graph.constant([0, -1, heads, depth], np.int64)
        query = graph.add("Transpose", [graph.add("Reshape", [query, apart])], perm=[0, 2, 1, 3])
        key = graph.add("Transpose", [graph.add("Reshape", [key, apart])], perm=[0, 2, 3, 1])
        value = graph.add("Transpose", [graph.add("Reshape", [value, apart])], perm=[0, 2, 1, 3])
        scores = graph.add("MatMul", [query, key], f"{layer}.scores")
        if not graph.int8:
            scores = graph.add("Mul", [scores, graph.constant(depth**-0.5)])
        weights = graph.add("Softmax", [graph.add("Add", [scores, mask])], f"{layer}.attention", axis=-1)
        attended = graph.add("Transpose", [graph.add("MatMul", [weights, value])], perm=[0, 2, 1, 3])
        attended = graph.linear(graph.flat(attended, width), out, prescaled=of_out is not None)
        hidden = graph.add("Add", [attended, hidden])
        hidden = graph.layer_norm(hidden, f"{layer}.attention.output.LayerNorm", epsilon)
        wide = graph.add("Gelu", [graph.linear(hidden, inner)], f"{layer}.gelu")
        hidden = graph.add("Add", [graph.linear(wide, outer, after_gelu=True), hidden])
        hidden = graph.layer_norm(hidden, f"{layer}.output.LayerNorm", epsilon)
    return hidden, batched


def _head(graph: GraphBuilder, hidden: str, batched: str, width: int) -> None:
    """``trunk`` and ``logits`` from flat hidden states."""
    states = graph.add("Reshape", [hidden, batched], "states")
    last = graph.constant([-1], np.int64)
    in_trunk = graph.add("Equal", ["branches", graph.constant(TRUNK, np.int64)], "in_trunk")
    members = _unsqueeze(graph, graph.add("Cast", [in_trunk], to=TensorProto.FLOAT), 1)
    # the row stands twice: ONNX Runtime adds up a product of a single row in an order that padding changes
    members = graph.add("Concat", [members, members], "members", axis=1)
    number = graph.add("Max", [graph.add("ReduceSum", [members, last], keepdims=1), graph.constant(1.0)])
    means = graph.add("Div", [graph.add("MatMul", [members, states]), number], "means")
    one = graph.constant([1], np.int64)
    trunk = graph.add("Slice", [means, graph.constant([0], np.int64), one, one], "trunk_row")
    graph.add("Squeeze", [trunk, one], TRUNK_MEAN)
    markers = graph.add("GatherND", [states, _unsqueeze(graph, "markers", 2)], "marker_states", batch_dims=1)
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
    viewer_branch, seen_branch = _unsqueeze(graph, "branches", 2), _unsqueeze(graph, "branches", 1)
    viewer_leaf, seen_leaf = _unsqueeze(graph, "leaves", 2), _unsqueeze(graph, "leaves", 1)
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
    text = graph.add("Equal", [viewer_leaf, _unsqueeze(graph, CONTEXT_LEAVES, 1)])
    sees = [graph.add("And", [is_marker, text], "sees_text"), graph.add("Or", [stem, itself])]
    hidden = graph.constant(np.finfo(np.float32).min / 2)
    visible = _unsqueeze(graph, graph.add("Concat", sees, "sees", axis=2), 1)
    return graph.add("Where", [visible, graph.constant(0.0), hidden], "mask")


def _embedding(graph: GraphBuilder, table: str, index: str, width: int) -> str:
    """Rows of a stored embedding ``[..., width]``; they are decoded after the lookup, never the whole table."""
    name = f"{table}.weight"
    codes = graph.add("Gather", [graph.stored(name), index], f"{name}.codes")
    scale = graph.add("Gather", [graph.stored(name + SCALE_SUFFIX), index], f"{name}.scales")
    if graph.weights.table[name].type == TensorProto.INT8:
        floats = graph.add("Cast", [codes], to=TensorProto.FLOAT)
        return graph.add("Mul", [floats, scale], name + ".rows")
    low = graph.add("BitwiseAnd", [codes, graph.constant(15, np.uint8)])
    high = graph.add("BitShift", [codes, graph.constant(4, np.uint8)], direction="RIGHT")
    both = graph.add("Cast", [graph.add("Concat", [low, high], axis=-1)], to=TensorProto.FLOAT)
    centred = graph.add("Sub", [both, graph.constant(8.0)])
    values = graph.add("Mul", [centred, graph.add("Cast", [scale], to=TensorProto.FLOAT)])
    # [rows, tokens, blocks, 32] to [rows, tokens, width]
    return graph.add("Reshape", [values, graph.constant([0, 0, width], np.int64)], name + ".rows")


def _unsqueeze(graph: GraphBuilder, value: str, axis: int) -> str:
    return graph.add("Unsqueeze", [value, graph.constant([axis], np.int64)])
