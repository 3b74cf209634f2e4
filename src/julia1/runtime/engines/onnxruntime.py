"""ONNX Runtime as an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.errors import EngineError
from julia1.runtime.heap import return_large_blocks

_SLOW_FUSIONS = ["SkipLayerNormFusion"]
"""ONNX Runtime 1.32 computes the fused kernel a little more slowly than its parts: 7.58 against 7.39 ms in int8, the
same in fp32, for a request of 35 tokens on one core; ``benchmarks/fusions.py`` prints it."""

_LARGE_TOKENS = 128
"""After a batch of more padded tokens, buffers go back to the system, which costs such a batch a tenth of its time.
Kept, they grow to what the largest batch ever needed: to 571 MB in 300 mixed requests, with batches of 2,048 tokens,
instead of 216."""


def session_options(threads: int, settings: Mapping[str, Any] | None = None) -> Any:
    """``SessionOptions`` as julia1 runs graphs with; ``settings`` are further entries of its configuration."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # it keeps a plan for every shape ever seen, and saves no time
    # idle workers must sleep: a spinning pool takes cores from the service around it
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for key, value in (settings or {}).items():
        options.add_session_config_entry(key, str(value))
    return options


def open_session(graph: Path | str, options: Any) -> Any:
    """An ``InferenceSession`` of a graph; raises ``EngineError`` when it cannot be loaded."""
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(
            str(graph), options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOW_FUSIONS
        )
    except Exception as error:  # the library raises several classes of its own
        raise EngineError(f"ONNX Runtime {onnxruntime.__version__} cannot load {graph}: {error}") from None


class OnnxRuntimeEngine:
    """Runs an ONNX graph on the CPU. ``InferenceSession.run`` may be called from many threads at once."""

    def __init__(self, graph: Path, threads: int, settings: Mapping[str, Any] | None = None) -> None:
        from onnxruntime import RunOptions

        return_large_blocks()
        self._session = open_session(graph, session_options(threads, settings))
        self._shrinking = RunOptions()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._inputs = {tensor.name: tuple(tensor.shape) for tensor in self._session.get_inputs()}

    @property
    def inputs(self) -> Mapping[str, Sequence[int | str]]:
        """Shape of each input by name; a dynamic axis is a name."""
        return self._inputs

    def run(
        self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Sequence[str]
    ) -> list[npt.NDArray[np.float32]]:
        """The named outputs for a batch; raises ``EngineError`` when the engine fails."""
        how = self._shrinking if feeds["input_ids"].size > _LARGE_TOKENS else None
        try:
            return self._session.run(list(outputs), dict(feeds), how)  # type: ignore[no-any-return]
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed on a batch of shape {feeds['input_ids'].shape}: {error}") from None
