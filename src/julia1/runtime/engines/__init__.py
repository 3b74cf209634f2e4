"""Engines: named arrays in, named arrays out. Nothing outside this folder knows which one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from julia1.bundle import FileEntry, Variant
from julia1.errors import EngineError, MissingExtraError

__all__ = [
    "ENGINES",
    "LENGTH_STEPS",
    "Engine",
    "cannot_run",
    "engine_file",
    "missing_engine",
    "open_engine",
    "require_engine",
]

ENGINES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "pytorch": "torch"}
"""Names of the engines, and the package that each comes with."""

LENGTH_STEPS = {"openvino": 8}
"""To a multiple of how many tokens rows are padded for an engine that keeps something for each new shape: after 900
shapes OpenVINO 2026.4 holds 61 MB more than after the largest of them, and 310 MB more without it
(``benchmarks/engine_shapes.py`` prints it)."""


class Engine(Protocol):
    """What every engine can do. Implementations are safe to share between threads."""

    @property
    def inputs(self) -> Mapping[str, Sequence[int | str]]:
        """Shape of each input by name; a dynamic axis is a name."""
        ...

    def run(
        self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Sequence[str]
    ) -> list[npt.NDArray[np.float32]]:
        """The named outputs for a batch; raises ``EngineError`` when the engine fails."""
        ...


def missing_engine(name: str) -> str:
    """Why there is no such engine here, in words; empty when there is."""
    if name not in ENGINES:
        return f"there is no engine {name!r}; julia1 knows: {', '.join(ENGINES)}"
    if find_spec(ENGINES[name]) is None:
        return f'{ENGINES[name]} is not installed: run  pip install "julia1[{name}]"'
    return ""


def require_engine(name: str) -> None:
    """Raise ``EngineError`` for an engine that julia1 does not know, ``MissingExtraError`` for one not installed."""
    if name in ENGINES and missing_engine(name):
        raise MissingExtraError(ENGINES[name], name)
    if name not in ENGINES:
        raise EngineError(missing_engine(name))


def cannot_run(engine: str | None, variant: Variant) -> str:
    """Why an engine cannot run a variant that was made for another, in words; empty when it can.

    The fp32 variant is one that every engine computes alike. Others round as the engine that they were made for does.
    """
    if engine in (None, variant.engine) or variant.precision == "fp32":
        return ""
    return f"{variant.precision} is made for {variant.engine}, and {engine} would not compute it rightly"


def engine_file(engine: str, variant: Variant) -> FileEntry:
    """The file of a variant that an engine opens: PyTorch the weights, every other the graph.

    Raises:
        EngineError: the variant has no weights of its own.
    """
    if engine != "pytorch":
        return variant.files[0]
    for entry in variant.files:
        if entry.path.endswith(".safetensors"):
            return entry
    raise EngineError(f"the variant {variant.name!r} has no weights that PyTorch reads: take the engine onnxruntime")


def open_engine(name: str, path: Path, threads: int, settings: Mapping[str, Any] | None = None) -> Engine:
    """Load a model into the engine of that name.

    Args:
        name: one of ``ENGINES``.
        path: the file that the engine opens, see ``engine_file``.
        threads: that may compute at once.
        settings: options of the engine; its class tells which.

    Raises:
        EngineError: the engine is unknown or cannot load the file.
        MissingExtraError: the engine is not installed.
        InputError: an option that the engine does not have.
    """
    if name == "onnxruntime":
        from julia1.runtime.engines.onnxruntime import OnnxRuntimeEngine

        return OnnxRuntimeEngine(path, threads, settings)
    if name == "openvino":
        from julia1.runtime.engines.openvino import OpenVinoEngine

        return OpenVinoEngine(path, threads, settings)
    if name == "pytorch":
        from julia1.runtime.engines.pytorch import PyTorchEngine

        return PyTorchEngine(path, threads, settings)
    raise EngineError(missing_engine(name))
