"""A weight file as the external data of ONNX graphs: every graph of a bundle points into the same bytes."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from julia1.errors import VerificationError
from julia1.model.weights import INPUT_SCALE_SUFFIX, INPUT_SHIFT_SUFFIX, SCALE_SUFFIX, read_weights

_TYPES = {"F32": TensorProto.FLOAT, "F16": TensorProto.FLOAT16, "I8": TensorProto.INT8, "U8": TensorProto.UINT8}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in a safetensors file."""

    type: int
    shape: tuple[int, ...]
    offset: int
    length: int


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The table of contents of a safetensors file, offsets counted from the start of the file."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    return {
        name: StoredTensor(
            _TYPES[entry["dtype"]],
            tuple(entry["shape"]),
            8 + size + entry["data_offsets"][0],
            entry["data_offsets"][1] - entry["data_offsets"][0],
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }


class SharedWeights:
    """The tensors of a weight file, as values and as external initializers.

    Attributes:
        config: the encoder's Hugging Face config.
        fixed: description of a model with fixed heads, ``None`` for an option model.
        table: where each tensor lies.
    """

    def __init__(self, path: Path) -> None:
        read = read_weights(path)
        self._tensors, self.config, self.fixed = read.tensors, read.encoder_config, read.fixed
        self._location = path.name
        self.table = stored_tensors(path)

    def value(self, name: str) -> npt.NDArray[Any]:
        """A tensor as it is stored."""
        if name not in self._tensors:
            raise VerificationError(f"the weight file has no tensor {name}: it does not fit the graph")
        return self._tensors[name]

    def input_scale(self, layer: str) -> npt.NDArray[np.float32] | None:
        """Input scales of a linear layer ``[inputs]``, ``None`` where it has none."""
        return self._tensors.get(f"{layer}.weight{INPUT_SCALE_SUFFIX}")

    def input_shift(self, layer: str) -> npt.NDArray[np.float32] | None:
        """What is subtracted from the inputs of a linear layer before they are scaled ``[inputs]``, if anything."""
        return self._tensors.get(f"{layer}.weight{INPUT_SHIFT_SUFFIX}")

    def matrix(self, layer: str) -> npt.NDArray[np.float32]:
        """The weight of a linear layer, fp32 ``[inputs, outputs]``."""
        weight = self.value(f"{layer}.weight").astype(np.float32) * self.value(f"{layer}.weight{SCALE_SUFFIX}")
        factor = self.input_scale(layer)
        found: npt.NDArray[np.float32] = weight if factor is None else weight / factor[:, None]
        return found

    def initializer(self, name: str) -> TensorProto:
        """The initializer that refers to a stored tensor."""
        self.value(name)
        stored = self.table[name]
        proto = TensorProto(name=name, data_type=stored.type, dims=stored.shape)
        proto.data_location = TensorProto.EXTERNAL
        for key, text in (("location", self._location), ("offset", str(stored.offset)), ("length", str(stored.length))):
            proto.external_data.add(key=key, value=text)
        return proto
