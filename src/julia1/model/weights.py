"""Low-bit storage of a model's weights: one safetensors file for training, for the fp32 graph and for the int8 graph.

A linear layer is stored as int8 codes ``[inputs, outputs]`` (the layout ONNX reads, which is why the file can serve as
its external data) with an fp32 scale an output, and optionally an *input scale* an input: the weight is
``codes · scale / input scale``. Input scales move outliers of activations into the weights, as SmoothQuant does
(Xiao et al. 2022), before those are rounded.

Query, key and value of an attention share their input, so they are stored side by side as one matrix.

An embedding is stored as int8 codes with a scale a row, or, where it stands on a grid of 4-bit blocks already (some
backbones are distributed so), as those blocks: 32 weights share an fp16 scale, two weights a byte.

``round_weights`` puts a model onto that grid, after which storing it is lossless (with input scales, but for the last
bit of a float): PyTorch, the fp32 variant and the int8 variant of a bundle all read the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from julia1.errors import BundleError
from julia1.model.backbone import config_dictionary, new_encoder
from julia1.model.fixed_model import FixedModel
from julia1.model.option_model import OptionModel

SCALE_SUFFIX = ".scale"
INPUT_SCALE_SUFFIX = ".input_scale"
INPUT_SHIFT_SUFFIX = ".input_shift"
LEVELS = 127
BLOCK = 32
"""Weights that share a scale in a 4-bit embedding."""


@dataclass(frozen=True)
class InputRange:
    """What the inputs of a linear layer are shifted and scaled by before they are rounded: ``(input - shift) / scale``.

    Attributes:
        scale: above 0, fp32 ``[inputs]``.
        shift: fp32 ``[inputs]``, in the units of the input. It changes no weight: only a graph that rounds reads it.
    """

    scale: Tensor
    shift: Tensor


InputRanges = Mapping[str, InputRange]
"""By the stored name of a linear layer. A layer left out has scales of one and no shift."""


def linear_layers(model: nn.Module) -> dict[str, list[nn.Linear]]:
    """Linear layers by the name they are stored under; query, key and value of one attention come together."""
    layers: dict[str, list[nn.Linear]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            parent, _, leaf = name.rpartition(".")
            stored = f"{parent}.qkv" if leaf in ("query", "key", "value") else name
            layers.setdefault(stored, []).append(module)
    return layers


def embeddings(model: nn.Module) -> dict[str, nn.Embedding]:
    """Embedding tables by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8 codes ``[rows, columns]`` and fp32 scales ``[rows]`` of a matrix."""
    scale = weight.abs().amax(dim=1).clamp_min(1e-12) / LEVELS
    codes = torch.round(weight / scale[:, None]).clamp(-LEVELS, LEVELS).to(torch.int8)
    return codes, scale


def quantize_blocks(table: Tensor) -> tuple[Tensor, Tensor] | None:
    """4-bit blocks of a table that loses nothing by them, or ``None``.

    Returns uint8 codes ``[rows, blocks, 16]`` (weight ``j`` of a block in the low half of byte ``j``, weight ``j + 16``
    in its high half, each 8 more than the number meant) and fp16 scales ``[rows, blocks, 1]``. The weight of the
    largest magnitude in a block is -8 times its scale, so the scale may be negative.
    """
    if table.shape[1] % BLOCK:
        return None
    blocks = table.reshape(table.shape[0], -1, BLOCK)
    extreme = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scale = (extreme / -8).half()
    divisor = scale.float()
    numbers = torch.where(divisor == 0, 0.0, torch.round(blocks / torch.where(divisor == 0, 1.0, divisor)))
    if not torch.equal(numbers.clamp(-8, 7) * divisor, blocks):
        return None
    codes = (numbers.clamp(-8, 7) + 8).to(torch.uint8)
    return codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4, scale


def block_values(codes: Tensor, scale: Tensor) -> Tensor:
    """The fp32 table ``[rows, columns]`` behind 4-bit blocks."""
    numbers = torch.cat([codes & 15, codes >> 4], dim=2).float() - 8
    return (numbers * scale.float()).flatten(1)


@torch.no_grad()
def round_weights(model: nn.Module, ranges: InputRanges | None = None) -> None:
    """Round every stored matrix to its grid, in place."""
    for name, layers in linear_layers(model).items():
        factor = _input_scale(name, layers, ranges)
        for layer in layers:
            codes, scale = quantize_rows(layer.weight * factor)
            layer.weight.copy_(codes.float() * scale[:, None] / factor)
    for table in embeddings(model).values():
        if quantize_blocks(table.weight) is None:
            codes, scale = quantize_rows(table.weight)
            table.weight.copy_(codes.float() * scale[:, None])


@torch.no_grad()
def save_weights(model: OptionModel | FixedModel, path: Path, ranges: InputRanges | None = None) -> None:
    """Write a model that was rounded with the same ranges, and what it is made of (in the file's metadata)."""
    from safetensors.numpy import save_file

    tensors: dict[str, Tensor] = {}
    for name, layers in linear_layers(model).items():
        factor = _input_scale(name, layers, ranges)
        parts = [quantize_rows(layer.weight * factor) for layer in layers]
        tensors[f"{name}.weight"] = torch.cat([codes for codes, _ in parts]).T.contiguous()
        tensors[f"{name}.weight{SCALE_SUFFIX}"] = torch.cat([scale for _, scale in parts])
        if ranges and name in ranges:
            tensors[f"{name}.weight{INPUT_SCALE_SUFFIX}"] = factor
            tensors[f"{name}.weight{INPUT_SHIFT_SUFFIX}"] = ranges[name].shift
        # a layer without bias gets zeros: graphs need know nothing of it
        biases: list[Tensor] = [
            torch.zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers
        ]
        tensors[f"{name}.bias"] = torch.cat(biases)
    for name, table in embeddings(model).items():
        blocks = quantize_blocks(table.weight)
        codes, scale = blocks or quantize_rows(table.weight)
        tensors[f"{name}.weight"] = codes
        tensors[f"{name}.weight{SCALE_SUFFIX}"] = scale if blocks else scale[:, None]
    inside = _module_parameters(model)
    tensors.update((name, value.detach()) for name, value in model.named_parameters() if name not in inside)
    arrays: dict[str, npt.NDArray[Any]] = {name: value.numpy() for name, value in tensors.items()}
    described: dict[str, Any] = config_dictionary(model.encoder)
    if isinstance(model, FixedModel):
        described = {"encoder_config": described, **model.description()}
    key = "fixed_model" if isinstance(model, FixedModel) else "encoder_config"
    # one entry: several are written in random order
    save_file(arrays, path, metadata={key: json.dumps(described, ensure_ascii=False)})


@dataclass(frozen=True)
class StoredModel:
    """A weight file, read.

    Attributes:
        tensors: by name, as they are stored.
        encoder_config: the encoder's Hugging Face config.
        fixed: what ``FixedModel.description`` gave; ``None`` for an option model.
    """

    tensors: dict[str, npt.NDArray[Any]]
    encoder_config: dict[str, Any]
    fixed: dict[str, Any] | None


def read_weights(path: Path) -> StoredModel:
    """Read a weight file.

    Raises:
        BundleError: the file is not one that ``save_weights`` wrote.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise BundleError(f"{path} is not a readable weight file: {error}") from None
    if "fixed_model" in metadata:
        described = json.loads(metadata["fixed_model"])
        return StoredModel(tensors, described.pop("encoder_config"), described)
    if "encoder_config" not in metadata:
        raise BundleError(f"{path} is not a julia1 weight file: it names no encoder_config")
    return StoredModel(tensors, json.loads(metadata["encoder_config"]), None)


def load_weights(path: Path) -> OptionModel:
    """Read an option model back, in fp32 and in evaluation mode.

    Raises:
        BundleError: the file is not one that ``save_weights`` wrote from an option model, or a tensor is missing or of
            another shape.
    """
    model = load_any(path)
    if not isinstance(model, OptionModel):
        raise BundleError(f"{path} holds a model with fixed heads, not one for open decisions")
    return model


def load_fixed(path: Path) -> FixedModel:
    """Read a model with fixed heads back; as ``load_weights``."""
    model = load_any(path)
    if not isinstance(model, FixedModel):
        raise BundleError(f"{path} holds a model for open decisions, not one with fixed heads")
    return model


def load_any(path: Path) -> OptionModel | FixedModel:
    """Read a model back, of the kind that the file says; as ``load_weights``."""
    stored = read_weights(path)
    encoder = new_encoder(stored.encoder_config)
    model = OptionModel(encoder) if stored.fixed is None else FixedModel.from_description(encoder, stored.fixed)
    _fill(model, stored.tensors, path)
    return model


@torch.no_grad()
def _fill(model: nn.Module, tensors: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Put stored tensors into a model, and the model into evaluation mode."""

    def stored(name: str) -> Tensor:
        if name not in tensors:
            raise BundleError(f"{path}: the tensor {name} is missing")
        return torch.from_numpy(tensors[name])

    def shaped(name: str, *shape: int) -> Tensor:
        value = stored(name)
        if value.shape != shape:
            raise BundleError(f"{path}: {name} has shape {tuple(value.shape)}, the model needs {shape}")
        return value

    for name, layers in linear_layers(model).items():
        inputs, outputs = layers[0].in_features, sum(layer.out_features for layer in layers)
        codes = shaped(f"{name}.weight", inputs, outputs)
        weight = codes.float() * shaped(f"{name}.weight{SCALE_SUFFIX}", outputs)
        if f"{name}.weight{INPUT_SCALE_SUFFIX}" in tensors:
            weight = weight / shaped(f"{name}.weight{INPUT_SCALE_SUFFIX}", inputs)[:, None]
        bias = shaped(f"{name}.bias", outputs)
        start = 0
        for layer in layers:
            own = slice(start, start := start + layer.out_features)
            layer.weight.copy_(weight.T[own])
            if layer.bias is not None:
                layer.bias.copy_(bias[own])
    for name, table in embeddings(model).items():
        rows, columns = table.weight.shape
        if stored(f"{name}.weight").dtype == torch.uint8:
            codes = shaped(f"{name}.weight", rows, columns // BLOCK, BLOCK // 2)
            value = block_values(codes, shaped(f"{name}.weight{SCALE_SUFFIX}", rows, columns // BLOCK, 1))
        else:
            value = shaped(f"{name}.weight", rows, columns).float() * shaped(f"{name}.weight{SCALE_SUFFIX}", rows, 1)
        table.weight.copy_(value)
    inside = _module_parameters(model)
    for name, parameter in model.named_parameters():
        if name not in inside:
            parameter.copy_(shaped(name, *parameter.shape))
    model.eval()


def _input_scale(name: str, layers: list[nn.Linear], ranges: InputRanges | None) -> Tensor:
    if ranges is None or name not in ranges:
        return torch.ones(layers[0].in_features)
    return ranges[name].scale


def _module_parameters(model: nn.Module) -> set[str]:
    """Names of the parameters that belong to a linear layer or an embedding."""
    return {
        f"{name}.{leaf}"
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, nn.Embedding))
        for leaf, _ in module.named_parameters()
    }
