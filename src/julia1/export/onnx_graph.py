"""Trace an option model into an ONNX graph with dynamic rows, tokens and options."""

from __future__ import annotations

import io
import logging
import warnings
from typing import Any

import onnx
import torch

from julia1.model.option_model import OptionModel
from julia1.text.options import INPUT_NAMES

OPSET = 21
OUTPUT_NAME = "logits"


def trace(model: OptionModel) -> onnx.ModelProto:
    """The fp32 graph of a model, weights inside, standard operators only.

    The example batch has sizes of two and more in every axis, all different: an axis of one would be frozen.
    """
    rows, tokens, options = (torch.export.Dim(name) for name in ("rows", "tokens", "options"))
    axes: dict[str, Any] = {name: {0: rows, 1: tokens} for name in INPUT_NAMES}
    axes["markers"] = {0: rows, 1: options}
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                model.eval(),
                example_batch(),
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=axes,
                input_names=list(INPUT_NAMES),
                output_names=[OUTPUT_NAME],
                external_data=False,
                verbose=False,
            )
    finally:
        noisy.setLevel(level)
    buffer = io.BytesIO(program.model_proto.SerializeToString())
    return onnx.load_model(buffer)


def example_batch() -> tuple[torch.Tensor, ...]:
    """Two small rows in the order of ``INPUT_NAMES``: a trunk of three, a branch of two, two leaves of two tokens."""
    branches = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]] * 2)
    leaves = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 2, 2]] * 2)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 5, 6]] * 2)
    input_ids = torch.full((2, 9), 3)
    markers = torch.tensor([[5, 7, 7]] * 2)
    return input_ids, positions, branches, leaves, markers
