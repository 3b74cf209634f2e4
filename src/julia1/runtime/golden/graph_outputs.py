"""An ONNX graph opened so that it also gives what it computes on the way, with nothing but an engine installed.

A graph is a Protocol Buffers message, and a decoder joins a message that comes twice: bytes put after the file that say
``graph { output { name } }`` add outputs to it (protobuf.dev, "Encoding", last one wins; numbers of fields from
onnx/onnx.proto).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from julia1.bundle import Bundle
from julia1.errors import EngineError
from julia1.runtime.engines import Engine, open_engine
from julia1.runtime.plan import Plan

READ_GRAPHS = ("onnxruntime", "openvino")
"""Engines that read ONNX graphs."""

_GRAPH, _NODE, _OUTPUT, _NODE_OUTPUT, _OP_TYPE = 7, 1, 12, 2, 4
_LENGTH_DELIMITED = 2
_SKIPPED = {1: 8, 5: 4}
"""Bytes of a value by wire type."""
_NORMALIZATION = b"LayerNormalization"
_NAMED = ("pooled",)


@contextlib.contextmanager
def open_looked_into(bundle: Bundle, plan: Plan) -> Iterator[tuple[Engine, list[str]]]:
    """An engine on a copy of a variant whose graph also gives ``tensors_of`` it, and their names.

    A bundle may lie where nobody may write, so the copy is made in a temporary folder and goes at the end.

    Raises:
        EngineError: the graph cannot be read or loaded.
    """
    files = plan.variant.files
    graph = bundle.path(files[0])
    names = tensors_of(graph.read_bytes(), str(graph))
    with tempfile.TemporaryDirectory(prefix="julia1-golden-", ignore_cleanup_errors=True) as folder:
        for entry in files:
            place = Path(folder) / entry.path
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.path(entry), place)
        copy = Path(folder) / files[0].path
        with copy.open("ab") as file:
            file.write(added_outputs(names))
        yield open_engine(plan.engine, copy, plan.threads), names


def tensors_of(model: bytes, where: str) -> list[str]:
    """Names of the tensors worth looking at, in the order they are computed in: normalizations and what heads read.

    Every layer of an encoder ends or begins with a normalization, whatever its kind.

    Raises:
        EngineError: ``model`` is no ONNX graph; the message begins with ``where``.
    """
    found = []
    try:
        for graph in _fields(memoryview(model), _GRAPH):
            for node in _fields(graph, _NODE):
                outputs = [bytes(name).decode() for name in _fields(node, _NODE_OUTPUT)]
                normalizes = any(bytes(name) == _NORMALIZATION for name in _fields(node, _OP_TYPE))
                found += outputs[:1] if normalizes else [name for name in outputs if name in _NAMED]
    except (IndexError, KeyError, UnicodeDecodeError):
        raise EngineError(f"{where} is not an ONNX graph") from None
    return found


def added_outputs(names: Sequence[str]) -> bytes:
    """Bytes to put after a model's own, to have it give these fp32 tensors too."""
    fp32 = b"\x12\x04\x0a\x02\x08\x01"  # type { tensor_type { elem_type: 1 } }
    values = b"".join(_message(_OUTPUT, _message(1, name.encode()) + fp32) for name in names)
    return _message(_GRAPH, values)


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The length-delimited values of one field; ``IndexError`` or ``KeyError`` where the message is broken."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(message, at)
            continue
        if kind != _LENGTH_DELIMITED:
            at += _SKIPPED[kind]
            continue
        length, at = _varint(message, at)
        if at + length > len(message):
            raise IndexError
        if key >> 3 == wanted:
            yield message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _message(field: int, content: bytes) -> bytes:
    """A length-delimited field."""
    length, head = len(content), bytearray([field << 3 | _LENGTH_DELIMITED])
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes(head) + bytes([length]) + content
