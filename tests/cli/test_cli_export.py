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

from export_samples import write_fixed  # noqa: E402

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
    ],
)
def test_export_refuses_what_it_cannot_do(run: Run, folder: Path, tmp_path: Path, flags: list[str], words: str) -> None:
    assert words in run("export", folder, "-o", tmp_path / "out", *flags).failed()
    assert not (tmp_path / "out").exists()
