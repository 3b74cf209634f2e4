"""A ModernBERT encoder (mmBERT too) as ONNX nodes: rotary positions, gated feed-forward layers, sliding windows.

Warner et al. 2024, "Smarter, Better, Faster, Longer"; the same as ``transformers``' ModernBertModel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from julia1.errors import VerificationError
from julia1.export.encoder_graph import attention_ranges, embedding, unsqueeze
from julia1.export.graph_builder import GraphBuilder
from julia1.model.backbone import complete_config

FULL, SLIDING = "full_attention", "sliding_attention"


def modernbert_encoder(graph: GraphBuilder, config: Mapping[str, Any], mask: str, positions: str) -> tuple[str, str]:
    """The layers of a ModernBERT encoder over the input ``input_ids``.

    Args:
        graph: where nodes go.
        config: the Hugging Face config.
        mask: additive attention mask, ``[rows, 1, tokens, tokens]``.
        positions: position ids, ``[1, tokens]``.

    Returns:
        Last hidden states ``[rows · tokens, width]``, and the run-time shape ``[rows, tokens, width]``.

    Raises:
        VerificationError: rotary positions of another kind than the default.
    """
    config = complete_config(config)
    width, epsilon = config["hidden_size"], config["norm_eps"]
    shape = graph.add("Shape", ["input_ids"], "shape")
    batched = graph.add("Concat", [shape, graph.constant([width], np.int64)], "shape.batched", axis=0)
    words = embedding(graph, "encoder.embeddings.tok_embeddings", "input_ids", width)
    hidden = graph.layer_norm(graph.flat(words, width), "encoder.embeddings.norm", epsilon)
    masks = {FULL: mask, SLIDING: _sliding(graph, mask, positions, config["local_attention"] // 2)}
    turns = {kind: _turns(graph, config, kind, positions) for kind in dict.fromkeys(config["layer_types"])}
    for number, kind in enumerate(config["layer_types"]):
        layer = f"encoder.layers.{number}"
        first = f"{layer}.attn_norm"
        read = graph.layer_norm(hidden, first, epsilon) if f"{first}.weight" in graph.weights.table else hidden
        attended = _attention(graph, config, layer, read, batched, masks[kind], turns[kind])
        hidden = graph.add("Add", [hidden, attended])
        wide = graph.linear(graph.layer_norm(hidden, f"{layer}.mlp_norm", epsilon), f"{layer}.mlp.Wi")
        inner, gate = graph.add_many("Split", [wide], 2, f"{layer}.mlp.split", axis=1, num_outputs=2)
        gated = graph.add("Mul", [graph.add("Gelu", [inner]), gate], f"{layer}.mlp.gated")
        hidden = graph.add("Add", [hidden, graph.linear(gated, f"{layer}.mlp.Wo")], layer)
    return graph.layer_norm(hidden, "encoder.final_norm", epsilon), batched


def _attention(
    graph: GraphBuilder,
    config: Mapping[str, Any],
    layer: str,
    value: str,
    batched: str,
    mask: str,
    turns: tuple[str, str],
) -> str:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    depth = width // heads
    out = f"{layer}.attn.Wo"
    scale, shift, prescaled = attention_ranges(graph, out, width, depth)
    together = graph.linear(value, f"{layer}.attn.Wqkv", output_scale=scale, output_shift=shift)
    parts = graph.add_many("Split", [together], 3, f"{layer}.attn.split", axis=1, num_outputs=3)
    apart = graph.constant([0, -1, heads, depth], np.int64)
    by_head = [graph.add("Reshape", [graph.add("Reshape", [part, batched]), apart]) for part in parts]
    query, key, values = (graph.add("Transpose", [part], perm=[0, 2, 1, 3]) for part in by_head)
    query, key = _turned(graph, query, turns, depth), _turned(graph, key, turns, depth)
    scores = graph.add("MatMul", [query, graph.add("Transpose", [key], perm=[0, 1, 3, 2])], f"{layer}.scores")
    if not graph.int8:
        scores = graph.add("Mul", [scores, graph.constant(depth**-0.5)])
    weights = graph.add("Softmax", [graph.add("Add", [scores, mask])], f"{layer}.attention", axis=-1)
    attended = graph.add("Transpose", [graph.add("MatMul", [weights, values])], perm=[0, 2, 1, 3])
    return graph.linear(graph.flat(attended, width), out, prescaled=prescaled)


def _turns(graph: GraphBuilder, config: Mapping[str, Any], kind: str, positions: str) -> tuple[str, str]:
    """Cosines and sines of rotary positions, each ``[1, 1, tokens, head width]``."""
    rope = config["rope_parameters"][kind]
    if rope.get("rope_type", "default") != "default":
        raise VerificationError(f"no graph is known for rotary positions of the type {rope['rope_type']!r}")
    depth = config["hidden_size"] // config["num_attention_heads"]
    frequencies = 1.0 / rope["rope_theta"] ** (np.arange(0, depth, 2, dtype=np.float32) / depth)
    places = unsqueeze(graph, unsqueeze(graph, graph.add("Cast", [positions], to=1), 2), 1)
    angles = graph.add("Mul", [places, graph.constant(frequencies, name=f"{kind}.frequencies")])
    both = graph.add("Concat", [angles, angles], f"{kind}.angles", axis=-1)
    return graph.add("Cos", [both]), graph.add("Sin", [both])


def _turned(graph: GraphBuilder, value: str, turns: tuple[str, str], depth: int) -> str:
    """Queries or keys ``[rows, heads, tokens, depth]``, rotated by their positions."""
    cosines, sines = turns
    low, high = graph.add_many("Split", [value], 2, "halves", axis=-1, num_outputs=2)
    swapped = graph.add("Concat", [graph.add("Neg", [high]), low], axis=-1)
    return graph.add("Add", [graph.add("Mul", [value, cosines]), graph.add("Mul", [swapped, sines])])


def _sliding(graph: GraphBuilder, mask: str, positions: str, reach: int) -> str:
    """The mask for layers that see so many tokens to either side only."""
    distance = graph.add("Abs", [graph.add("Sub", [unsqueeze(graph, positions, 2), unsqueeze(graph, positions, 1)])])
    far = graph.add("Greater", [distance, graph.constant(reach, np.int64)])
    lowest = graph.constant(np.finfo(np.float32).min / 2)
    return graph.add("Where", [unsqueeze(graph, far, 1), lowest, mask], "sliding_mask")
