"""PyTorch modules and exported programs behind the interface of an engine, and two engines compared call by call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from julia1.bundle.heads import HeadSpec
from julia1.errors import InputError, VerificationError
from julia1.export.parity import Parity
from julia1.model.eager import DecisionModel
from julia1.model.fixed_model import WINDOW_WEIGHT as MODULE_WINDOW_WEIGHT
from julia1.runtime.engines import Engine
from julia1.runtime.fixed import ATTENTION_MASK, CATEGORIES, HEAD, NUMBERS, WINDOW_WEIGHT
from julia1.text.options import OptionsEncoding, Row

Call = Callable[..., Any]
"""A module's call, with arrays by the name of the argument."""
Arrays = Mapping[str, npt.NDArray[Any]]


def called(call: Call, feeds: Arrays) -> Any:
    """What a module gives for arrays."""
    with torch.inference_mode():
        return call(**{name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in feeds.items()})


class ModuleEngine:
    """A model with fixed heads in PyTorch, or a program exported from it, as an engine with the graph's outputs."""

    inputs: Mapping[str, Sequence[int | str]] = {}

    def __init__(self, call: Call, heads: Sequence[HeadSpec]) -> None:
        self._call = call
        self._keys = {HEAD.format(number): head.name for number, head in enumerate(heads)}
        self._keys[WINDOW_WEIGHT] = MODULE_WINDOW_WEIGHT

    def run(
        self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Sequence[str]
    ) -> list[npt.NDArray[np.float32]]:
        """The named outputs for a batch."""
        found = called(self._call, feeds)
        return [found[self._keys[name]].float().numpy() for name in outputs]


class ModuleScorer:
    """A model for open decisions in PyTorch, or a program exported from it; scores rows in one pass."""

    def __init__(self, call: Call, encoding: OptionsEncoding) -> None:
        self._call, self._encoding = call, encoding

    def scores(self, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """Logits of a batch of rows, fp32 ``[rows, options]``."""
        found: npt.NDArray[np.float32] = called(self._call, self._encoding.collate(rows).feeds()).float().numpy()
        return found


class ComparedEngines:
    """Answers with one engine, and notes how far another departs from it, at tokens and never at padding."""

    def __init__(self, reference: Engine, candidate: Engine) -> None:
        self.inputs = reference.inputs
        self._reference, self._candidate = reference, candidate
        self._differences: list[npt.NDArray[np.float32]] = []

    def run(
        self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Sequence[str]
    ) -> list[npt.NDArray[np.float32]]:
        """The reference's outputs for a batch; raises ``VerificationError`` when the other's have another shape."""
        expected = self._reference.run(feeds, outputs)
        inside = feeds[ATTENTION_MASK] == 1
        for name, wanted, found in zip(outputs, expected, self._candidate.run(feeds, outputs), strict=True):
            if wanted.shape != found.shape:
                raise VerificationError(f"the output {name!r} has the shape {found.shape} instead of {wanted.shape}")
            difference = np.abs(wanted - found)
            self._differences.append((difference[inside] if difference.ndim == 3 else difference).ravel())
        return expected

    @property
    def parity(self) -> Parity:
        """Over all calls so far."""
        flat = np.concatenate(self._differences)
        return Parity(float(flat.max()), float(flat.mean()), len(flat))


def exported_program(model: DecisionModel, example: Arrays) -> torch.export.ExportedProgram:
    """The model as a program (``torch.export``) with dynamic rows, tokens and options.

    Args:
        model: in evaluation mode.
        example: a batch of at least two rows, two tokens and two options.
    """
    rows = torch.export.Dim("rows", min=1)
    tokens = torch.export.Dim("tokens", min=1, max=int(_config(model)["max_position_embeddings"]))
    options = torch.export.Dim("options", min=1)
    shapes: dict[str, dict[int, torch.export.Dim]] = {}
    for name in example:
        shapes[name] = {0: rows}
        if name not in (NUMBERS, CATEGORIES):
            shapes[name][1] = options if name == "markers" else tokens
    arguments: dict[str, Tensor] = {name: torch.from_numpy(value) for name, value in example.items()}
    with torch.no_grad():
        return torch.export.export(model, (), arguments, dynamic_shapes=shapes)


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Read a ``.pt2`` file; raises ``InputError`` when it is not one."""
    try:
        return torch.export.load(path)
    except Exception as error:  # the library raises several classes
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a program that this PyTorch reads: {first}") from None


def _config(model: DecisionModel) -> dict[str, Any]:
    encoder: nn.Module = model.encoder
    config: Any = encoder.config
    found: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return found
