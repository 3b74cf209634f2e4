"""``julia1 export`` and ``julia1 diagnose`` on toy bundles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import Ran

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from export_samples import CONFIGS, write_fixed  # noqa: E402

from julia1.export import standalone  # noqa: E402

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Path:
    return write_fixed(tmp_path_factory.mktemp("cli") / "toy", tokenizer_file).folder


def test_export_prints_files_and_parity(run: Run, folder: Path, tmp_path: Path) -> None:
    done = run("export", folder, "-o", tmp_path / "out")
    assert done.code == 0 and done.error == ""
    assert "model.onnx" in done.out and "under the limit of 1e-04" in done.out
    done = run("export", folder, "-o", tmp_path / "int8", "--precision", "int8", "--opset", "20")
    assert "no limit is held" in done.out


def test_a_bundle_is_exported_after_it_was_kept(run: Run, folder: Path, tmp_path: Path) -> None:
    kept = run("registry", "add", folder, "--registry", tmp_path / "registry", "--json").data["folder"]
    for name, place in (("kept", kept), ("run", folder)):
        done = run("export", place, "-o", tmp_path / name)
        assert done.code == 0, done.error


@pytest.mark.parametrize("format", ["onnx", "exported", "eager"])
def test_export_as_json(run: Run, folder: Path, tmp_path: Path, format: str) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"text": f"late order {i}", "age": i, "plan": "paid"}) for i in range(3)))
    done = run("export", folder, "-o", tmp_path / "out", "--format", format, "--data", rows, "--json")
    assert done.code == 0, done.error
    assert done.data["format"] == format
    assert done.data["parity"]["largest"] < 1e-4 and done.data["parity"]["compared"] > 0
    assert done.data["opset"] == (21 if format == "onnx" else None)
    assert all((tmp_path / "out" / name).stat().st_size == bytes for name, bytes in done.data["files"].items())


def test_an_export_that_departs_exits_3(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = standalone.load_fixed

    def spoiled(path: Path) -> Any:
        model = load(path)
        with torch.no_grad():
            model.heads[1].out.bias.add_(1e-3)
        return model

    monkeypatch.setattr(standalone, "load_fixed", spoiled)
    assert "departs from PyTorch by 1.0" in run("export", folder, "-o", tmp_path / "out").failed(3)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--format", "tflite"], "invalid choice: 'tflite'"),
        (["--opset", "12"], "the opset is 12: 18 to"),
        (["--format", "eager", "--opset", "20"], "an opset is for the format onnx"),
        (["--data", "nowhere.jsonl"], "there is no data file nowhere.jsonl"),
        (["--text", "body"], "--text names fields of the rows of --data"),
        (["--check"], "--check writes nothing: leave --output out"),
    ],
)
def test_export_refuses_what_it_cannot_do(run: Run, folder: Path, tmp_path: Path, flags: list[str], words: str) -> None:
    assert words in run("export", folder, "-o", tmp_path / "out", *flags).failed()
    assert not (tmp_path / "out").exists()


def test_diagnose_says_that_all_agrees(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("export", folder, "-o", tmp_path / "out").code == 0
    done = run("diagnose", f"{folder}#torch", tmp_path / "out")
    assert done.code == 0 and done.error == ""
    assert "DEPARTS" not in done.out and "layer.1" in done.out and "16 texts" in done.out
    texts = tmp_path / "texts.txt"
    texts.write_text("late order\n\nmusic please\n")
    done = run("diagnose", f"{folder}#torch", tmp_path / "out/model.onnx", "--texts", texts, "--json")
    assert done.code == 0 and done.data["departs"] is False and done.data["texts"] == 2
    assert [stage["name"] for stage in done.data["stages"]] == ["tokenizer", "dtypes", "padding", "layers"]


def test_diagnose_exits_3_and_names_the_layer(run: Run, folder: Path) -> None:
    done = run("diagnose", f"{folder}#torch", f"{folder}#int8", "--tolerance", "1e-4")
    assert done.code == 3 and "* " in done.out
    assert "A and B depart at layers: layer.0 is the first that departs" in done.error
    done = run("diagnose", f"{folder}#torch", f"{folder}#int8", "--tolerance", "1e-4", "--json")
    assert done.code == 3 and done.data["first"] == "layer.0"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tolerance", "-1"], "is not a number of at least 0"),
        (["--texts", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--texts", "{empty}"], "holds no texts"),
    ],
)
def test_diagnose_refuses_bad_input(run: Run, folder: Path, tmp_path: Path, flags: list[str], words: str) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    assert words in run("diagnose", folder, folder, *(flag.format(empty=empty) for flag in flags)).failed()
    assert "there is nothing at" in run("diagnose", folder, tmp_path / "nowhere").failed()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"auto_map": {"AutoModel": "own.Model"}}, 2, "julia1: warning: auto_map is 'own.Model'"),
        ({"is_decoder": True}, 3, "julia1: error: this encoder cannot be exported: is_decoder is True"),
    ],
)
def test_train_tells_of_operators_before_it_trains(
    run: Run, tmp_path: Path, tokenizer_file: Path, change: dict[str, Any], code: int, words: str
) -> None:
    from julia1.model import new_encoder

    # a vocabulary that is too small ends the run, after the check of operators
    encoder: Any = new_encoder({**CONFIGS["bert"], "vocab_size": 30})
    encoder.save_pretrained(tmp_path / "base")
    config = json.loads((tmp_path / "base/config.json").read_text())
    (tmp_path / "base/config.json").write_text(json.dumps({**config, **change}))
    (tmp_path / "base/tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"text": f"{'ab'[i % 2]} {i}", "label": "ab"[i % 2]}) for i in range(40)))
    done = run("train", rows, "-o", tmp_path / "out", "--base", tmp_path / "base", "--max-tokens", "16")
    assert done.code == code
    assert words in done.error
    assert not (tmp_path / "out").exists()


def test_export_compares_on_the_text_field_that_is_named(run: Run, folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"body": f"late order {i}", "age": i, "plan": "paid"}) for i in range(3)))
    flags = ("export", folder, "--data", rows, "--json", "-o")
    told = run(*flags, tmp_path / "out").failed()
    assert "no row has a text in 'text' or 'state' (the first has 'body', 'age', 'plan')" in told
    assert (
        "no row has the field 'bodi', did you mean 'body'" in run(*flags, tmp_path / "out", "--text", "bodi").failed()
    )
    named = run(*flags, tmp_path / "out", "--text", "body")
    alone = run(*flags, tmp_path / "alone", "--features", "age,plan")
    assert named.code == alone.code == 0, (named.error, alone.error)
    # tags are compared token by token: texts have some
    assert named.data["parity"]["compared"] > alone.data["parity"]["compared"]
    assert "no feature 'body'" in run(*flags, tmp_path / "bad", "--text", "body", "--features", "body").failed()


def test_a_check_of_operators_trains_and_writes_nothing(
    run: Run, folder: Path, tiny_bundle: Path, tmp_path: Path, tokenizer_file: Path
) -> None:
    from julia1.model import new_encoder

    place = tmp_path / "base"
    encoder: Any = new_encoder(CONFIGS["bert"])
    encoder.save_pretrained(place)
    (place / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    plain = json.loads((place / "config.json").read_text())

    def checked(*flags: str, **change: Any) -> Ran:
        (place / "config.json").write_text(json.dumps({**plain, **change}))
        return run("export", place, "--check", *flags)

    assert checked().out == "base: bert, can be exported\n"
    warned = checked("--json", auto_map={"AutoModel": "own.Model"})
    assert warned.code == 0 and warned.data["exports"] is True
    assert [(one["field"], one["stops"]) for one in warned.data["findings"]] == [("auto_map", False)]
    stopped = checked("--json", is_decoder=True, position_embedding_type="relative_key")
    assert stopped.code == 3 and stopped.data["exports"] is False
    assert [one["field"] for one in stopped.data["findings"]] == ["is_decoder", "position_embedding_type"]
    assert "this encoder cannot be exported: is_decoder is True" in stopped.error
    relu = checked(hidden_act="relu")
    assert relu.code == 3 and "error: hidden_act is 'relu': no graph is known" in relu.out
    assert "custom code" in checked(model_type="new", auto_map={"AutoModel": "own.Model"}).failed()
    for bundle in (folder, tiny_bundle):
        assert "bert, can be exported" in run("export", bundle, "--check").out
    assert sorted(path.name for path in place.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_recipe_is_checked_before_it_trains(run: Run, tmp_path: Path, tokenizer_file: Path) -> None:
    from julia1.model import new_encoder

    place, data = tmp_path / "base", tmp_path / "data"
    data.mkdir()
    encoder: Any = new_encoder(CONFIGS["bert"])
    encoder.save_pretrained(place)
    (place / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    plain = json.loads((place / "config.json").read_text())
    recipe = Path(__file__).resolve().parents[2] / "recipes" / "bundled.yaml"
    flags = ("train", recipe, "-o", tmp_path / "out", "--data", data, "--backbone", place)
    (place / "config.json").write_text(json.dumps({**plain, "auto_map": {"AutoModel": "own.Model"}}))
    done = run(*flags)
    assert "julia1: warning: auto_map is 'own.Model'" in done.error
    (place / "config.json").write_text(json.dumps({**plain, "quantization_config": {"quant_method": "awq"}}))
    assert "cannot be exported: quantization_config is 'awq'" in run(*flags).failed(3)
    (place / "config.json").write_text(json.dumps({**CONFIGS["modernbert"]}))
    assert "no graph is known for a modernbert encoder" in run(*flags).failed(3)


def test_diagnose_takes_a_version_of_the_registry(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JULIA1_REGISTRY", str(tmp_path / "registry"))
    assert run("registry", "add", folder).code == 0
    done = run("diagnose", "toy-bert@1#torch", "toy-bert@1#fp32", "--json")
    assert done.code == 0, done.error
    assert "has no version or alias '9'" in run("diagnose", "toy-bert@9", "toy-bert@1").failed()
