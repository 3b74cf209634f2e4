"""Eight-bit storage of a model's weights: one safetensors file for training, for the fp32 graph and for the int8 graph.

Every matrix is stored as int8 with one fp32 scale an output channel (an embedding: one a row), all else as fp32.
``round_weights`` puts a model onto that grid, after which storing it is lossless: PyTorch, the fp32 variant and the
int8 variant of a bundle all hold exactly the same numbers.

Linear weights are stored as ``[inputs, outputs]``, the layout ONNX reads, which is why the file can serve as its
external data. Their scales are ``[outputs]``; those of an embedding are ``[rows, 1]``: codes times scale is the weight
in either case.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from julia1.errors import BundleError
from julia1.model.backbone import config_dictionary, new_encoder
from julia1.model.option_model import OptionModel

SCALE_SUFFIX = ".scale"
LEVELS = 127


def matrix_modules(model: nn.Module) -> dict[str, nn.Linear | nn.Embedding]:
    """The modules whose weights are stored in eight bits, by parameter name: all linear layers and embeddings."""
    return {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, nn.Embedding))
    }


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8 codes ``[rows, columns]`` and fp32 scales ``[rows]`` of a matrix."""
    scale = weight.abs().amax(dim=1).clamp_min(1e-12) / LEVELS
    codes = torch.round(weight / scale[:, None]).clamp(-LEVELS, LEVELS).to(torch.int8)
    return codes, scale


@torch.no_grad()
def round_weights(model: nn.Module) -> None:
    """Round every stored matrix to its eight-bit grid, in place."""
    for module in matrix_modules(model).values():
        codes, scale = quantize_rows(module.weight)
        module.weight.copy_(codes.float() * scale[:, None])


def save_weights(model: OptionModel, path: Path) -> None:
    """Write a rounded model's weights and its encoder config (in the file's metadata)."""
    from safetensors.numpy import save_file

    matrices = matrix_modules(model)
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, parameter in model.named_parameters():
        if name in matrices:
            codes, scale = quantize_rows(parameter.detach())
            is_linear = isinstance(matrices[name], nn.Linear)
            tensors[name] = np.ascontiguousarray((codes.T if is_linear else codes).numpy())
            tensors[name + SCALE_SUFFIX] = (scale if is_linear else scale[:, None]).numpy()
        else:
            tensors[name] = parameter.detach().numpy()
    config = json.dumps(config_dictionary(model.encoder), sort_keys=True)
    save_file(tensors, path, metadata={"encoder_config": config})  # one entry: several are written in random order


def load_weights(path: Path) -> OptionModel:
    """Read a model back, in fp32 and in evaluation mode.

    Raises:
        BundleError: the file is not one that ``save_weights`` wrote, or a tensor is missing or of another shape.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise BundleError(f"{path} is not a readable weight file: {error}") from None
    if "encoder_config" not in metadata:
        raise BundleError(f"{path} is not a julia1 weight file: it names no encoder_config")
    model = OptionModel(new_encoder(json.loads(metadata["encoder_config"])))
    matrices = matrix_modules(model)
    state: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        stored = tensors.get(name)
        if stored is None:
            raise BundleError(f"{path}: the tensor {name} is missing")
        value = torch.from_numpy(stored).float()
        if name in matrices:
            if name + SCALE_SUFFIX not in tensors:
                raise BundleError(f"{path}: the tensor {name + SCALE_SUFFIX} is missing")
            scale = torch.from_numpy(tensors[name + SCALE_SUFFIX])
            value = (value * scale).T.contiguous() if isinstance(matrices[name], nn.Linear) else value * scale
        if value.shape != parameter.shape:
            raise BundleError(
                f"{path}: {name} has shape {tuple(value.shape)}, the model needs {tuple(parameter.shape)}"
            )
        state[name] = value
    model.load_state_dict(state, strict=False)
    return model.eval()
