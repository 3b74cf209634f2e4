"""Encoders that are BERT in other clothes, as BERT: one graph and one checkpoint format serve the whole family.

RoBERTa and XLM-R count positions from their padding id on; DistilBERT has no token types and other names. Both are
renamed, not approximated: hidden states are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

ROBERTA_TYPES = ("roberta", "xlm-roberta", "camembert")
DISTILBERT = "distilbert"
BERT_FAMILY = (*ROBERTA_TYPES, DISTILBERT)
_DISTILBERT_NAMES = {
    "attention.q_lin": "attention.self.query",
    "attention.k_lin": "attention.self.key",
    "attention.v_lin": "attention.self.value",
    "attention.out_lin": "attention.output.dense",
    "sa_layer_norm": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "output_layer_norm": "output.LayerNorm",
}


def bert_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the BERT that an encoder of its family is; any other config comes back as it was."""
    kind = config.get("model_type")
    if kind in ROBERTA_TYPES:
        shifted = int(config["max_position_embeddings"]) - _first_position(config)
        return {**_common(config), "max_position_embeddings": shifted}
    if kind == DISTILBERT:
        return {
            **_common(config),
            "hidden_size": config["dim"],
            "num_hidden_layers": config["n_layers"],
            "num_attention_heads": config["n_heads"],
            "intermediate_size": config["hidden_dim"],
            "hidden_act": config.get("activation", "gelu"),
            "max_position_embeddings": config["max_position_embeddings"],
            "layer_norm_eps": 1e-12,
            "type_vocab_size": 1,
        }
    return dict(config)


def as_bert(model: nn.Module) -> nn.Module:
    """The same encoder as a ``BertModel``; one of another family comes back as it was."""
    from transformers import BertConfig, BertModel

    config: Any = model.config
    data = {**config.to_dict(), "model_type": config.model_type}
    if config.model_type not in BERT_FAMILY:
        return model
    settings = {key: value for key, value in bert_config(data).items() if key != "model_type"}
    bert: Any = BertModel(BertConfig(**settings, attn_implementation="eager"), add_pooling_layer=False)
    rename = _from_distilbert if config.model_type == DISTILBERT else _from_roberta
    bert.load_state_dict(rename(model.state_dict(), data))
    bert.pooler = getattr(model, "pooler", None)
    return bert  # type: ignore[no-any-return]


def _common(config: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
        "layer_norm_eps", "type_vocab_size", "pad_token_id",
    )  # fmt: skip
    kept = {name: config[name] for name in names if config.get(name) is not None}
    return {**kept, "model_type": "bert", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _first_position(config: Mapping[str, Any]) -> int:
    return int(config.get("pad_token_id") or 0) + 1


def _from_roberta(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    found = {name: value for name, value in state.items() if not name.startswith("pooler.")}
    table = "embeddings.position_embeddings.weight"
    found[table] = found[table][_first_position(config) :].clone()
    return {name: value for name, value in found.items() if not name.endswith("_ids")}


def _from_distilbert(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    found = {"embeddings.token_type_embeddings.weight": torch.zeros(1, int(config["dim"]))}
    for name, value in state.items():
        layer = re.fullmatch(r"transformer\.layer\.(\d+)\.(.+)\.(weight|bias)", name)
        if layer:
            number, part, kind = layer.groups()
            found[f"encoder.layer.{number}.{_DISTILBERT_NAMES[part]}.{kind}"] = value
        elif name.startswith("embeddings.") and not name.endswith("_ids"):
            found[name] = value
    return found
