"""``julia1 soak`` on a decider that is no model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench_samples import manifest
from cli_samples import FakeDecider, Ran, write_rows

from julia1.bench import soak_report, soaking
from julia1.bundle.heads import FeatureSpec, HeadSpec

Run = Callable[..., Ran]
SHORT = ("soak", "--minutes", "0.01")


@pytest.fixture(autouse=True)
def model(decider: FakeDecider) -> FakeDecider:
    """An open model; ``fixed`` makes it one with heads."""
    decider.manifest = manifest()
    decider.manifest.name, decider.manifest.version = "fake", "1.0"
    decider.plan.threads = 1  # type: ignore[attr-defined]
    return decider


def test_a_short_soak_prints_a_line_a_verdict(run: Run, model: FakeDecider) -> None:
    done = run(*SHORT, "--variant", "int8", "--threads", "2")
    assert done.code == 0, done.error
    lines = done.out.splitlines()
    assert len(lines) == 7 and lines[1].startswith("not measured  memory")
    assert any(line.startswith("pass") and "requests" in line for line in lines)
    assert "julia1: 0.0 of 0.01 min" in done.error
    assert model.loaded == [{"bundle": None, "variant": "int8", "engine": None, "threads": 2}]


def test_json_and_the_file_are_the_whole_report(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "soak.json"
    done = run(*SHORT, "--json", "--output", target)
    assert done.code == 0, done.error
    assert json.loads(target.read_text()) == done.data
    model = {"name": "fake", "version": "1.0", "variant": "fp32", "engine": "onnxruntime"}
    assert done.data["model"] == model and done.data["threads"] == 1
    assert len(done.data["verdicts"]) == 6 and len(done.data["samples"]["time"]) > 2
    assert [place.name for place in tmp_path.iterdir()] == ["soak.json"]


def test_rows_and_questions_of_the_user_are_asked(run: Run, model: FakeDecider, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", ["my text", {"body": 1, "text": "my other text"}, {"state": {"a": 1}}])
    done = run(*SHORT, "--data", rows, "--yesno", "Is it mine?")
    assert done.code == 0, done.error
    assert "my text" in model.seen and {"a": 1} in model.seen


def test_a_trend_exits_3_and_still_writes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = soak_report.judged("memory", False, "1 to 2 MB", "no growth", "rises all along", bytes_first=1)
    monkeypatch.setattr(soak_report, "_memory", lambda samples, limits: growing)
    done = run(*SHORT, "--output", tmp_path / "soak.json")
    assert done.code == 3
    assert done.error.splitlines()[-1] == "julia1: error: 1 trend in 0.0 min: memory rises all along"
    assert json.loads((tmp_path / "soak.json").read_text())["verdicts"][0]["status"] == "fail"


def test_ctrl_c_reports_the_time_so_far(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from julia1.bench.workload import Workload

    asked: list[int] = []
    ask = Workload.ask

    def stops(self: Workload, decider: Any) -> int:
        asked.append(1)
        if len(asked) > 20:
            raise KeyboardInterrupt
        return ask(self, decider)

    monkeypatch.setattr(Workload, "ask", stops)
    done = run("soak", "--minutes", "100", "--json")
    assert done.code == 130 and done.data["interrupted"] and done.data["requests"] == 20
    assert "the report is on the time so far" in done.error


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--minutes", "0"], "'0' is not a number of minutes above 0"),
        (["--minutes", "nan"], "is not a number of minutes"),
        (["--data", "nowhere.jsonl"], "cannot read 'nowhere.jsonl'"),
        (["--field", "body"], "--field names a field of the rows of --data"),
        (["--output", "no/such/folder/soak.json"], "there is no folder no/such/folder"),
        (["--output", "."], "is a folder: name a file"),
        (["--questions", "nowhere.yaml"], "cannot read 'nowhere.yaml'"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, flags: list[str], words: str) -> None:
    assert words in run("soak", *flags).failed()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "holds no rows"),
        (["fine", "  "], "line 2: the state is empty"),
        (["fine", {"texts": "a"}], "line 2: the row has no field 'text' or 'state'"),
    ],
)
def test_rows_that_cannot_be_asked_are_named(run: Run, tmp_path: Path, rows: list[Any], words: str) -> None:
    assert words in run(*SHORT, "--data", write_rows(tmp_path / "rows.jsonl", rows)).failed()


def fixed(model: FakeDecider, *heads: HeadSpec, **settings: Any) -> None:
    model.manifest = manifest("fixed", heads, **settings)
    model.manifest.name, model.manifest.version = "fake", "1.0"


def test_features_of_rows_are_given(
    run: Run, model: FakeDecider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, Any]] = []
    fixed(model, HeadSpec("a", "choice", ("x", "y")), features=FeatureSpec({"age": (1.0, 1.0)}))
    model.decide = lambda state, second, features: seen.append(features)  # type: ignore[assignment, method-assign]
    model.decide_many = lambda states, seconds, features: seen.extend(features)  # type: ignore[assignment, method-assign]
    done = run(*SHORT, "--data", write_rows(tmp_path / "rows.jsonl", [{"age": 7}, {"text": "a", "age": 8}]))
    assert done.code == 0, done.error
    assert {"age": 7} in seen and {"age": 8} in seen


def test_heads_are_not_asked_questions_and_pairs_need_two_texts(run: Run, model: FakeDecider, tmp_path: Path) -> None:
    fixed(model, HeadSpec("a", "match"), type="pair")
    assert "leave the questions out" in run(*SHORT, "--yesno", "Is it?").failed()
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "a", "text_b": "b"}, {"text": "a"}])
    assert "line 2: the model compares two texts, and the row has no 'text_b'" in run(*SHORT, "--data", rows).failed()


def test_a_terminal_gets_a_bar(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from julia1.cli.progress import SoakProgress

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with SoakProgress() as progress:
        progress(soaking.Moment(1.0, 60.0, 5, 2e8, 4.0))
        progress(soaking.Moment(2.0, 60.0, 9, float("nan"), 4.0))
        assert progress._bar is not None
        assert progress._bar.tasks[0].completed == 2.0 and "9 requests  probe" in progress._bar.tasks[0].fields["line"]
