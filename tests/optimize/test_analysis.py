"""The analysis of whole models, blocks and page included, and its command."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from graph_samples import SmallBert, bert_inputs, exported, model, node, weights
from onnx import TensorProto

from julia1.cli.app import main
from julia1.optimize.analysis import analyse
from julia1.optimize.blocks import picture
from julia1.optimize.feeds import example_feeds
from julia1.optimize.graph import OperatorGraph
from julia1.optimize.models import open_model


def test_layers_that_are_alike_are_one_block(bert_file: Path) -> None:
    found = analyse(open_model(str(bert_file), tokens=12).graph)
    layers = [block for block in found.blocks if "layer.N" in block.name]
    assert sum(block.count for block in layers) >= 2
    assert sum(block.multiplications for block in found.blocks) == found.multiplications
    assert sum(block.stored_bytes for block in found.blocks) == found.stored_bytes
    drawn = picture(found.blocks)
    assert drawn.count("<rect") == 3 * len(found.blocks)
    assert "layer.N ×" in drawn


def test_a_bundle_is_looked_into(tiny_bundle: Path) -> None:
    opened = open_model(str(tiny_bundle), variant="fp32")
    found = analyse(opened.graph)
    assert opened.label.endswith("fp32")
    assert found.multiplications > 0
    assert sum("layer" in block.name for block in found.blocks) >= 2


def test_an_export_in_training_mode_is_the_first_problem(tmp_path: Path) -> None:
    file = exported(SmallBert(1), bert_inputs(), tmp_path / "training.onnx", training=True)
    assert "exported in training mode" in analyse(open_model(str(file)).graph).problems[0]


@pytest.mark.parametrize(
    ("opset", "words"), [(12, "opset 12 knows no step for each channel"), (16, "opset 16 has no LayerNormalization")]
)
def test_an_old_operator_set_is_a_problem(opset: int, words: str) -> None:
    made = model([node("Relu", "x", "y")], {"x": (TensorProto.FLOAT, [2])}, ["y"], opset=opset)
    assert words in analyse(OperatorGraph(made, example_feeds(made))).problems[0]


def test_foreign_operators_doubles_casts_and_tables_are_problems() -> None:
    made = model(
        [
            node("Gather", "table ids", "rows"),
            node("Cast", "rows", "wide", to=TensorProto.DOUBLE),
            node("Cast", "wide", "back", to=TensorProto.FLOAT),
            onnx.helper.make_node("Gelu", ["back"], ["y"], name="y", domain="com.microsoft"),
        ],
        {"ids": (TensorProto.INT64, ["n"])},
        ["y"],
        {"table": weights(9, 4)},
    )
    made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    found = " ".join(analyse(OperatorGraph(made, example_feeds(made))).problems)
    for words in (
        "1 operators of com.microsoft",
        "table is 0.0 MB of fp32",
        "tensors are float64",
        "1 casts read a cast",
    ):
        assert words in found


def test_the_command_prints_and_writes(bert_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean, page = tmp_path / "clean.onnx", tmp_path / "page.html"
    assert main(["optimize", "analyze", str(bert_file), "--clean", str(clean), "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "MatMul" in out
    assert "the same outputs" in out
    onnx.checker.check_model(onnx.load(clean))
    assert "<svg" in page.read_text()
    assert main(["optimize", "analyze", str(clean), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waste"]["constant"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.onnx"], "none.onnx is not an ONNX file that can be read"),
        (["."], "has no ONNX file: write one first"),
        (["bert", "--variant", "int8"], "is no bundle: it has no variant 'int8'"),
        (["bert", "--clean", "old.onnx"], "old.onnx exists: name a new file"),
        (["bert", "--html", "no/page.html"], "there is no folder no to write page.html in"),
        (["bert", "--inputs", "none.npz"], "none.npz is not an .npz file"),
    ],
)
def test_bad_input_is_one_clear_error(
    bert_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.onnx").touch()
    (tmp_path / "empty").mkdir()
    if arguments == ["."]:
        monkeypatch.chdir(tmp_path / "empty")
    assert main(["optimize", "analyze", *(str(bert_file) if one == "bert" else one for one in arguments)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
