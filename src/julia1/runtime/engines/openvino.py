"""OpenVINO as an engine, for Intel and AMD CPUs: it reads the same ONNX file and weights as ONNX Runtime.

What it does by itself and must be told not to do (all three seen in 2026.4):

    bf16                 on a CPU that has it, unless the precision is named
    8-bit activations    groups of 32 are rounded before they meet weights that are stored in 8 bits, also when the
                         precision is f32, unless the group size is 0
    a shift of uint8     becomes a division that rounds to the nearest number, where ONNX cuts: ``_mend`` puts it right

A graph that rounds activations row by row, as the int8 variants of julia1 do, comes out empty there. It is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.errors import EngineError, MissingExtraError
from julia1.runtime.cpu import probe
from julia1.runtime.engines._compiled import compiled_file, keep_compiled, read_compiled
from julia1.runtime.engines._settings import checked_settings

PRECISIONS = ("f32", "bf16")
_MEND = "mend 1"
"""Goes into the key of a compiled graph; another number for another ``_mend``."""


class OpenVinoEngine:
    """Runs an ONNX graph on the CPU. Safe to share between threads: each call has a request of its own while it runs.

    Args:
        graph: an ONNX file, its external data beside it.
        threads: of the engine; they are not pinned to cores.
        settings: ``precision``, ``"f32"`` or ``"bf16"``; f32 without it.

    Raises:
        MissingExtraError: OpenVINO is not installed.
        EngineError: the graph cannot be read, is one that OpenVINO would compute wrongly, or the CPU has no bf16.
        InputError: an unknown setting.
    """

    def __init__(self, graph: Path, threads: int, settings: Mapping[str, Any] | None = None) -> None:
        self.precision = checked_settings("openvino", settings, {"precision": PRECISIONS}).get("precision", "f32")
        openvino = _library()
        version = openvino.get_version()
        core = openvino.Core()
        if self.precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise EngineError(f"this CPU ({core.get_property('CPU', 'FULL_DEVICE_NAME')}) has no bf16: take f32")
        properties = {
            "INFERENCE_PRECISION_HINT": self.precision,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": threads,
            # pinned threads of two processes meet on the same cores, and a container's cores are not numbered from 0
            "ENABLE_CPU_PINNING": False,
        }
        try:
            self._compiled = _compiled(openvino, core, graph, properties)
        except EngineError:
            raise
        except Exception as error:  # the library raises RuntimeError and classes of its own
            raise EngineError(f"OpenVINO {version} cannot load {graph}: {_gist(error)}") from None
        found = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if found != self.precision:
            raise EngineError(f"OpenVINO {version} computes in {found} where {self.precision} was asked for")
        self._idle: LifoQueue[Any] = LifoQueue()
        self._inputs = {port.get_any_name(): _axes(port) for port in self._compiled.inputs}

    @property
    def inputs(self) -> Mapping[str, Sequence[int | str]]:
        """Shape of each input by name; a dynamic axis is a name."""
        return self._inputs

    def run(
        self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Sequence[str]
    ) -> list[npt.NDArray[np.float32]]:
        """The named outputs for a batch; raises ``EngineError`` when the engine fails."""
        try:
            request = self._idle.get_nowait()
        except Empty:
            request = self._compiled.create_infer_request()
        try:
            request.infer(dict(feeds), share_inputs=True, share_outputs=True)
            # a copy: the next call of the request writes into the same memory
            found = [request.get_tensor(name).data.copy() for name in outputs]
        except Exception as error:  # the request is dropped with it
            raise EngineError(
                f"OpenVINO failed on a batch of shape {feeds['input_ids'].shape}: {_gist(error)}"
            ) from None
        self._idle.put(request)
        return found


def _compiled(openvino: Any, core: Any, graph: Path, properties: Mapping[str, Any]) -> Any:
    """The compiled graph, from the cache where it is there."""
    model = core.read_model(graph)
    _refuse_row_steps(model, graph)
    _mend(openvino, model)
    machine = [openvino.get_version(), core.get_property("CPU", "FULL_DEVICE_NAME"), *sorted(probe().features)]
    about = [*machine, properties["INFERENCE_PRECISION_HINT"], _MEND]
    place = compiled_file("openvino", about, _contents(model, graph))
    blob = read_compiled(place)
    if blob is not None:
        try:
            return core.import_model(openvino.Tensor(blob), "CPU", properties)
        except Exception:  # of a build that calls itself the same; made anew below, and written over
            pass
    compiled = core.compile_model(model, "CPU", properties)
    keep_compiled(place, compiled.export_model().read())
    return compiled


def _contents(model: Any, graph: Path) -> Iterator[bytes | memoryview]:
    """All that makes a graph: its nodes, and its constants, those of external files too."""
    yield graph.read_bytes()
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Constant":
            yield np.ascontiguousarray(node.data).data


def _refuse_row_steps(model: Any, graph: Path) -> None:
    """Raise ``EngineError`` for a graph that rounds activations by steps that it computes while it runs."""
    computed: set[str] = set()
    for node in model.get_ordered_ops():
        inputs = [value.get_node() for value in node.input_values()]
        if node.get_type_name() == "FakeQuantize" and any(low.get_name() in computed for low in inputs[1:]):
            raise EngineError(
                f"{graph} rounds activations row by row, which OpenVINO does not compute rightly: take the variant "
                "fp32, or the engine onnxruntime"
            )
        if node.get_type_name() == "Parameter" or any(value.get_name() in computed for value in inputs):
            computed.add(node.get_name())


def _mend(openvino: Any, model: Any) -> None:
    """Have every division of uint8, which is how a shift is read, cut as ONNX says, and not round."""
    opset = openvino.opset13
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Divide" and node.get_output_element_type(0) == openvino.Type.u8:
            exact = opset.divide(*(opset.convert(value, "f32") for value in node.input_values()))
            cut = opset.convert(opset.floor(exact), "u8")
            for target in node.output(0).get_target_inputs():
                target.replace_source_output(cut.output(0))
    model.validate_nodes_and_infer_types()


def _axes(port: Any) -> tuple[int | str, ...]:
    shape = port.get_partial_shape()
    return tuple(axis.get_length() if axis.is_static else f"axis {number}" for number, axis in enumerate(shape))


def _gist(error: Exception) -> str:
    """What an error says, without the places in the library's source that it passed through."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Exception from ")]
    return " ".join(said)[:500] or type(error).__name__


def _library() -> Any:
    """The package, imported without what it would report to its maker."""
    try:
        with _nothing_reported():
            import openvino
    except ImportError:
        raise MissingExtraError("openvino", "openvino") from None
    return openvino


@contextmanager
def _nothing_reported() -> Iterator[None]:
    """OpenVINO's import sends an event over the network where it can import ``openvino_telemetry``. Here it cannot."""
    name = "openvino_telemetry"
    if name in sys.modules or "openvino" in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
