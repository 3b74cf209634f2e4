"""Load a Hugging Face encoder from a folder, trimmed to a vocabulary and to a number of layers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from julia1.content import shown
from julia1.errors import InputError
from julia1.model.bert_family import BERT_FAMILY, as_bert, bert_config


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
        InputError: the folder is not a model, its config or weights are not such as transformers takes, or it has fewer
            layers than asked for.
    """
    from transformers import AutoConfig, AutoModel

    backbone_config(folder)  # raises for what would be a page of names, or a question about running code
    try:
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
    except Exception as error:  # the library raises many classes, and those of its own libraries
        raise InputError(
            f"{folder} holds no model that transformers can load: {_gist(error)}; fetch or save the model again"
        ) from None
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
    """The config of a Hugging Face model folder, as ``load_encoder`` makes it.

    Raises:
        InputError: there is none, or it is not such as transformers takes; no code that it names is ever run.
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder} is not a Hugging Face model folder: it has no config.json") from None
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}") from None
    complete = complete_config(config, file)
    return bert_config(complete) if config["model_type"] in BERT_FAMILY else dict(config)


def complete_config(config: Mapping[str, Any], source: Path | str = "the encoder's config") -> dict[str, Any]:
    """A config with all that it leaves to the defaults of its model type.

    Args:
        config: what a ``config.json`` holds.
        source: what an error names as the place of the config.

    Raises:
        InputError: it is no object, names no model type that transformers knows, or transformers does not take a field.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    known = f"those that julia1 exports are {', '.join(('bert', 'modernbert', *BERT_FAMILY))}"
    if not isinstance(config, Mapping):
        raise InputError(f"{source} is {shown(config)}, not an object: put the config.json of the model there")
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        said = "names no model_type" if kind is None else f"has the model_type {shown(kind)}"
        raise InputError(f"{source} {said}: name the type of the encoder; {known}")
    if kind not in CONFIG_MAPPING:
        code = ""
        if "auto_map" in config:
            code = f", and the custom code that its auto_map names ({shown(config['auto_map'])}) is never run"
        raise InputError(
            f"{source} has the model_type {shown(kind)}, which transformers does not know{code}: name another encoder; "
            f"{known}"
        )
    settings = {key: value for key, value in config.items() if key != "model_type"}
    try:
        data: dict[str, Any] = AutoConfig.for_model(kind, **settings).to_dict()
    except Exception as error:  # whatever a wrong field meets first
        raise InputError(
            f"{source}: transformers does not take this config of a {kind} encoder ({_gist(error)}): correct the "
            f"field, or fetch the config.json again; {known}"
        ) from None
    return {**data, "model_type": kind}


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


def _gist(error: Exception) -> str:
    """The line of an error of transformers that says what is wrong, and no page of names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if lines and type(error).__name__.startswith("Strict") else (lines or [type(error).__name__])[0]
    return said if len(said) <= 300 else f"{said[:300]}…"
