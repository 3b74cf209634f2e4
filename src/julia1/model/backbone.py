"""Load a Hugging Face encoder from a folder, trimmed to a vocabulary and to a number of layers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from julia1.errors import InputError
from julia1.model.bert_family import as_bert, bert_config


def load_encoder(folder: Path, layers: int | None = None, keep_pieces: list[int] | None = None) -> nn.Module:
    """Load an encoder; one of BERT's family (RoBERTa, XLM-R, CamemBERT, DistilBERT) comes as a ``BertModel``.

    A pooler is there if it is pretrained: see ``take_pooler``.

    Attention is computed with plain matrix products: with head widths of 32 they train 1.3x faster on a CPU than the
    fused kernel, whose backward pass is slow there (``benchmarks/attention.py``).

    Args:
        folder: a Hugging Face model folder (``config.json`` and weights); never a hub id, so nothing is fetched.
        layers: keep this many layers, spread evenly and always with the last one; all when ``None``.
        keep_pieces: ids of the embedding rows to keep, in their new order.

    Raises:
        InputError: the folder is not a model, or has fewer layers than asked for.
    """
    from transformers import AutoConfig, AutoModel

    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a Hugging Face model folder: it has no config.json")
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    loaded: Any = AutoModel.from_pretrained(
        folder,
        config=config,
        local_files_only=True,
        attn_implementation="eager",
        dtype=torch.float32,
        output_loading_info=True,
    )
    model: Any = loaded[0]
    if any(name.startswith("pooler.") for name in loaded[1]["missing_keys"]):
        model.pooler = None  # made up on the spot, not pretrained
    model = as_bert(model)
    if keep_pieces is not None:
        rows = model.get_input_embeddings().weight.detach()[torch.tensor(keep_pieces)].clone()
        model.set_input_embeddings(nn.Embedding(rows.shape[0], rows.shape[1], _weight=rows))
        model.config.vocab_size = len(keep_pieces)
    if layers is not None:
        _keep_layers(model, layers)
    return model  # type: ignore[no-any-return]


def take_pooler(encoder: nn.Module) -> nn.Linear | None:
    """The linear layer of a BERT's pooler, which the encoder then no longer has; ``None`` where it had none."""
    pooler: Any = getattr(encoder, "pooler", None)
    if pooler is None:
        return None
    encoder.pooler = None  # type: ignore[assignment]
    return pooler.dense  # type: ignore[no-any-return]


def put_pooler(encoder: nn.Module, dense: nn.Linear) -> None:
    """Give a BERT the pooler that ``take_pooler`` took from one."""
    from transformers.models.bert.modeling_bert import BertPooler

    pooler = BertPooler(encoder.config)
    pooler.dense = dense
    encoder.pooler = pooler


def backbone_config(folder: Path) -> dict[str, Any]:
    """The config of a Hugging Face model folder, as ``load_encoder`` makes it; ``InputError`` when there is none."""
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{folder} is not a Hugging Face model folder: it has no config.json") from None
    except ValueError as error:
        raise InputError(f"{folder / 'config.json'} is not JSON: {error}") from None
    return bert_config(config)


def complete_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with all that it leaves to the defaults of its model type."""
    from transformers import AutoConfig

    settings = {key: value for key, value in config.items() if key != "model_type"}
    data: dict[str, Any] = AutoConfig.for_model(config["model_type"], **settings).to_dict()
    return {**data, "model_type": config["model_type"]}


def new_encoder(config: dict[str, Any]) -> nn.Module:
    """An encoder with random weights from a Hugging Face config dictionary (``model_type`` included)."""
    from transformers import AutoConfig, AutoModel

    settings = dict(config)
    model_type = settings.pop("model_type")
    model: nn.Module = AutoModel.from_config(AutoConfig.for_model(model_type, **settings), attn_implementation="eager")
    take_pooler(model)
    return model


def config_dictionary(encoder: nn.Module) -> dict[str, Any]:
    """The encoder's config as plain JSON data, for a checkpoint."""
    config: Any = encoder.config
    data: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    data["model_type"] = config.model_type
    return data


def _keep_layers(model: Any, number: int) -> None:
    layers = model.encoder.layer
    if not 1 <= number <= len(layers):
        raise InputError(f"layers: the backbone has {len(layers)} layers, {number} were asked for")
    chosen = [round((i + 1) * len(layers) / number) - 1 for i in range(number)]
    model.encoder.layer = nn.ModuleList(layers[i] for i in chosen)
    model.config.num_hidden_layers = number
