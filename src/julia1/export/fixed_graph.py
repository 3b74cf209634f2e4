"""The ONNX graph of a model with fixed heads; ``julia1.model.fixed_model`` is the same in PyTorch.

Inputs: ``input_ids`` and ``attention_mask``, int64 ``[rows, tokens]``; with structured features ``numbers``, fp32
``[rows, numbers]`` with NaN where one is missing, and ``categories``, int64 ``[rows, categories]``. One output a head,
fp32 ``[rows, outputs]`` (of a tags head ``[rows, tokens, outputs]``), named ``head.N`` in the order of the heads;
with learned aggregation of windows also ``window_weight``, fp32 ``[rows, 1]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from julia1.bundle.heads import HeadSpec
from julia1.errors import VerificationError
from julia1.export.encoder_graph import (
    FIXED_ENCODERS,
    additive_mask,
    bert_encoder,
    embedding,
    mean_of,
    require_known,
    unsqueeze,
)
from julia1.export.graph_builder import GraphBuilder
from julia1.export.modernbert_graph import modernbert_encoder
from julia1.export.shared_weights import SharedWeights
from julia1.runtime.fixed import ATTENTION_MASK, CATEGORIES, HEAD, INPUT_IDS, NUMBERS, WINDOW_WEIGHT


def fixed_graph(weights: SharedWeights, precision: str) -> onnx.ModelProto:
    """The graph with dynamic rows and tokens.

    Args:
        weights: the shared weight file of a ``FixedModel``.
        precision: ``"fp32"`` or ``"int8"``.

    Raises:
        VerificationError: an encoder that this graph cannot express, or a file of another kind.
    """
    described = weights.fixed
    if described is None:
        raise VerificationError("the weight file holds no fixed heads")
    config = weights.config
    require_known(config, FIXED_ENCODERS)
    width, heads = config["hidden_size"], described["heads"]
    graph = GraphBuilder(weights, int8=precision == "int8")
    mask, positions = _mask(graph), _positions(graph)
    if config["model_type"] == "modernbert":
        hidden, batched = modernbert_encoder(graph, config, mask, positions)
    else:
        hidden, batched = bert_encoder(graph, config, mask, positions, context=False)
    states = graph.add("Reshape", [hidden, batched], "states")
    inside = graph.add("Equal", [ATTENTION_MASK, graph.constant(1, np.int64)], "inside")
    poolings = described["pooling"].split("+")
    needed = dict.fromkeys(["cls" if name == "pooler" else name for name in poolings] + ["mean"])
    pooled = {name: graph.flat(_pooled(graph, name, states, inside), width) for name in needed}
    if "pooler" in poolings:
        pooled["pooler"] = graph.add("Tanh", [graph.linear(pooled["cls"], "pooler")])
    parts = [pooled[name] for name in poolings]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"])
        for name in (INPUT_IDS, ATTENTION_MASK)
    ]
    features = described["features"]
    if features["numbers"] or features["categories"]:
        parts.append(_features(graph, features))
        inputs += [
            helper.make_tensor_value_info(NUMBERS, TensorProto.FLOAT, ["rows", len(features["numbers"])]),
            helper.make_tensor_value_info(CATEGORIES, TensorProto.INT64, ["rows", len(features["categories"])]),
        ]
    together = graph.add("Concat", parts, "pooled", axis=-1) if len(parts) > 1 else parts[0]
    gate = _language_gate(graph, len(described["languages"])) if described.get("languages") else ""
    outputs = []
    for number, spec in enumerate(HeadSpec.from_dict(head) for head in heads):
        tags = spec.kind == "tags"
        inner = graph.add("Gelu", [graph.linear(hidden if tags else together, f"heads.{number}.hidden")])
        found = graph.float_linear(inner, f"heads.{number}.out")
        shape: list[str | int] = ["rows", spec.outputs]
        if tags:
            tokens = graph.add("Slice", ["shape", graph.constant([0], np.int64), graph.constant([2], np.int64)])
            by_row = graph.add("Concat", [tokens, graph.constant([spec.outputs], np.int64)], axis=0)
            found, shape = graph.add("Reshape", [found, by_row]), ["rows", "tokens", spec.outputs]
        elif spec.size:
            moved = graph.add("Add", [pooled["mean"], found])
            length = graph.add("ReduceL2", [moved, graph.constant([-1], np.int64)], keepdims=1)
            found = graph.add("Div", [moved, graph.add("Max", [length, graph.constant(1e-12)])], "vector")
        else:
            if gate:
                found = _by_language(graph, found, together, gate, f"heads.{number}", len(described["languages"]))
            if spec.name in described["vectors"]:
                found = graph.add("Add", [found, _likeness(graph, pooled["mean"], f"heads.{number}")])
        graph.add("Identity", [found], HEAD.format(number))
        outputs.append(helper.make_tensor_value_info(HEAD.format(number), TensorProto.FLOAT, shape))
    if described.get("weigh_windows"):
        graph.add("Identity", [graph.float_linear(together, "window_weight")], WINDOW_WEIGHT)
        outputs.append(helper.make_tensor_value_info(WINDOW_WEIGHT, TensorProto.FLOAT, ["rows", 1]))
    return graph.model(inputs, outputs)


def _mask(graph: GraphBuilder) -> str:
    """Tokens see tokens; padding sees everything, so that no row of a softmax is empty."""
    real = graph.add("Equal", [ATTENTION_MASK, graph.constant(1, np.int64)])
    padding_viewer = unsqueeze(graph, graph.add("Not", [real]), 2)
    return additive_mask(graph, graph.add("Or", [unsqueeze(graph, real, 1), padding_viewer], "sees"))


def _positions(graph: GraphBuilder) -> str:
    """0, 1, 2 ... as ``[1, tokens]``."""
    tokens = graph.add("Shape", [INPUT_IDS], start=1, end=2)
    count = graph.add("Squeeze", [tokens])
    places = graph.add("Range", [graph.constant(0, np.int64), count, graph.constant(1, np.int64)])
    return unsqueeze(graph, places, 0)


def _pooled(graph: GraphBuilder, name: str, states: str, inside: str) -> str:
    if name == "mean":
        return mean_of(graph, inside, states)
    zero, one = graph.constant([0], np.int64), graph.constant([1], np.int64)
    if name == "cls":
        return graph.add("Slice", [states, zero, one, one], "cls")
    lowest = graph.constant(np.finfo(np.float32).min)
    return graph.add("ReduceMax", [graph.add("Where", [unsqueeze(graph, inside, 2), states, lowest]), one], "max")


def _features(graph: GraphBuilder, features: dict[str, Any]) -> str:
    statistics = list(features["numbers"].values())
    parts = []
    if statistics:
        missing = graph.add("IsNaN", [NUMBERS], "missing")
        centre = graph.constant([mean for mean, _ in statistics], name="features.centre")
        spread = graph.constant([deviation for _, deviation in statistics], name="features.spread")
        standard = graph.add("Div", [graph.add("Sub", [NUMBERS, centre]), spread])
        parts.append(graph.add("Where", [missing, graph.constant(0.0), standard]))
        parts.append(graph.add("Cast", [missing], to=TensorProto.FLOAT))
    for number in range(len(features["categories"])):
        index = graph.add("Gather", [CATEGORIES, graph.constant(number, np.int64)], axis=1)
        width = graph.weights.table[f"features.tables.{number}.weight"].shape[1]
        parts.append(
            graph.flat(embedding(graph, f"features.tables.{number}", unsqueeze(graph, index, 1), width), width)
        )
    mixed = graph.float_linear(graph.add("Concat", parts, "features", axis=-1), "features.mix")
    return graph.add("Gelu", [mixed])


def _language_gate(graph: GraphBuilder, languages: int) -> str:
    """One at the language of each row, fp32 ``[rows, languages]``; see ``julia1.model.languages``."""
    last = graph.constant([-1], np.int64)
    of_pieces = graph.add("Gather", [graph.stored("gate.table"), INPUT_IDS])
    mask = graph.add("Unsqueeze", [graph.add("Cast", [ATTENTION_MASK], to=TensorProto.FLOAT), last])
    one = graph.constant([1], np.int64)
    total = graph.add("ReduceSum", [graph.add("Mul", [of_pieces, mask]), one], keepdims=0)
    sums, counts = graph.add_many("Split", [total, graph.constant([languages, 1], np.int64)], 2, axis=1)
    mean = graph.add("Div", [sums, graph.add("Max", [counts, graph.constant(1.0)])])
    best = graph.add("ArgMax", [mean], axis=1, keepdims=0)
    values = graph.constant([0.0, 1.0])
    chosen = graph.add("OneHot", [best, graph.constant([languages], np.int64), values], axis=1)
    likely = graph.add("Cast", [graph.add("GreaterOrEqual", [mean, graph.stored("gate.floor")])], to=TensorProto.FLOAT)
    counted = graph.add("Cast", [graph.add("Greater", [counts, graph.constant(0.0)])], to=TensorProto.FLOAT)
    return graph.add("Mul", [graph.add("Mul", [chosen, likely]), counted], "language")


def _by_language(graph: GraphBuilder, found: str, pooled: str, gate: str, head: str, languages: int) -> str:
    """``found`` and what the language of each row adds to it, in fp32: these layers are small."""
    for number in range(languages):
        inner = graph.add("Gelu", [graph.float_linear(pooled, f"{head}.languages.hidden.{number}")])
        added = graph.float_linear(inner, f"{head}.languages.out.{number}")
        column = graph.add("Gather", [gate, graph.constant([number], np.int64)], axis=1)
        found = graph.add("Add", [found, graph.add("Mul", [added, column])])
    return found


def _likeness(graph: GraphBuilder, mean: str, head: str) -> str:
    """Scaled cosine of the text's mean with each label's vector, ``[rows, labels]``."""
    vectors = graph.weights.value(f"{head}.vectors")
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    scaled = (vectors / lengths).T * np.exp(graph.weights.value(f"{head}.log_scale"))
    axis = graph.constant([-1], np.int64)
    length = graph.add("Max", [graph.add("ReduceL2", [mean, axis], keepdims=1), graph.constant(1e-12)])
    unit = graph.add("Div", [mean, length])
    cosine = graph.add("MatMul", [unit, graph.constant(scaled, name=f"{head}.label_vectors")])
    centre = graph.weights.value(f"{head}.centre") * np.exp(graph.weights.value(f"{head}.log_scale"))
    return graph.add("Sub", [cosine, graph.constant(centre, name=f"{head}.label_centre")])
