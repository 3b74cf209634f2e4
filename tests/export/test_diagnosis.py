"""A fault planted in any stage is found and named, in every form of a model; where there is none, none is found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import onnx  # noqa: E402
from export_samples import CONFIGS, grown_tokenizer, new_model, write_fixed  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from julia1.bundle import Bundle  # noqa: E402
from julia1.errors import InputError  # noqa: E402
from julia1.export.diagnosis import STAGES, Diagnosis, diagnose, table  # noqa: E402
from julia1.export.probes import layer_tensors  # noqa: E402
from julia1.export.sides import open_side  # noqa: E402
from julia1.export.standalone import export_bundle  # noqa: E402
from julia1.model import new_encoder  # noqa: E402
from julia1.settings import bundled_models  # noqa: E402

TEXTS = ["i was charged twice for this order", "ok", "please refund my money today", "late " * 12]
LAST = {"bert": "layer.1", "modernbert": "layer.3"}


def compare(a: object, b: object, texts: list[str] = TEXTS, tolerance: float | None = None) -> Diagnosis:
    return diagnose(open_side(str(a), 1), open_side(str(b), 1), texts, tolerance)


def departing(found: Diagnosis) -> dict[str, str]:
    assert [stage.name for stage in found.stages] == list(STAGES)
    return {stage.name: stage.message for stage in found.stages if stage.departs}


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(kind: str, tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Bundle:
    return write_fixed(tmp_path_factory.mktemp("diagnosis") / kind, tokenizer_file, kind)


@pytest.fixture(scope="module")
def exports(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exports")
    for format in ("onnx", "exported", "eager"):
        export_bundle(bundle, folder / format, format)
    export_bundle(bundle, folder / "old", opset=18)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def copied(exports: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(format: str) -> Path:
        return Path(shutil.copytree(exports[format], tmp_path / format))

    return copy


@pytest.mark.parametrize(
    "other", ["onnx", "onnx/model.onnx", "old", "exported", "exported/model.pt2", "eager", "#fp32"]
)
def test_every_form_of_a_model_agrees_layer_by_layer(
    bundle: Bundle, kind: str, exports: dict[str, Path], other: str
) -> None:
    place = f"{bundle.folder}#fp32" if other == "#fp32" else next(iter(exports.values())).parent / other
    found = compare(f"{bundle.folder}#torch", place)
    assert not departing(found) and not found.departs and found.first == ""
    names = [layer.name for layer in found.layers]
    heads = ["pooled", "head.topic", "head.late", "head.where", "head.alike", "window_weight"]
    layers = [f"layer.{i}" for i in range(CONFIGS[kind]["num_hidden_layers"])]
    norm = ["final_norm"] if kind == "modernbert" else []
    assert names[: 1 + len(layers + norm)] == ["embeddings", *layers, *norm]
    assert set(names[len(layers + norm) + 1 :]) == set(heads)
    assert all(layer.cosine > 0.999999 and (layer.snr or 200) > 80 for layer in found.layers)
    json.dumps(found.to_dict(), allow_nan=False)


def test_int8_is_measured_by_its_signal_and_by_a_tolerance_where_one_is_given(bundle: Bundle) -> None:
    found = compare(f"{bundle.folder}#torch", f"{bundle.folder}#int8")
    assert not departing(found)
    snr = [layer.snr for layer in found.layers if layer.name.startswith("layer.")]
    assert all(value is not None and 15 < value < 80 for value in snr)
    assert compare(f"{bundle.folder}#torch", f"{bundle.folder}#int8", tolerance=1e-4).first == "layer.0"


def test_a_changed_piece_is_named_with_its_text_and_token(
    exports: dict[str, Path], copied: Callable[[str], Path]
) -> None:
    folder = copied("onnx")
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    (number,) = [i for i, (piece, _) in enumerate(data["model"]["vocab"]) if piece == "▁refund"]
    data["model"]["vocab"][number][0] = "▁rebate"
    path.write_text(json.dumps(data), encoding="utf-8")
    found = departing(compare(exports["onnx"], folder))
    assert list(found) == ["tokenizer"], "the models themselves are the same"
    assert found["tokenizer"].startswith(f"text 2 ('please refund my money today'), token 1: '▁refund' ({number}) in A")
    unseen = departing(compare(exports["onnx"], folder, ["ok"]))
    assert "1 pieces stand on one side only" not in unseen["tokenizer"]
    assert "2 pieces stand on one side only, the first" in unseen["tokenizer"]


def test_a_special_token_that_moved_is_named(exports: dict[str, Path], copied: Callable[[str], Path]) -> None:
    folder = copied("onnx")
    path = folder / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    swapped = text.replace('"<s>"', '"<x>"').replace('"</s>"', '"<s>"').replace('"<x>"', '"</s>"')
    path.write_text(swapped, encoding="utf-8")
    assert departing(compare(exports["onnx"], folder))["tokenizer"] == "the cls token is 0 in A and 2 in B"


def test_a_weight_that_was_perturbed_in_layer_1_is_found_there(
    kind: str, exports: dict[str, Path], copied: Callable[[str], Path]
) -> None:
    folder = copied("eager")
    state = load_file(folder / "model.safetensors")
    name = next(name for name in state if ".1." in name and name.endswith(("output.dense.weight", "attn.Wo.weight")))
    state[name] = state[name].clone()
    state[name][0, 0] += 0.05
    save_file(state, folder / "model.safetensors")
    for other in ("onnx", "exported", "eager"):
        found = compare(exports[other], folder)
        assert list(departing(found)) == ["layers"]
        assert found.first == "layer.1"
        below = [layer for layer in found.layers if layer.name in ("embeddings", "layer.0")]
        assert not any(layer.departs for layer in below)
        assert next(line[1] for line in table(found.layers) if line[0] == "*") == "layer.1"


@pytest.mark.parametrize("head", ["head.topic", "head.where"])
def test_a_head_that_was_perturbed_is_named(exports: dict[str, Path], copied: Callable[[str], Path], head: str) -> None:
    folder = copied("eager")
    state = load_file(folder / "model.safetensors")
    state[f"heads.{0 if head == 'head.topic' else 2}.out.bias"] += 1e-3
    save_file(state, folder / "model.safetensors")
    assert compare(exports["exported"], folder).first == head


def test_a_graph_whose_mask_ignores_padding_is_named(exports: dict[str, Path], copied: Callable[[str], Path]) -> None:
    folder = copied("onnx")
    model = onnx.load_model(folder / "model.onnx")
    (mask,) = [node for node in model.graph.node if list(node.output) == ["mask"]]
    mask.input[2] = mask.input[1]  # what is not to be seen gets no malus
    onnx.save_model(model, folder / "model.onnx")
    for a, b, which in ((exports["onnx"], folder, "B"), (folder, exports["onnx"], "A")):
        found = departing(compare(a, b))
        assert list(found) == ["padding"], "layers are compared without padding"
        assert found["padding"].startswith(f"{which} changes when text 0 is padded: layer.0 by")


def test_an_input_of_another_type_is_named(exports: dict[str, Path], copied: Callable[[str], Path]) -> None:
    folder = copied("onnx")
    model = onnx.load_model(folder / "model.onnx")
    (given,) = [value for value in model.graph.input if value.name == "input_ids"]
    given.type.tensor_type.elem_type = TensorProto.INT32
    onnx.save_model(model, folder / "model.onnx")
    found = departing(compare(exports["exported"], folder))
    assert found == {"dtypes": "the input input_ids is int64 in A, int32 in B"}


def test_products_in_half_precision_are_named(exports: dict[str, Path], copied: Callable[[str], Path]) -> None:
    folder = copied("onnx")
    model = onnx.load_model(folder / "model.onnx")
    place = next(i for i, node in enumerate(model.graph.node) if node.name == "heads.1.out.product")
    product = model.graph.node[place]
    halves = []
    for number, name in enumerate(list(product.input)):
        halves.append(helper.make_node("Cast", [name], [f"half.{number}"], to=TensorProto.FLOAT16))
        product.input[number] = f"half.{number}"
    result = product.output[0]
    product.output[0] = "half.product"
    nodes = [*halves, product, helper.make_node("Cast", ["half.product"], [result], to=TensorProto.FLOAT)]
    kept = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*kept[:place], *nodes, *kept[place + 1 :]])
    onnx.save_model(model, folder / "model.onnx")
    found = compare(exports["onnx"], folder)
    assert departing(found)["dtypes"] == "B is said to be fp32 and multiplies in fp16"
    assert list(departing(found)) == ["dtypes"], "ONNX Runtime has no such product on a CPU, and computes in fp32"


def test_values_that_are_no_numbers_are_named(exports: dict[str, Path], copied: Callable[[str], Path]) -> None:
    folder = copied("eager")
    state = load_file(folder / "model.safetensors")
    state["heads.1.out.bias"][0] = float("nan")
    save_file(state, folder / "model.safetensors")
    found = compare(exports["eager"], folder)
    assert found.first == "head.late" and "no numbers" in departing(found)["layers"]
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_model_of_fewer_layers_or_other_width_is_named(tmp_path: Path, tokenizer_file: Path) -> None:
    folders = []
    for name, change in (("two", {}), ("one", {"num_hidden_layers": 1}), ("wide", {"hidden_size": 64})):
        torch.manual_seed(1)
        encoder: Any = new_encoder({**CONFIGS["bert"], **change})
        encoder.save_pretrained(tmp_path / name)
        shutil.copy(tokenizer_file, tmp_path / name / "tokenizer.json")
        folders.append(tmp_path / name)
    two, one, wide = folders
    assert not compare(two, two).departs
    fewer = {layer.name: layer.problem for layer in compare(two, one).layers}
    assert fewer["layer.1"] == "only A has it"
    found = compare(two, wide)
    assert found.first == "embeddings" and "its shape is (9, 32) in A, (9, 64) in B" in departing(found)["layers"]


def test_an_encoder_folder_agrees_with_the_bundle_it_went_into(tmp_path: Path, tokenizer_file: Path) -> None:
    model = new_model("bert")
    from julia1.model import round_weights

    round_weights(model)
    model.encoder.save_pretrained(tmp_path / "encoder")
    shutil.copy(tokenizer_file, tmp_path / "encoder" / "tokenizer.json")
    bundle = write_fixed(tmp_path / "bundle", tokenizer_file, model=model)
    found = compare(tmp_path / "encoder", f"{bundle.folder}#fp32")
    assert not found.departs
    assert [layer.name for layer in found.layers] == ["embeddings", "layer.0", "layer.1"]


def test_layers_of_a_graph_without_names_are_found_by_structure(bundle: Bundle, kind: str) -> None:
    graph = onnx.load_model(bundle.folder / "model-fp32.onnx", load_external_data=False).graph
    named = layer_tensors(graph)
    assert f"{LAST[kind]}" in named
    for number, node in enumerate(graph.node):
        node.name = f"n{number}"
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = "".join(map(str, map(ord, name)))  # no name tells anything
    found = layer_tensors(graph)
    if kind == "bert":
        assert len(found) == 3 and list(found) == ["embeddings", "layer.0", "layer.1"]
        assert found["layer.1"] == "".join(map(str, map(ord, named["layer.1"])))
    else:
        assert found == {}, "a normalization before each layer tells no end of a layer"


def test_the_layers_of_the_bundled_graphs_are_known() -> None:
    for precision in ("fp32", "int8"):
        path = bundled_models() / "julia1-open-small" / f"model-{precision}.onnx"
        found = layer_tensors(onnx.load_model(path, load_external_data=False).graph)
        assert list(found) == ["embeddings", *(f"layer.{i}" for i in range(12)), "pooled"]


@pytest.mark.parametrize("form", ["#fp32", "onnx", "exported", "eager"])
def test_models_for_open_decisions_are_compared_by_their_logits_too(
    tiny_bundle: Path, tmp_path: Path, form: str
) -> None:
    place = f"{tiny_bundle}#fp32"
    if form != "#fp32":
        place = str(export_bundle(Bundle.open(tiny_bundle), tmp_path / "out", form).folder)
    found = compare(f"{tiny_bundle}#torch", place)
    assert not departing(found)
    assert [layer.name for layer in found.layers] == ["embeddings", "layer.0", "layer.1", "pooled", "logits"]


def test_another_vocabulary_is_told_before_it_breaks_a_model(
    tiny_bundle: Path, tmp_path: Path, tokenizer_file: Path, brackets_bundle: Path
) -> None:
    found = departing(compare(f"{tiny_bundle}#fp32", f"{brackets_bundle}#fp32"))
    assert found["tokenizer"].startswith("the cls token is 0 in A and 2 in B")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "there is nothing at 'nowhere'"),
        ("{onnx}#fp32", "only a bundle has variants"),
        ("{bundle}#int4", "has no variant 'int4'"),
        ("{lone}", "lies beside it"),
    ],
)
def test_a_side_that_cannot_be_opened_is_named(
    bundle: Bundle, exports: dict[str, Path], tmp_path: Path, place: str, message: str
) -> None:
    lone = tmp_path / "model.onnx"
    shutil.copy(exports["onnx"] / "model.onnx", lone)
    with pytest.raises(InputError, match=message):
        open_side(place.format(onnx=exports["onnx"], bundle=bundle.folder, lone=lone), 1)


@pytest.mark.parametrize("form", ["#torch", "#fp32", "eager", "exported", "onnx"])
def test_a_tokenizer_larger_than_its_embedding_table_is_named(
    bundle: Bundle, exports: dict[str, Path], tokenizer_file: Path, tmp_path: Path, kind: str, form: str
) -> None:
    grown = grown_tokenizer(tokenizer_file, tmp_path / "grown.json", 300)
    if form.startswith("#"):
        place = f"{write_fixed(tmp_path / 'toy', grown, kind).folder}{form}"
    else:
        place = str(shutil.copytree(exports[form], tmp_path / form))
        shutil.copy(grown, tmp_path / form / "tokenizer.json")
    right = exports["onnx"]
    found = departing(compare(right, place))
    assert list(found) == ["tokenizer"], "these texts have none of the further pieces"
    assert "the tokenizer of B has ids up to 5" in found["tokenizer"] and "448 rows" in found["tokenizer"]
    met = departing(compare(place, right, ["late grown299", "ok"]))
    assert "the tokenizer of A has ids up to" in met["tokenizer"]
    assert met["layers"].startswith("not compared: the texts have ids that a side does not know")


@pytest.mark.parametrize("texts", [["ok"], ["late order", "red seat"]])
def test_texts_of_one_length_are_padded_too(
    exports: dict[str, Path], copied: Callable[[str], Path], texts: list[str]
) -> None:
    folder = copied("onnx")
    model = onnx.load_model(folder / "model.onnx")
    (mask,) = [node for node in model.graph.node if list(node.output) == ["mask"]]
    mask.input[2] = mask.input[1]
    onnx.save_model(model, folder / "model.onnx")
    found = departing(compare(exports["onnx"], folder, texts))
    assert found["padding"].startswith("B changes when text 0 is padded: layer.0 by")


def test_what_cannot_be_padded_is_told(exports: dict[str, Path], tiny_bundle: Path) -> None:
    def padding(place: object, texts: list[str]) -> str:
        return next(stage.message for stage in compare(place, place, texts).stages if stage.name == "padding")

    full = "late " * 30
    assert padding(exports["onnx"], [full]) == "not compared: every text is as long as what the models read"
    message = padding(exports["onnx"], [full, "ok", "late"])
    assert message.endswith("; 1 of 3 are as long as what a model reads and cannot be")
    assert padding(f"{tiny_bundle}#torch", ["ok"]) == "no text changes when it is padded"


def test_a_bundle_of_the_registry_and_one_of_hard_links_are_sides(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shutil.copytree(bundle.folder, tmp_path / "registry" / "toy" / "1")
    os.link(place / "weights.safetensors", tmp_path / "second name")
    monkeypatch.setenv("JULIA1_REGISTRY", str(tmp_path / "registry"))
    assert not compare("toy@1#torch", "toy@1#fp32").departs
    assert not compare("toy@1", place).departs
    with pytest.raises(InputError, match="toy has no version or alias '2'"):
        open_side("toy@2#torch", 1)
