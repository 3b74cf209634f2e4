"""Files for those who do not want to write one: by what the model is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

GOALS = {
    "server": "int8 products, for CPUs with an 8-bit dot product (AVX-512 VNNI, AVX-VNNI, AMX, ARM dotprod)",
    "edge": "the same with weights of 7 bits, which older CPUs add up without overflow",
    "size": "4-bit weights where they do, else 8-bit ones; products in fp32",
}
_STEPS: dict[str, dict[str, Any]] = {
    "server": {"scheme": "dynamic"},
    "edge": {"scheme": "dynamic", "reduce_range": True},
    "size": {"scheme": "weight_only", "weight_bit": 4, "activation_bit": 32},
}


def preset(goal: str, model: Path, data: Path, output: Path) -> dict[str, Any]:
    """What a file for the goal says, paths absolute.

    Args:
        goal: one of ``GOALS``.
        model: the ONNX file.
        data: labelled rows.
        output: the new folder.
    """
    return {
        "version": 1,
        "model": {"input_path": str(model.absolute()), "output_path": str(output.absolute())},
        "evaluation": {"data": str(data.absolute())},
        "optimization": {"steps": [{"type": "quantize", **_STEPS[goal]}]},
        "rollback_threshold": {"macro_f1_drop": 0.01, "recall_drop": 0.1},
    }
