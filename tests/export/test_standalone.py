"""Exports stand alone, take any shape, agree with PyTorch, and are not there when they do not."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from export_samples import FEATURES, HEADS, disk_of, grown_tokenizer, new_model, write_fixed  # noqa: E402
from onnx import numpy_helper  # noqa: E402

from julia1.bundle import Bundle, EncodingSettings  # noqa: E402
from julia1.bundle.heads import FeatureSpec, HeadSpec  # noqa: E402
from julia1.errors import BundleError, InputError, VerificationError  # noqa: E402
from julia1.export import onnx_file  # noqa: E402
from julia1.export import standalone as module  # noqa: E402
from julia1.export.standalone import FORMATS, export_bundle, to_dict  # noqa: E402
from julia1.model import load_eager  # noqa: E402
from julia1.model.weights import load_fixed  # noqa: E402
from julia1.runtime.fixed import Given  # noqa: E402

PAIR = (HeadSpec("match", "match"), HeadSpec("late", "yesno", ("no", "yes")))


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Bundle:
    """Every kind of head, features, and windows that are weighed."""
    return write_fixed(tmp_path_factory.mktemp("fixed") / request.param, tokenizer_file, request.param)


def batch(rows: int, tokens: int, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, tokens + 1, rows)
    lengths[0] = tokens
    return {
        "input_ids": random.integers(5, 300, (rows, tokens)),
        "attention_mask": (np.arange(tokens) < lengths[:, None]).astype(np.int64),
        "numbers": np.where(random.random((rows, 1)) < 0.3, np.nan, random.normal(40, 12, (rows, 1))).astype(
            np.float32
        ),
        "categories": random.integers(0, 3, (rows, 1)),
    }


def outputs(feeds: dict[str, Any], call: Any) -> dict[str, np.ndarray[Any, Any]]:
    with torch.inference_mode():
        found = call(**{name: torch.from_numpy(value) for name, value in feeds.items()})
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_agrees_with_pytorch(bundle: Bundle, format: str, tmp_path: Path) -> None:
    exported = export_bundle(bundle, tmp_path / "out", format)
    assert exported.parity.largest < 1e-4
    assert exported.parity.options > 1_000  # tags are compared token by token
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(exported.files)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    tokenizer = (tmp_path / "out" / "tokenizer.json").read_bytes()
    assert tokenizer == bundle.path(bundle.manifest.tokenizer).read_bytes()
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert [head["name"] for head in config["heads"]] == [head.name for head in HEADS]
    assert to_dict(exported)["files"].keys() == set(exported.files)


@pytest.mark.parametrize("opset", [18, 21, 23])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_onnx_file_stands_alone_in_any_opset(bundle: Bundle, opset: int, precision: str, tmp_path: Path) -> None:
    export_bundle(bundle, tmp_path / "out", opset=opset, precision=precision)
    alone = tmp_path / "elsewhere.onnx"
    shutil.move(tmp_path / "out" / "model.onnx", alone)
    model = onnx.load_model(alone, load_external_data=False)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
    assert {node.domain for node in model.graph.node} == {""}
    assert all(tensor.data_location != onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer)
    used = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= used
    constants = {tensor.name for tensor in model.graph.initializer}
    assert not [node.name for node in model.graph.node if set(node.input) <= constants], "a constant is not folded"
    matrices = [t for t in model.graph.initializer if t.name.endswith(("query.weight", "qkv.weight.scaled"))]
    assert all(numpy_helper.to_array(matrix).dtype == np.float32 for matrix in matrices)
    onnx.checker.check_model(str(alone), full_check=True)
    assert onnxruntime.InferenceSession(str(alone), providers=["CPUExecutionProvider"]).get_inputs()


@settings(max_examples=15)
@given(rows=st.integers(1, 5), tokens=st.integers(1, 64), seed=st.integers(0, 9))
def test_axes_are_dynamic(dynamic: tuple[Any, Any, Any], rows: int, tokens: int, seed: int) -> None:
    model, session, program = dynamic
    feeds = batch(rows, tokens, seed)
    inside = feeds["attention_mask"] == 1
    expected = outputs(feeds, model)
    names = [*(head.name for head in HEADS), ":window_weight"]
    of_graph = session.run([*(f"head.{i}" for i in range(len(HEADS))), "window_weight"], feeds)
    of_program = outputs(feeds, program)
    for name, found in zip(names, of_graph, strict=True):
        for other in (found, of_program[name]):
            difference = np.abs(other - expected[name])
            assert (difference[inside] if difference.ndim == 3 else difference).max() < 1e-4


@pytest.fixture(scope="module")
def dynamic(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    folder = tmp_path_factory.mktemp("dynamic")
    export_bundle(bundle, folder / "onnx", "onnx")
    export_bundle(bundle, folder / "program", "exported")
    session = onnxruntime.InferenceSession(str(folder / "onnx/model.onnx"), providers=["CPUExecutionProvider"])
    program = torch.export.load(folder / "program/model.pt2").module()
    return load_fixed(bundle.folder / "weights.safetensors"), session, program


def test_the_eager_module_is_the_model_without_pickles(bundle: Bundle, tmp_path: Path) -> None:
    export_bundle(bundle, tmp_path / "out", "eager")
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".safetensors", ".json"}
    feeds = batch(3, 20)
    expected = outputs(feeds, load_fixed(bundle.folder / "weights.safetensors"))
    for name, found in outputs(feeds, load_eager(tmp_path / "out")).items():
        assert np.array_equal(found, expected[name])


@pytest.mark.parametrize("break_it", ["state", "config", "missing"])
def test_an_eager_folder_that_is_damaged_is_one_error(bundle: Bundle, tmp_path: Path, break_it: str) -> None:
    export_bundle(bundle, tmp_path / "out", "eager")
    state, config = tmp_path / "out/model.safetensors", tmp_path / "out/config.json"
    if break_it == "state":
        state.write_bytes(state.read_bytes()[:1000])
    elif break_it == "config":
        config.write_text('{"encoder": {"model_type": "bert"}, "model": null}')
    else:
        state.unlink()
    with pytest.raises(BundleError, match="holds no model that can be loaded"):
        load_eager(tmp_path / "out")


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_for_open_decisions_is_exported(tiny_bundle: Path, format: str, tmp_path: Path) -> None:
    exported = export_bundle(Bundle.open(tiny_bundle), tmp_path / "out", format)
    assert exported.parity.largest < 1e-4 and exported.parity.options > 50


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_of_pairs_is_exported(tokenizer_file: Path, format: str, tmp_path: Path) -> None:
    bundle = write_fixed(
        tmp_path / "pair", tokenizer_file, heads=PAIR, features=None, encoding=EncodingSettings("pair", 40)
    )
    assert export_bundle(bundle, tmp_path / "out", format).parity.largest < 1e-4
    with pytest.raises(InputError, match="give the second one too"):
        export_bundle(bundle, tmp_path / "other", format, given=[Given("one text")])


def test_parity_is_measured_on_the_rows_that_are_given(bundle: Bundle, tmp_path: Path) -> None:
    rows = [Given(text, None, {"age": 30, "plan": "paid"}) for text in ("late order", "music please " * 30)]
    few = export_bundle(bundle, tmp_path / "few", given=rows)
    many = export_bundle(bundle, tmp_path / "many", given=rows * 3)
    assert 0 < few.parity.options < many.parity.options
    with pytest.raises(InputError, match="no feature 'height'"):
        export_bundle(bundle, tmp_path / "bad", given=[Given("x", None, {"height": 1})])
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize("shift", [1e-3, float("nan")])
def test_a_graph_that_departs_leaves_nothing_behind(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: float
) -> None:
    build = module.fixed_graph

    def broken(*arguments: Any) -> Any:
        model = build(*arguments)
        (node,) = [node for node in model.graph.node if list(node.output) == ["head.1"]]
        bias = onnx.helper.make_tensor("wrong", onnx.TensorProto.FLOAT, [], [shift])
        model.graph.initializer.append(bias)
        node.op_type = "Add"
        node.input.append("wrong")
        return model

    monkeypatch.setattr(module, "fixed_graph", broken)
    with pytest.raises(VerificationError, match="departs from PyTorch"):
        export_bundle(bundle, tmp_path / "out")
    assert not list(tmp_path.iterdir())
    if np.isnan(shift):
        with pytest.raises(VerificationError, match="by nan"):
            export_bundle(bundle, tmp_path / "out", precision="int8")
    else:
        assert export_bundle(bundle, tmp_path / "out", precision="int8").parity.largest > 1e-4, "no limit for int8"


def test_more_than_a_message_holds_goes_into_a_file_beside(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "MOST_INSIDE", 1_000)
    exported = export_bundle(bundle, tmp_path / "out")
    assert exported.files[:2] == ("model.onnx", "model.onnx.data")
    assert exported.parity.largest < 1e-4


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"format": "tflite"}, "the format is 'tflite': one of onnx, exported, eager"),
        ({"precision": "int4"}, "the precision is 'int4'"),
        ({"opset": 17}, "the opset is 17: 18 to"),
        ({"opset": 99}, "the opset is 99: 18 to"),
        ({"format": "eager", "opset": 21}, "an opset is for the format onnx"),
        ({"format": "exported", "precision": "int8"}, "int8 is for the format onnx"),
    ],
)
def test_what_cannot_be_written_is_told_first(
    bundle: Bundle, tmp_path: Path, wish: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        export_bundle(bundle, tmp_path / "out", **wish)
    assert not list(tmp_path.iterdir())


def test_a_folder_with_something_in_it_is_kept(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(InputError, match="is there already"):
        export_bundle(bundle, tmp_path / "out")
    (tmp_path / "out" / "mine").unlink()
    assert export_bundle(bundle, tmp_path / "out", "eager").folder == tmp_path / "out"


def test_a_bundle_without_its_weights_is_named(tokenizer_file: Path, tmp_path: Path) -> None:
    bundle = write_fixed(tmp_path / "toy", tokenizer_file, model=new_model("bert", features=FEATURES))
    weights = bundle.folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match="SHA-256"):
        export_bundle(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of a file")
@pytest.mark.parametrize("format", FORMATS)
def test_a_disk_that_is_full_is_one_error_and_leaves_nothing(bundle: Bundle, tmp_path: Path, format: str) -> None:
    with disk_of(16_384), pytest.raises(BundleError, match=f"cannot write {tmp_path}/out/model") as caught:
        export_bundle(bundle, tmp_path / "out", format)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_written_may_be_read_by_others(bundle: Bundle, tmp_path: Path, format: str) -> None:
    exported = export_bundle(bundle, tmp_path / "out", format)
    assert {(exported.folder / name).stat().st_mode & 0o777 for name in exported.files} == {0o644}


def test_weights_with_several_hard_links_are_read(bundle: Bundle, tmp_path: Path) -> None:
    folder = shutil.copytree(bundle.folder, tmp_path / "linked")
    os.link(folder / "weights.safetensors", tmp_path / "second name")
    assert export_bundle(Bundle.open(folder), tmp_path / "out").parity.largest < 1e-4


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"location": "nowhere.bin"}, "cannot read .*nowhere.bin, where the weight"),
        ({"offset": "999999999"}, "has .* bytes, and the weight .* lies at 999,999,999 to"),
        ({"length": "-1"}, "lies at no place in"),
        ({"location": "../weights.safetensors"}, "leaves the bundle"),
    ],
)
def test_weights_that_are_not_where_the_graph_says_are_named(
    bundle: Bundle, tmp_path: Path, place: dict[str, str], words: str
) -> None:
    model = onnx.load_model(bundle.folder / "model-fp32.onnx", load_external_data=False)
    (tensor, *_) = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    for entry in tensor.external_data:
        entry.value = place.get(entry.key, entry.value)
    onnx.save_model(model, tmp_path / "model.onnx")
    shutil.copy(bundle.folder / "weights.safetensors", tmp_path)
    with pytest.raises((InputError, BundleError), match=words):
        onnx_file.read_model(tmp_path / "model.onnx")


def test_weights_beside_a_graph_are_read_as_onnx_reads_them(bundle: Bundle, tmp_path: Path) -> None:
    path = Path(shutil.copytree(bundle.folder, tmp_path / "copy")) / "model-int8.onnx"
    assert onnx_file.read_model(path) == onnx.load_model(path)


@pytest.mark.parametrize("format", FORMATS)
def test_a_tokenizer_larger_than_its_encoder_is_one_error(tokenizer_file: Path, tmp_path: Path, format: str) -> None:
    grown = grown_tokenizer(tokenizer_file, tmp_path / "grown.json", 300)
    bundle = write_fixed(tmp_path / "toy", grown)
    with pytest.raises(BundleError, match=r"ids up to 5\d\d \('grown299'\) and its encoder 448 embeddings"):
        export_bundle(bundle, tmp_path / "out", format)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("table", ["features.tables.0", "features.centre"])
def test_features_are_compared_with_values_too(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """A fault in what only a value of a feature reaches is found on the built-in texts."""
    load = module.load_fixed

    def spoiled(path: Path) -> Any:
        model = load(path)
        with torch.no_grad():
            if table == "features.centre":
                model.features.centre += 1.0
            else:
                model.features.tables[0].weight[1:] += 1.0  # row 0 is an unknown category
        return model

    monkeypatch.setattr(module, "load_fixed", spoiled)
    with pytest.raises(VerificationError, match="departs from PyTorch"):
        export_bundle(bundle, tmp_path / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_fixed", load)
        assert export_bundle(bundle, tmp_path / "out").parity.largest < 1e-4


def test_built_in_inputs_have_every_category_and_both_sides_of_a_mean() -> None:
    spec = FeatureSpec({"age": (40.0, 12.0)}, {"plan": tuple(f"plan{i}" for i in range(40)), "none": ()})
    found = module.built_in_inputs(False, spec)
    valued = [one.features for one in found if one.features]
    assert len(found) <= module.PARITY_ROWS and len(valued) < len(found)
    assert {values["plan"] for values in valued} == set(spec.categories["plan"])
    assert {values["age"] for values in valued} == {28.0, 52.0}
    assert module.built_in_inputs(True, FeatureSpec()) == module.built_in_inputs(True, spec)[:16]
