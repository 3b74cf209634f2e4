"""``julia1 accept`` on toy bundles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import Ran, write_rows

pytest.importorskip("torch")
pytest.importorskip("onnx")

from export_samples import write_fixed

from julia1.bench import acceptance

Run = Callable[..., Ran]
LATE = ("--yesno", "Is it late?", "--threads", "1", "--soak-minutes", "0")
ROWS = [{"text": f"order {n} of the week", "label": n % 2 == 0} for n in range(8)]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "rows.jsonl", [{"text": one["text"], "answers": {"yesno": one["label"]}} for one in ROWS]
    )


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Path:
    return write_fixed(tmp_path_factory.mktemp("accept") / "toy", tokenizer_file).folder


def test_an_open_model_gets_a_line_a_criterion(run: Run, tiny_bundle: Path, rows: Path, tmp_path: Path) -> None:
    done = run("accept", tiny_bundle, "--data", rows, "--variant", "fp32", *LATE, "--output", tmp_path / "out.json")
    assert done.code == 0, done.error
    lines = done.out.splitlines()
    assert [line[:12].strip() for line in lines[1:]] == ["pass", "not measured", "pass", "pass", "not measured"]
    assert "export error" in lines[1] and "< 1e-04" in lines[1] and "--soak-minutes 1440" in lines[5]
    assert "answering 8 rows with the variant fp32" in done.error
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["rows"] == 8 and data["model"]["variant"] == "fp32" and data["soak"] is None


def test_heads_with_features_as_json(run: Run, fixed: Path, tmp_path: Path) -> None:
    rows = [
        {"text": f"food {n}", "topic": ("food", "music")[n % 2], "late": n > 3, "age": n, "plan": "paid"}
        for n in range(8)
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    flags = ("--answers", "topic,late", "--threads", "1", "--soak-minutes", "0.01", "--json")
    done = run("accept", fixed, "--data", data, *flags)
    assert done.code in (0, 3), done.error  # random weights may lose points
    criteria = {one["name"]: one for one in done.data["criteria"]}
    assert criteria["export error"]["status"] == "pass"
    assert set(criteria["F1 beside PyTorch"]["heads"]) == {"topic", "late"}
    assert done.data["soak"]["errors"] == 0 and done.data["soak"]["requests"] > 0
    assert (done.code == 3) == any(one["status"] == "fail" for one in criteria.values())


def test_a_criterion_that_is_not_met_exits_3(
    run: Run, tiny_bundle: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "DECISION_SECONDS", 1e-9)
    done = run("accept", tiny_bundle, "--data", rows, "--variant", "fp32", *LATE)
    assert done.code == 3 and "fail" in done.out
    assert done.error.splitlines()[-1].startswith("julia1: error: 1 criterion not met: single decision median")


def test_a_label_answers_the_only_question(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    data = write_rows(
        tmp_path / "labels.jsonl", [{"state": {"a": "late"}, "label": True}, {"text": "b", "label": False}]
    )
    done = run("accept", tiny_bundle, "--data", data, "--variant", "fp32", *LATE, "--json")
    assert done.code == 0, done.error
    assert set(done.data["figures"]["fp32"]) == {"yesno"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "required: --data"),
        (["--data", "nowhere.jsonl", "--yesno", "Is it?"], "there is no data file nowhere.jsonl"),
        (["--data", "rows.jsonl"], "no questions: ask with --choice"),
        (["--data", "rows.jsonl", "--soak-minutes", "-1"], "is not a number of minutes of at least 0"),
        (["--data", "rows.jsonl", "--yesno", "Is it?", "--features", "age"], "--features age: the model has no such"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, tiny_bundle: Path, flags: list[str], words: str) -> None:
    assert words in run("accept", tiny_bundle, *flags).failed()


def test_questions_for_heads_are_refused(run: Run, fixed: Path, rows: Path) -> None:
    assert "leave the questions out" in run("accept", fixed, "--data", rows, "--yesno", "Is it?").failed()


def test_answers_of_another_name_are_named(run: Run, tiny_bundle: Path, rows: Path) -> None:
    flags: list[Any] = ["--choice", "Which?", "a", "b", "--score", "How?", "low", "high"]
    assert "rows.jsonl:1: it answers 'yesno'" in run("accept", tiny_bundle, "--data", rows, *flags).failed()
