"""A decision model as plain PyTorch: a state dict in safetensors and a config in JSON, nothing that is executed.

    model.safetensors   every parameter and buffer by its PyTorch name, fp32
    config.json         ``encoder``: the Hugging Face config; ``model``: ``FixedModel.description``, or null for a model
                        for open decisions

``load_eager`` reads it back. The encoder's parameters begin with ``encoder.``: without that they fit ``AutoModel``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from julia1.errors import BundleError
from julia1.model.backbone import config_dictionary, new_encoder
from julia1.model.fixed_model import FixedModel
from julia1.model.option_model import OptionModel

STATE_FILE, CONFIG_FILE = "model.safetensors", "config.json"

DecisionModel = FixedModel | OptionModel


def describe(model: DecisionModel) -> dict[str, Any]:
    """What ``load_eager`` needs beside the state dict, as plain JSON data."""
    described = model.description() if isinstance(model, FixedModel) else None
    return {"encoder": config_dictionary(model.encoder), "model": described}


def save_state(model: DecisionModel, path: Path) -> None:
    """Write the state dict, fp32."""
    from safetensors.torch import save_file

    # a copy each: tensors that share memory cannot be written
    save_file({name: value.detach().float().clone() for name, value in model.state_dict().items()}, path)


def load_eager(folder: str | Path) -> DecisionModel:
    """The model in a folder that ``julia1 export --format eager`` wrote, in fp32 and in evaluation mode.

    Raises:
        BundleError: a file is missing or damaged, or the state dict does not fit the config.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        encoder = new_encoder(config["encoder"])
        described = config["model"]
        model: DecisionModel = (
            OptionModel(encoder) if described is None else FixedModel.from_description(encoder, described)
        )
        model.load_state_dict(load_file(folder / STATE_FILE))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BundleError(f"{folder} holds no model that can be loaded: {first}; export it again") from None
    return model.eval()
