"""``julia1 tune``: the table, what is kept, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import Ran

from julia1.bench import tuning
from julia1.bench.trial import Load, Way
from julia1.bench.tuning import Measured, Setting, Wanted
from julia1.bundle import Bundle
from julia1.runtime.cpu import Cpu

Run = Callable[..., Ran]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Load, Wanted]]:
    """Stands in for the search; keeps what it was asked."""
    seen: list[tuple[Load, Wanted]] = []

    def search(bundle: Bundle, cpu: Cpu, work: Load, wanted: Wanted, say: Any) -> list[Measured]:
        seen.append((work, wanted))
        say("round 1 of 1")
        fast = Measured(Setting(Way("fp32", "onnxruntime", 1), 512, 16), [0.004], [250.0], 99 << 20, 1.0)
        dead = Measured(Setting(Way("int8", "onnxruntime", 1), 512), problem="died of SIGILL")
        return [fast, dead]

    monkeypatch.setattr(tuning, "search", search)
    return seen


def test_the_best_is_kept_and_taken(run: Run, tiny_bundle: Path, searched: list[tuple[Load, Wanted]]) -> None:
    done = run("tune", tiny_bundle)
    assert done.code == 0
    assert "best for latency: fp32 on onnxruntime, threads: 1" in done.out and "died of SIGILL" in done.out
    assert "round 1 of 1" in done.error
    assert len(searched[0][0].given) >= 32 and searched[0][0].questions
    shown = run("models", "show", tiny_bundle).out
    assert "tuned on this machine for latency" in shown
    assert json.loads(run("tune", tiny_bundle, "--forget", "--json").out)["forgot"]
    assert "tuned on this machine" not in run("models", "show", tiny_bundle).out
    assert "nothing was kept" in run("tune", tiny_bundle, "--forget").out


def test_a_dry_run_keeps_nothing(run: Run, tiny_bundle: Path, searched: list[tuple[Load, Wanted]]) -> None:
    data = json.loads(run("tune", tiny_bundle, "--dry-run", "--json", "--goal", "throughput").out)
    assert data["kept"] is None and data["chosen"]["latency_ms"] == 4.0
    assert [row["front"] for row in data["measured"]] == [True, False]
    assert "tuned" not in run("models", "show", tiny_bundle).out


def test_own_texts_and_questions_are_measured(
    run: Run, tiny_bundle: Path, tmp_path: Path, searched: list[tuple[Load, Wanted]]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    done = run(
        "tune", tiny_bundle, "--data", tmp_path / "rows.jsonl", "--yesno", "Late?", "--engines", "onnxruntime",
        "--threads", "1,2", "--max-memory", 200, "--exhaustive", "--rounds", 2,
    )  # fmt: skip
    assert done.code == 0, done.error
    work, wanted = searched[0]
    assert sorted(one.state for one in work.given) == ["one", "two"] and set(work.questions or {}) == {"yesno"}
    assert wanted == Wanted("latency", 200_000_000, ["onnxruntime"], [1, 2], True, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--threads", "0"], "whole numbers"),
        (["--threads", "a"], "whole numbers"),
        (["--engines", "steam"], "no engine 'steam'"),
        (["--data", "nothing.jsonl"], "nothing.jsonl"),
        (["--field", "x"], "--field needs --data"),
        (["--goal", "speed"], "speed"),
    ],
)
def test_what_makes_no_sense_is_one_error(
    run: Run, tiny_bundle: Path, searched: list[tuple[Load, Wanted]], arguments: list[str], words: str
) -> None:
    done = run("tune", tiny_bundle, *arguments)
    assert done.code == 2 and words in done.error and done.error.count("\n") == 1


@pytest.mark.parametrize(("content", "words"), [("", "has no rows"), ('{"text": "a"}\n{"texd": 1}\n', ":2:")])
def test_bad_rows_are_named(
    run: Run, tiny_bundle: Path, tmp_path: Path, searched: list[tuple[Load, Wanted]], content: str, words: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    done = run("tune", tiny_bundle, "--data", tmp_path / "rows.jsonl")
    assert done.code == 2 and words in done.error
