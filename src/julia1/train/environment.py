"""Where a model is trained: versions, system and CPU, for its card."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from julia1 import __version__
from julia1.runtime.cpu import probe

PACKAGES = ("numpy", "onnx", "onnxruntime", "tokenizers", "torch", "transformers")


def environment() -> dict[str, Any]:
    """``python``, ``packages`` (name to version), ``system``, ``cpu`` and ``cores`` that this process may use."""
    return {
        "python": platform.python_version(),
        "packages": {"julia1": __version__, **{name: metadata.version(name) for name in PACKAGES}},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": probe().name or platform.machine(),
        "cores": probe().cores,
    }
