"""Engines: what they cannot load or run is an EngineError."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from julia1 import Decider, EngineError, YesNo
from julia1.runtime.engines import Engine, open_engine


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no engine 'tensorrt'; julia1 knows: onnxruntime, openvino, pytorch"):
        open_engine("tensorrt", tmp_path / "model.onnx", 1)


@pytest.mark.parametrize("content", [None, b"", b"not a graph"])
def test_a_graph_that_cannot_be_loaded_is_named(tmp_path: Path, content: bytes | None) -> None:
    graph = tmp_path / "model.onnx"
    if content is not None:
        graph.write_bytes(content)
    with pytest.raises(EngineError, match=r"cannot load .*model\.onnx"):
        open_engine("onnxruntime", graph, 1)


def test_a_graph_without_its_weights_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    graph = tmp_path / "model-fp32.onnx"
    graph.write_bytes((tiny_bundle / "model-fp32.onnx").read_bytes())
    with pytest.raises(EngineError, match="cannot load"):
        open_engine("onnxruntime", graph, 1)


def test_a_failing_run_is_an_engine_error_with_the_shape(tiny_bundle: Path, decider_fp32: Decider) -> None:
    engine = open_engine("onnxruntime", tiny_bundle / "model-fp32.onnx", 1)

    class Spoiling:
        inputs = engine.inputs

        def run(self, feeds: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
            return engine.run({**feeds, "input_ids": feeds["input_ids"] + 100_000}, outputs)

    with pytest.raises(EngineError, match=r"failed on a batch of shape \(2, \d+\)"):
        with_engine(decider_fp32, Spoiling()).decide("a state", {"q": YesNo("Late?")})
    with_engine(decider_fp32, engine).decide("a state", {"q": YesNo("Late?")})  # and still answers after it


def test_an_engine_error_reaches_the_caller_as_it_is(tiny_bundle: Path, decider_fp32: Decider) -> None:
    class Broken:
        inputs = open_engine("onnxruntime", tiny_bundle / "model-fp32.onnx", 1).inputs

        def run(self, feeds: object, outputs: object) -> list[np.ndarray]:
            raise EngineError("out of memory")

    with pytest.raises(EngineError, match="out of memory"):
        with_engine(decider_fp32, Broken()).decide("a state", {"q": YesNo("Late?")})


def test_a_score_that_is_no_number_is_an_error_and_no_answer(tiny_bundle: Path, decider_fp32: Decider) -> None:
    engine = open_engine("onnxruntime", tiny_bundle / "model-fp32.onnx", 1)

    class Spoiled:
        inputs = engine.inputs

        def run(self, feeds: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
            found = engine.run(feeds, outputs)
            return [x * np.float32("nan") if name == "logits" else x for name, x in zip(outputs, found, strict=True)]

    with pytest.raises(EngineError, match="the variant 'fp32' gave a score that is no number"):
        with_engine(decider_fp32, Spoiled()).decide("a state", {"q": YesNo("Late?")})


def with_engine(decider: Decider, engine: Engine) -> Decider:
    return Decider(decider.manifest, decider._encoding.tokenizer, engine, decider.plan)


def test_settings_reach_the_session(tiny_bundle: Path) -> None:
    graph = tiny_bundle / "model-fp32.onnx"
    assert open_engine("onnxruntime", graph, 2, {"session.intra_op.allow_spinning": "1"}) is not None
