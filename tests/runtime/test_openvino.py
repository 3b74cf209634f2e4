"""OpenVINO alone: what it must be told not to do, and the cache of compiled graphs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino", reason="bring it with the extra openvino")

from julia1 import Choice, Decider, EngineError, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.runtime.engines import _compiled, open_engine  # noqa: E402
from julia1.runtime.engines.openvino import OpenVinoEngine  # noqa: E402

SOURCE = Path(__file__).resolve().parents[2] / "src"
QUESTION: dict[str, Any] = {"q": Choice("Which?", ["food", "music", "hotel booking"])}
HAS_BF16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where compiled graphs go."""
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


def logits(graph: Path, texts: list[str], like: Decider, **settings: str) -> np.ndarray:
    """Of texts, read by the engine with these settings."""
    engine = open_engine("openvino", graph, 1, settings)
    decider = Decider(like.manifest, like._encoding.tokenizer, engine, like.plan)
    return np.concatenate([values for (values,) in decider.logits([(text, QUESTION) for text in texts])])


@pytest.fixture
def graph(tiny_bundle: Path) -> Path:
    return tiny_bundle / "model-fp32.onnx"


# what it must be told not to do


def test_nothing_is_reported_to_its_maker(graph: Path, tmp_path: Path) -> None:
    """Importing OpenVINO sends an event where openvino_telemetry is there; it is, as a dependency of OpenVINO."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from julia1.runtime.engines import open_engine\n"
        f"open_engine('openvino', Path({str(graph)!r}), 1)\n"
        "print('openvino' in sys.modules, 'openvino_telemetry' in sys.modules)\n"
        "import openvino_telemetry\n"
        "print('and still there for others')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "JULIA1_CACHE": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[:2] == ["True False", "and still there for others"], done.stderr
    assert not (tmp_path / "intel").exists()


def test_f32_is_f32_on_a_cpu_with_bf16_and_activations_are_not_rounded(
    graph: Path, decider_fp32: Decider, texts: list[str]
) -> None:
    engine = OpenVinoEngine(graph, 1)
    assert engine.precision == "f32"
    for name, value in {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}.items():
        found = engine._compiled.get_property(name)
        assert (found.get_type_name() if name.endswith("HINT") else str(found)) == value
    expected = np.concatenate([v for (v,) in decider_fp32.logits([(text, QUESTION) for text in texts])])
    assert np.abs(logits(graph, texts, decider_fp32) - expected).max() < 2e-5


@pytest.mark.skipif(not HAS_BF16, reason="this CPU has no bf16")
def test_bf16_is_taken_when_it_is_asked_for(graph: Path, decider_fp32: Decider, texts: list[str]) -> None:
    exact, half = (logits(graph, texts[:20], decider_fp32, precision=name) for name in ("f32", "bf16"))
    assert 1e-5 < np.abs(exact - half).max() < 0.5


def test_bf16_is_refused_by_a_cpu_that_has_none(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OldCore:
        def get_property(self, device: str, name: str) -> Any:
            return ["FP32", "INT8"] if name == "OPTIMIZATION_CAPABILITIES" else "Old CPU"

    monkeypatch.setattr(openvino, "Core", OldCore)
    with pytest.raises(EngineError, match=r"this CPU \(Old CPU\) has no bf16: take f32"):
        OpenVinoEngine(graph, 1, {"precision": "bf16"})


def test_a_library_that_takes_another_precision_is_refused(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        def get_property(self, name: str) -> Any:
            return openvino.Type.bf16

    monkeypatch.setattr("julia1.runtime.engines.openvino._compiled", lambda *given: Deaf())
    with pytest.raises(EngineError, match="computes in bf16 where f32 was asked for"):
        OpenVinoEngine(graph, 1)


def test_a_graph_that_rounds_row_by_row_is_refused(tiny_bundle: Path) -> None:
    with pytest.raises(EngineError, match=r"model-int8\.onnx rounds activations row by row.*take the variant fp32"):
        OpenVinoEngine(tiny_bundle / "model-int8.onnx", 1)


def test_a_graph_that_rounds_by_fixed_steps_is_read(tmp_path: Path) -> None:
    """As static quantization writes them: OpenVINO computes those rightly."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.arange(-6, 6, dtype=np.int8).reshape(4, 3), "weights")
    scales = [numpy_helper.from_array(np.float32(value), name) for name, value in (("step", 0.05), ("scale", 0.1))]
    zero = numpy_helper.from_array(np.uint8(128), "zero")
    nodes = [
        helper.make_node("QuantizeLinear", ["input_ids", "step", "zero"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "step", "zero"], ["rounded"]),
        helper.make_node("DequantizeLinear", ["weights", "scale"], ["matrix"]),
        helper.make_node("MatMul", ["rounded", "matrix"], ["found"]),
    ]
    value = helper.make_tensor_value_info("input_ids", TensorProto.FLOAT, ["rows", 4])
    found = helper.make_tensor_value_info("found", TensorProto.FLOAT, ["rows", 3])
    made = helper.make_graph(nodes, "static", [value], [found], [weights, *scales, zero])
    path = tmp_path / "static.onnx"
    onnx.save_model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    feeds = {"input_ids": np.random.default_rng(1).uniform(-5, 5, (6, 4)).astype(np.float32)}
    first, second = (open_engine(name, path, 1).run(feeds, ["found"])[0] for name in ("onnxruntime", "openvino"))
    assert np.abs(first - second).max() < 1e-4


def test_many_shapes_take_little_memory(tiny_bundle: Path) -> None:
    """Rows are padded to eights: OpenVINO keeps something for each new shape. The engine sees few of them."""
    decider = load(tiny_bundle, engine="openvino", threads=1, warm_up=False)
    seen = set()
    plain = decider._scorer._engine.run

    def run(feeds: Any, outputs: Any) -> Any:
        seen.add(feeds["input_ids"].shape[1])
        return plain(feeds, outputs)

    decider._scorer._engine.run = run  # type: ignore[method-assign]
    for words in range(1, 40):
        decider.decide("late " * words, QUESTION)
    assert all(length % 8 == 0 for length in seen)
    assert len(seen) < 9


# the cache of compiled graphs


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("*")) if cache.is_dir() else []


def test_a_compiled_graph_is_read_back_and_answers_the_same(
    graph: Path, cache: Path, decider_fp32: Decider, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = logits(graph, texts[:12], decider_fp32)
    (file,) = kept(cache)
    monkeypatch.setattr("julia1.runtime.engines.openvino.keep_compiled", lambda *given: pytest.fail("compiled again"))
    assert np.array_equal(first, logits(graph, texts[:12], decider_fp32))
    again = OpenVinoEngine(graph, 2)
    assert again._compiled.get_property("INFERENCE_NUM_THREADS") == 2, "not that of the engine that was kept"
    assert kept(cache) == [file]


@pytest.mark.parametrize("spoil", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:-9] + b"x" * 9])
def test_a_kept_graph_that_is_cut_or_changed_is_made_anew(
    graph: Path, cache: Path, decider_fp32: Decider, texts: list[str], spoil: Any
) -> None:
    first = logits(graph, texts[:3], decider_fp32)
    (file,) = kept(cache)
    whole = file.read_bytes()
    file.write_bytes(spoil(whole))
    assert np.array_equal(first, logits(graph, texts[:3], decider_fp32))
    assert file.stat().st_size > 0.9 * len(whole), "the same graph gives a few bytes more or less"


def test_a_kept_graph_that_the_library_cannot_read_is_made_anew(graph: Path, cache: Path) -> None:
    OpenVinoEngine(graph, 1)
    (file,) = kept(cache)
    _compiled.keep_compiled(file, b"of another build")
    assert OpenVinoEngine(graph, 1).inputs
    assert file.stat().st_size > 10_000


def test_other_weights_versions_cpus_and_precisions_have_files_of_their_own(
    tiny_bundle: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from julia1.runtime.cpu import Cpu

    OpenVinoEngine(tiny_bundle / "model-fp32.onnx", 1)
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))
    OpenVinoEngine(copy / "model-fp32.onnx", 1)
    assert len(kept(cache)) == 1, "the same graph and weights, in another folder"
    weights = bytearray((copy / "weights.safetensors").read_bytes())
    weights[-5] ^= 1
    (copy / "weights.safetensors").write_bytes(weights)
    OpenVinoEngine(copy / "model-fp32.onnx", 1)
    assert len(kept(cache)) == 2
    with monkeypatch.context() as patch:
        patch.setattr(openvino, "get_version", lambda: "another")
        OpenVinoEngine(tiny_bundle / "model-fp32.onnx", 1)
    assert len(kept(cache)) == 3
    with monkeypatch.context() as patch:
        patch.setattr("julia1.runtime.engines.openvino.probe", lambda: Cpu("x86_64", frozenset({"avx2"}), 1))
        OpenVinoEngine(tiny_bundle / "model-fp32.onnx", 1)
    assert len(kept(cache)) == 4
    if HAS_BF16:
        monkeypatch.setattr(_compiled, "KEPT", 9)
        OpenVinoEngine(tiny_bundle / "model-fp32.onnx", 1, {"precision": "bf16"})
        assert len(kept(cache)) == 5


def test_no_more_than_a_few_are_kept_and_the_last_used_stay(cache: Path) -> None:
    files = [_compiled.compiled_file("openvino", [str(i)], [b"graph"]) for i in range(_compiled.KEPT + 2)]
    for age, file in enumerate(files[: _compiled.KEPT]):
        assert file is not None
        _compiled.keep_compiled(file, b"compiled")
        os.utime(file, (age, age))
    assert _compiled.read_compiled(files[0]) is not None
    for file in files[_compiled.KEPT :]:
        _compiled.keep_compiled(file, b"compiled")
    assert len(kept(cache)) == _compiled.KEPT
    assert {file for file in files if file is not None and file.exists()} == {files[0], *files[3:]}


def test_nothing_is_written_beside_the_bundle_and_no_cache_is_no_error(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in tiny_bundle.iterdir())
    (tmp_path / "file").write_text("in the way of a folder")
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "file"))
    assert load(tiny_bundle, engine="openvino", threads=1).decide("late order", QUESTION)
    assert sorted(path.name for path in tiny_bundle.iterdir()) == before
    for file in Bundle.open(tiny_bundle).verify():
        assert file.status == "ok"


def test_without_a_home_there_is_no_cache_and_no_error(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from julia1 import InputError, settings

    def none() -> Path:
        raise InputError("there is no home folder")

    monkeypatch.setattr(settings, "cache_folder", none)
    assert OpenVinoEngine(graph, 1).inputs
