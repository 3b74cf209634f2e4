"""Writes a small bundle, as training and export would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from julia1.bundle import Bundle, BundleWriter, Calibration, EncodingSettings, Manifest, Variant

LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12\n"


def write_small(target: Path, version: str = "2026.11.30", replace: bool = False) -> Bundle:
    with BundleWriter(target, replace=replace) as writer:
        return writer.finish(small_manifest(writer, version))


def small_manifest(writer: BundleWriter, version: str = "2026.11.30") -> Manifest:
    """Add the files of a small bundle and describe them; the card is left to the writer."""
    weights = writer.add_text("w" * 4096, "weights.bin")
    return Manifest(
        name="julia1-small",
        version=version,
        kind="open",
        encoding=EncodingSettings("options", 384, 64, 64, 768),
        tokenizer=writer.add_text('{"model": {}}', "tokenizer.json"),
        calibration={"choice": Calibration(1.3, 0.1), "yesno": Calibration(0.9)},
        variants=(
            Variant("fp32", "onnxruntime", "fp32", (writer.add_text("graph", "model.onnx"), weights)),
            Variant(
                "int8",
                "onnxruntime",
                "int8",
                (writer.add_text("small graph", "model-int8.onnx"), weights),
                requires={"x86_64": ("sse4_2",), "aarch64": ()},
                measured={"p50_ms": 3.25},
            ),
        ),
        checkpoint=(writer.add_text("tensors", "checkpoint/model.safetensors"),),
        provenance={"license": "Apache-2.0", "seed": 1},
    )


FACTS: dict[str, Any] = {
    "base_model": "tiny 1",
    "parent": "tiny@1",
    "rows": {"train": 8, "test": 1},
    "data_sha256": {"train": "a" * 64, "test": "b" * 64, "all": "c" * 64},
    "seed": 1,
    "hyper_parameters": {"epochs": 3, "learning_rate": 1.2345678e-5, "seed": 1},
    "score": 0.75,
    "metrics": {"validation": {"team": {"accuracy": 0.75}}, "test": {"team": {"accuracy": 0.5}}},
    "run": {
        "finished": "2026-11-30T10:00:00+00:00",
        "seconds": 12.5,
        "environment": {"python": "3.12", "packages": {"torch": "2.9"}, "cpu": "Abacus"},
    },
}
"""What the registry knows of a run."""
