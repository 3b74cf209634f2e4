"""Engines: named arrays in, named arrays out. Nothing outside this folder knows which one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from julia1.errors import EngineError

__all__ = ["Engine", "open_engine"]


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


def open_engine(name: str, graph: Path, threads: int, settings: Mapping[str, Any] | None = None) -> Engine:
    """Load a graph into the engine of that name; raises ``EngineError`` when it is unknown or cannot load it."""
    if name != "onnxruntime":
        raise EngineError(f"unknown engine {name!r}: this version of julia1 has onnxruntime")
    from julia1.runtime.engines.onnxruntime import OnnxRuntimeEngine

    return OnnxRuntimeEngine(graph, threads, settings)
