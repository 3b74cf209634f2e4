"""Engines: named arrays in, named arrays out. Nothing outside this folder knows which one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from julia1.errors import EngineError

__all__ = ["ENGINES", "Engine", "missing_engine", "open_engine"]

ENGINES = {"onnxruntime": "onnxruntime"}
"""Names of the engines, and the package that each comes with."""


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


def open_engine(name: str, graph: Path, threads: int, settings: Mapping[str, Any] | None = None) -> Engine:
    """Load a graph into the engine of that name; raises ``EngineError`` when it is unknown or cannot load it."""
    if name != "onnxruntime":
        raise EngineError(f"unknown engine {name!r}: this version of julia1 has onnxruntime")
    from julia1.runtime.engines.onnxruntime import OnnxRuntimeEngine

    return OnnxRuntimeEngine(graph, threads, settings)
