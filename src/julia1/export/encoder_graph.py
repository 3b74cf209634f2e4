"""A BERT encoder as ONNX nodes: what the graphs of all model kinds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from julia1.errors import VerificationError
from julia1.export.graph_builder import GraphBuilder
from julia1.model.weights import SCALE_SUFFIX
from julia1.runtime.scorer import CONTEXT_KEYS, CONTEXT_VALUES, KEYS, VALUES

OPTION_ENCODERS = ("bert",)
FIXED_ENCODERS = ("bert", "modernbert")


def require_known(config: Mapping[str, Any], known: Sequence[str] = OPTION_ENCODERS) -> None:
    """Raise ``VerificationError`` for an encoder, given as its Hugging Face config, that no graph is known for."""
    model_type = config.get("model_type")
    activation = config.get("hidden_activation" if model_type == "modernbert" else "hidden_act") or "gelu"
    if model_type not in known or activation != "gelu":
        raise VerificationError(
            f"no graph is known for a {model_type} encoder with {activation}; known: {', '.join(known)} with gelu"
        )


def bert_encoder(
    graph: GraphBuilder, config: Mapping[str, Any], mask: str, positions: str, context: bool
) -> tuple[str, str]:
    """The layers of a BERT encoder over the input ``input_ids``.

    Args:
        graph: where nodes go.
        config: the Hugging Face config.
        mask: additive attention mask, ``[rows, 1, tokens, keys]``.
        positions: position ids, ``[rows, tokens]`` or ``[1, tokens]``.
        context: prepend kept keys and values (``context_keys.N``, ``context_values.N``) to a row's own, and give the
            row's own as outputs (``keys.N``, ``values.N``).

    Returns:
        Last hidden states ``[rows · tokens, width]``, and the run-time shape ``[rows, tokens, width]``.
    """
    width, heads, epsilon = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    depth = width // heads
    shape = graph.add("Shape", ["input_ids"], "shape")
    batched = graph.add("Concat", [shape, graph.constant([width], np.int64)], "shape.batched", axis=0)
    embeddings = "encoder.embeddings"
    words = embedding(graph, f"{embeddings}.word_embeddings", "input_ids", width)
    places = embedding(graph, f"{embeddings}.position_embeddings", positions, width)
    kind = embedding(graph, f"{embeddings}.token_type_embeddings", graph.constant([[0]], np.int64), width)
    hidden = graph.add("Add", [graph.add("Add", [words, places]), kind])
    hidden = graph.flat(graph.layer_norm(hidden, f"{embeddings}.LayerNorm", epsilon), width)
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.encoder.layer.{number}"
        joint, out = f"{layer}.attention.self.qkv", f"{layer}.attention.output.dense"
        inner, outer = f"{layer}.intermediate.dense", f"{layer}.output.dense"
        scale, shift, prescaled = attention_ranges(graph, out, width, depth)
        together = graph.linear(hidden, joint, output_scale=scale, output_shift=shift)
        parts = graph.add_many("Split", [together], 3, f"{joint}.split", axis=1, num_outputs=3)
        names = ("", KEYS.format(number), VALUES.format(number)) if context else ("", "", "")
        query, key, value = (graph.add("Reshape", [p, batched], n) for p, n in zip(parts, names, strict=True))
        if context:
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
        attended = graph.linear(graph.flat(attended, width), out, prescaled=prescaled)
        hidden = graph.add("Add", [attended, hidden])
        hidden = graph.layer_norm(hidden, f"{layer}.attention.output.LayerNorm", epsilon)
        wide = graph.add("Gelu", [graph.linear(hidden, inner)], f"{layer}.gelu")
        hidden = graph.add("Add", [graph.linear(wide, outer, after_gelu=True), hidden])
        hidden = graph.layer_norm(hidden, f"{layer}.output.LayerNorm", epsilon)
    return hidden, batched


def attention_ranges(
    graph: GraphBuilder, out: str, width: int, depth: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], bool]:
    """Scale and shift for the outputs of a joint query, key and value layer, fp32 ``[3 · width]``.

    In int8 they fold in what would else be done later: queries are divided by the root of a head's width, and values
    get the input range of the layer ``out``, which then (the third of what is returned) finds its inputs prescaled.
    """
    scale, shift = np.ones(3 * width, np.float32), np.zeros(3 * width, np.float32)
    of_out, shift_of_out = graph.weights.input_scale(out), graph.weights.input_shift(out)
    prescaled = graph.int8 and of_out is not None
    if graph.int8:
        scale[:width] = depth**0.5
    if prescaled:
        # attended rows are weighted means of rows of values: what is done to the one is done to the other
        scale[2 * width :] = of_out
        shift[2 * width :] = 0.0 if shift_of_out is None else shift_of_out
    return scale, shift, prescaled


def additive_mask(graph: GraphBuilder, sees: str) -> str:
    """``[rows, 1, tokens, keys]`` to add to scores, from bool ``[rows, tokens, keys]``."""
    hidden = graph.constant(np.finfo(np.float32).min / 2)
    return graph.add("Where", [unsqueeze(graph, sees, 1), graph.constant(0.0), hidden], "mask")


def mean_of(graph: GraphBuilder, inside: str, states: str) -> str:
    """Mean ``[rows, 1, width]`` of states ``[rows, tokens, width]`` over tokens ``inside``, bool ``[rows, tokens]``."""
    members = unsqueeze(graph, graph.add("Cast", [inside], to=TensorProto.FLOAT), 1)
    # the row stands twice: ONNX Runtime adds up a product of a single row in an order that padding changes
    members = graph.add("Concat", [members, members], "members", axis=1)
    number = graph.add("ReduceSum", [members, graph.constant([-1], np.int64)], keepdims=1)
    number = graph.add("Max", [number, graph.constant(1.0)])
    means = graph.add("Div", [graph.add("MatMul", [members, states]), number], "means")
    one = graph.constant([1], np.int64)
    return graph.add("Slice", [means, graph.constant([0], np.int64), one, one], "mean")


def embedding(graph: GraphBuilder, table: str, index: str, width: int) -> str:
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


def unsqueeze(graph: GraphBuilder, value: str, axis: int) -> str:
    """A value with one more axis of length 1."""
    return graph.add("Unsqueeze", [value, graph.constant([axis], np.int64)])
