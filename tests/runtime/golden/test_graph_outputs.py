"""Graphs that give what they compute on the way, and golden files of models with fixed heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from export_samples import CONFIGS, FEATURES, WIDTH, write_fixed

from julia1 import EngineError
from julia1.bundle import Bundle, EncodingSettings
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.runtime.engines import ENGINES
from julia1.runtime.engines import onnxruntime as engine_module
from julia1.runtime.golden import check_golden, make_golden, read_golden, write_golden
from julia1.runtime.golden.graph_outputs import open_looked_into, tensors_of
from julia1.runtime.golden.making import plan_of

EVERY_KIND = (
    HeadSpec("topic", "choice", ("food", "music", "sport")),
    HeadSpec("about", "labels", ("a", "b"), thresholds=(0.3, 0.6)),
    HeadSpec("late", "yesno", ("no", "yes"), abstain_below=0.4),
    HeadSpec("mood", "score", ("low", "mid", "high")),
    HeadSpec("price", "value", centre=10.0, spread=3.0, deviation=1.0),
    HeadSpec("where", "tags", ("place",)),
    HeadSpec("alike", "match", size=WIDTH),
    HeadSpec("best", "rank", size=WIDTH),
)


@pytest.fixture(scope="module", params=CONFIGS)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Bundle:
    return write_fixed(tmp_path_factory.mktemp(request.param) / "toy", tokenizer_file, request.param, EVERY_KIND)


def test_tensors_are_the_normalizations_in_order_and_what_heads_read(bundle: Bundle) -> None:
    graph = bundle.path(bundle.variant("fp32").files[0])
    names = tensors_of(graph.read_bytes(), "graph")
    assert names[0].startswith("encoder.embeddings") and names[-1] == "pooled"
    layers = [name for name in names if ".layer" in name]
    assert layers == sorted(layers, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()])
    with open_looked_into(bundle, plan_of(bundle, "fp32", None, 1)) as (engine, found):
        ids = np.array([[0, 5, 2]], np.int64)
        feeds: dict[str, Any] = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feeds |= {"numbers": np.zeros((1, 1), np.float32), "categories": np.zeros((1, 1), np.int64)}
        values = engine.run(feeds, found)
    assert found == names and all(np.isfinite(value).all() for value in values)
    assert values[0].size == values[1].size == 3 * WIDTH and len(values[-1]) == 1


def test_a_model_with_fixed_heads_computes_the_same(bundle: Bundle, tmp_path: Path) -> None:
    write_golden(make_golden(bundle, threads=1), tmp_path / "golden.json.gz")
    golden = read_golden(tmp_path / "golden.json.gz")
    assert set(golden.variants) == {"fp32", "int8"}
    found = check_golden(golden, bundle, threads=1)
    assert found.ok and [one.status for one in found.variants] == ["same", "same"]
    made = golden.variants["fp32"].made
    assert {name for one in made for name in one.said} == {head.name for head in EVERY_KIND}
    assert any(len(one.ids) > 1 or len(each.passes) > 2 for each in made for one in each.passes)  # windows
    assert made[0].passes[0].tensors


def test_the_first_tensor_of_a_fixed_model_is_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = make_golden(bundle, "fp32", threads=1)
    names = list(golden.variants["fp32"].made[0].passes[0].tensors)
    departed = names[len(names) // 2 :]
    run = engine_module.OnnxRuntimeEngine.run

    def spoiled(self: Any, feeds: Any, outputs: Any) -> list[np.ndarray]:
        found = run(self, feeds, outputs)
        return [x * 1.1 if n in departed or n.startswith("head.") else x for n, x in zip(outputs, found, strict=True)]

    monkeypatch.setattr(engine_module.OnnxRuntimeEngine, "run", spoiled)
    (variant,) = check_golden(golden, bundle, threads=1).variants
    assert (variant.status, variant.first) == ("departs", departed[0])


def test_what_is_no_number_on_the_way_makes_no_file(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = make_golden(bundle, "fp32", threads=1)
    run = engine_module.OnnxRuntimeEngine.run

    def spoiled(self: Any, feeds: Any, outputs: Any) -> list[np.ndarray]:
        return [
            x * np.nan if name == "pooled" else x for name, x in zip(outputs, run(self, feeds, outputs), strict=True)
        ]

    monkeypatch.setattr(engine_module.OnnxRuntimeEngine, "run", spoiled)
    with pytest.raises(EngineError, match="no number in 'pooled' for the request 'English'"):
        make_golden(bundle, "fp32", threads=1)
    assert check_golden(golden, bundle, threads=1).ok  # what answers are made of is right


@pytest.mark.parametrize("engine", ["openvino", "pytorch"])
def test_another_engine_computes_the_same(bundle: Bundle, tiny_bundle: Path, engine: str) -> None:
    pytest.importorskip(ENGINES[engine])
    for one in (bundle, Bundle.open(tiny_bundle)):
        golden = make_golden(one, "fp32", threads=1)
        (variant,) = check_golden(golden, one, threads=1, engine=engine).variants
        assert variant.status == "same" and variant.engine.startswith(f"{engine} "), variant.message


def test_pairs_are_read_together(tokenizer_file: Path, tmp_path: Path) -> None:
    heads = (HeadSpec("same", "match"), HeadSpec("kind", "choice", ("a", "b")))
    encoding = EncodingSettings("pair", 40)
    bundle = write_fixed(tmp_path / "pairs", tokenizer_file, heads=heads, features=None, encoding=encoding)
    golden = make_golden(bundle, "fp32", threads=1)
    assert all(request.second is not None for request in golden.requests)
    assert check_golden(golden, bundle, threads=1).ok


def test_a_bundle_that_cannot_be_written_to_is_left_alone(bundle: Bundle) -> None:
    before = {path: path.stat().st_mtime_ns for path in bundle.folder.rglob("*")}
    make_golden(bundle, "fp32", threads=1)
    assert {path: path.stat().st_mtime_ns for path in bundle.folder.rglob("*")} == before
    assert isinstance(FEATURES, FeatureSpec) and bundle.manifest.features


@pytest.mark.parametrize(
    "content", [b"\x3a\xff\x01", b"\x3a", b"\x0b", b"\x08", b"\xff" * 20, b"\x3a\x04\x0a\x02\x12\x05"]
)
def test_what_is_no_graph_is_an_engine_error(content: bytes) -> None:
    with pytest.raises(EngineError, match="here is not an ONNX graph"):
        tensors_of(content, "here")
