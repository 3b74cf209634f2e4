"""Optimizations from a file to a folder, and everything that goes wrong on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import pytest
import torch
import yaml
from graph_samples import SmallBert, TextCnn, bert_inputs, exported
from torch import nn

from julia1 import InputError
from julia1.cli.app import main
from julia1.export.onnx_file import read_model
from julia1.optimize import running
from julia1.optimize.config import ModelFiles
from julia1.optimize.graph import new_session, run
from julia1.optimize.rows import class_names, read_unlabelled
from julia1.optimize.steps import Attempt, Quantizer

CLASSES = 4
WORDS = ["refund", "hotel", "music", "late", "angry", "good", "card", "bank"]


def sequences(rows: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Ids of 9 tokens; the class is that of the one token under 4."""
    rng = np.random.default_rng(seed)
    ids, wanted = rng.integers(4, 60, (rows, 9)), rng.integers(0, CLASSES, rows)
    ids[np.arange(rows), rng.integers(0, 9, rows)] = wanted
    return ids, wanted


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a TextCNN that has learned, and rows to judge it on."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(0)
    module = TextCnn()
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    ids, wanted = (torch.from_numpy(part) for part in sequences(800, 0))
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(ids), wanted).backward()
        optimizer.step()
    exported(module, {"ids": ids[:2]}, folder / "cnn.onnx")
    test, right = sequences(400, 1)
    np.savez(folder / "rows.npz", ids=test, labels=right)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def config(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "model": {"input_path": "cnn.onnx", "output_path": "small"},
        "evaluation": {"data": "rows.npz"},
        "optimization": {"steps": [{"type": "quantize"}]},
        "rollback_threshold": {"macro_f1_drop": 0.01},
    }
    for key, value in changes.items():
        part, _, name = key.partition("__")
        if name:
            data.setdefault(part, {})[name] = value
        else:
            data[part] = value
    return data


def optimize(folder: Path, data: dict[str, Any], *flags: str) -> int:
    (folder / "config.yaml").write_text(yaml.safe_dump(data))
    return main(["optimize", str(folder / "config.yaml"), *flags])


def accuracy(file: Path, rows: Path) -> float:
    stored, session = np.load(rows), new_session(read_model(file), optimised=True)
    found = run(session, None, {"ids": stored["ids"]})[0].argmax(1)
    return float((found == stored["labels"]).mean())


@pytest.mark.parametrize("scheme", ["dynamic", "static", "weight_only"])
def test_a_model_becomes_smaller_and_keeps_its_accuracy(
    folder: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    step = {"type": "quantize", "scheme": scheme, "activation_bit": 32 if scheme == "weight_only" else 8}
    assert optimize(folder, config(optimization={"steps": [step]})) == 0
    out = capsys.readouterr().out
    assert "baseline: macro_f1 0.9" in out or "baseline: macro_f1 1.0" in out
    small = folder / "small"
    assert {"model.onnx", "optimize_report.json", "optimize_report.html"} <= {one.name for one in small.iterdir()}
    onnx.checker.check_model(onnx.load(small / "model.onnx"))
    assert accuracy(small / "model.onnx", folder / "rows.npz") > 0.9
    report = json.loads((small / "optimize_report.json").read_text())
    assert report["tries"][0]["kept"]
    assert [stage["name"] for stage in report["stages"]] == ["baseline", report["tries"][0]["name"]]
    assert "<svg" in (small / "optimize_report.html").read_text()
    assert not list(folder.glob("*.run"))


def test_texts_go_through_the_tokenizer(tokenizer_file: Path, tmp_path: Path) -> None:
    file = exported(SmallBert(2, 448), bert_inputs(), tmp_path / "bert.onnx")
    shutil.copyfile(tokenizer_file, tmp_path / "tokenizer.json")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(60)]
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    inputs = ["input_ids", "attention_mask"]
    feeds = read_unlabelled(ModelFiles(str(file), ""), inputs, tmp_path / "plain.jsonl", 100, 0)
    session = new_session(read_model(file))
    answers = [int(run(session, None, one)[0].argmax()) for one in feeds]
    rows = [{"text": text, "label": f"c{answer}"} for text, answer in zip(texts, answers, strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = config(
        model__input_path="bert.onnx", model__labels=[f"c{i}" for i in range(5)], evaluation={"data": "rows.jsonl"}
    )
    data["rollback_threshold"] = {"accuracy_drop": 0.2}
    assert optimize(tmp_path, data) == 0
    assert (tmp_path / "small" / "tokenizer.json").is_file()
    report = json.loads((tmp_path / "small" / "optimize_report.json").read_text())
    assert report["baseline"]["accuracy"] == 1


def test_four_bits_that_lose_too_much_are_taken_down_to_eight(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = broken_when(monkeypatch, lambda step: step.weight_bit == 4)
    model = onnx.version_converter.convert_version(read_model(folder / "cnn.onnx"), 21)
    (folder / "cnn.onnx").write_bytes(model.SerializeToString())
    step = {"type": "quantize", "scheme": "weight_only", "weight_bit": 4, "activation_bit": 32}
    assert optimize(folder, config(optimization={"steps": [step]})) == 0
    report = json.loads((folder / "small" / "optimize_report.json").read_text())
    assert [(one["name"], one["kept"]) for one in report["tries"]] == [
        ("quantize weight_only int4", False),
        ("quantize weight_only int8", True),
    ]
    assert broken
    assert "not kept: macro_f1 fell by" in capsys.readouterr().out


def broken_when(monkeypatch: pytest.MonkeyPatch, when: Callable[[Any], bool]) -> list[Any]:
    """Have steps destroy the last layer's weights."""
    applied, seen = Quantizer.applied, []

    def broken(self: Quantizer, step: Any, keep: Any = ()) -> onnx.ModelProto:
        model = applied(self, step, keep)
        if when(step):
            seen.append(step)
            for tensor in model.graph.initializer:
                value = onnx.numpy_helper.to_array(tensor) if tensor.data_type != onnx.TensorProto.INT4 else None
                if value is not None and value.dtype == np.float32 and value.ndim and "steps" in tensor.name:
                    tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros_like(value), tensor.name))
        return model

    monkeypatch.setattr(Quantizer, "applied", broken)
    return seen


def test_a_step_that_always_breaks_is_rolled_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken_when(monkeypatch, lambda step: True)
    assert optimize(folder, config()) == 3
    assert "step 1 was rolled back" in capsys.readouterr().err
    assert accuracy(folder / "small" / "model.onnx", folder / "rows.npz") > 0.9
    assert json.loads((folder / "small" / "optimize_report.json").read_text())["rolled_back"] == [0]


def test_a_class_that_breaks_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = Quantizer.attempts

    def without_a_class(self: Quantizer, good: Any) -> Any:
        for attempt in attempts(self, good):
            model = attempt.model
            name = model.graph.output[0].name
            model.graph.node[-1].output[0] = "before"
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 0, -99, 0], np.float32), "less"))
            model.graph.node.append(onnx.helper.make_node("Add", ["before", "less"], [name], name="less"))
            yield Attempt(attempt.name, model, attempt.kept)

    monkeypatch.setattr(Quantizer, "attempts", without_a_class)
    data = config(rollback_threshold={"accuracy_drop": 0.9}, model__labels=["a", "b", "gone", "d"])
    assert optimize(folder, data) == 3
    assert "recall of 'gone' fell from" in capsys.readouterr().out


def test_an_interrupted_run_is_taken_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    logits_of = running.logits_of

    def counted(session: Any, rows: Any) -> Any:
        read.append(len(rows.feeds))
        return logits_of(session, rows)

    def stopped(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "logits_of", counted)
    with monkeypatch.context() as patch:
        patch.setattr(running, "measure", stopped)
        assert optimize(folder, config()) == 130
    assert not (folder / "small").exists()
    assert len(read) == 2
    assert optimize(folder, config()) == 0
    assert len(read) == 3, "the baseline again, what was judged is read back"


def test_a_dry_run_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(folder, config(), "--dry-run") == 0
    out = capsys.readouterr().out
    assert "1 linear layers" in out
    assert "step 1: quantize dynamic int8, then where that loses too much" in out
    assert sorted(one.name for one in folder.iterdir()) == ["cnn.onnx", "config.yaml", "rows.npz"]


@pytest.mark.parametrize("goal", ["server", "edge"])
def test_a_goal_writes_its_file_and_runs_it(folder: Path, goal: str) -> None:
    assert main(["optimize", "cnn.onnx", "--for", goal, "--data", "rows.npz"]) == 0
    assert (folder / f"cnn-{goal}" / "model.onnx").is_file()
    written = yaml.safe_load((folder / f"cnn.{goal}.yaml").read_text())
    assert written["optimization"]["steps"][0].get("reduce_range", False) == (goal == "edge")


def test_a_goal_needs_rows_and_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "run", "cnn.onnx", "--for", "edge"]) == 2
    assert "--data FILE is missing" in capsys.readouterr().err
    assert main(["optimize", "run", "config.yaml", "--for", "edge", "--data", "rows.npz"]) == 2
    assert "config.yaml is no ONNX file" in capsys.readouterr().err


def test_sensitivity_lists_the_layers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "sensitivity", "cnn.onnx", "--data", "rows.npz", "--json"]) == 0
    (layer,) = json.loads(capsys.readouterr().out)["layers"]
    assert layer["cosine"] > 0.99
    assert layer["decibels"] > 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__input_path": "none.onnx"}, "none.onnx is not an ONNX file that can be read"),
        ({"model__output_path": "rows.npz"}, "rows.npz exists: name a new folder"),
        ({"evaluation__data": "none.npz"}, "none.npz is not an .npz file"),
        ({"evaluation__data": "rows.jsonl"}, "the model takes ids: a text gives input_ids"),
        ({"evaluation__metrics": ["bleu"]}, "there is no metric 'bleu'"),
        ({"evaluation__rows": 0}, "evaluation: rows is 0: at least 1"),
        ({"model__labels": ["a", "b"]}, "the model gives 4 logits, and 2 labels are named"),
        ({"calibration__method": "max"}, "the method is 'max': one of min_max, percentile, entropy"),
        ({"calibration__percentile": [1, 2, 3]}, "two numbers, such as [99.99, 0.01]"),
        ({"calibration__sample_num": "many"}, "sample_num: expected int"),
        ({"rollback_threshold__bleu_drop": 0.1}, "unknown key 'bleu_drop'"),
        ({"rollback_threshold__auc_drop": 3.0}, "the drop of auc is 3"),
        ({"rollback_threshold__auc_drop": 0.1}, "auc is guarded, and these rows have none"),
        ({"optimization": {"steps": []}}, "there are no steps"),
        ({"optimization": {"steps": [{"type": "shrink"}]}}, "steps[0]: the type is 'shrink'"),
        ({"optimization": {"steps": [{"type": "quantize", "bits": 8}]}}, "unknown key 'bits'"),
        (
            {"optimization": {"steps": [{"type": "quantize", "weight_bit": 4}]}},
            "weight_bit is 4: 8 with the scheme dynamic",
        ),
        ({"optimization": {"steps": [{"type": "quantize", "activation_bit": 16}]}}, "activation_bit is 16: 8, or 32"),
        ({"optimization": {"steps": [{"type": "quantize", "scheme": "best"}]}}, "the scheme is 'best': one of"),
        ({"version": 2}, "version is 2: this julia1 reads version 1"),
        ({"modle": {}}, "unknown key 'modle', did you mean 'model'"),
    ],
)
def test_bad_input_is_one_clear_error(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    assert optimize(folder, config(**changes)) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (folder / "small").exists()


def test_a_label_that_the_model_does_not_have_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = dict(np.load(folder / "rows.npz"))
    stored["labels"][7] = 9
    np.savez(folder / "rows.npz", **stored)
    assert optimize(folder, config(model__labels=["a", "b", "c", "d"])) == 2
    assert "a row has the label 9, and the model gives 4 logits" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        {"id2label": {str(number): f"c{number}" for number in range(12)}},
        {"heads": [{"name": "answer", "labels": [f"c{number}" for number in range(12)]}]},
    ],
)
def test_labels_are_read_beside_the_model_in_their_order(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert class_names(ModelFiles(str(tmp_path / "m.onnx"), "")) == [f"c{number}" for number in range(12)]


@pytest.mark.parametrize("content", ["[]", "{", '{"id2label": {"a": "b"}}', '{"heads": 3}'])
def test_a_config_that_does_not_say_the_labels_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"config\.json does not say the labels"):
        class_names(ModelFiles(str(tmp_path / "m.onnx"), ""))


def test_what_is_quantized_already_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(folder, config()) == 0
    again = config(model__input_path="small/model.onnx", model__output_path="smaller")
    assert optimize(folder, again) == 2
    assert "it may be quantized already" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(running, "write_whole", full)
    assert optimize(folder, config()) == 2
    assert "cannot write" in capsys.readouterr().err
    assert not (folder / "small").exists()
    assert not list(folder.glob("*.partial*"))
