"""``julia1 golden``: what is printed, what is refused, exit codes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import Ran, write_rows

from julia1.runtime import variants

Run = Callable[..., Ran]


@pytest.fixture
def made(run: Run, tiny_bundle: Path, tmp_path: Path) -> Path:
    place = tmp_path / "golden.json.gz"
    done = run("golden", "make", tiny_bundle, "-o", place, "--variant", "fp32", "--threads", 1, "--json")
    assert done.code == 0 and done.error == ""
    assert done.data["path"] == str(place) and done.data["bytes"] == place.stat().st_size
    assert (done.data["bundle"], done.data["variants"], done.data["left_out"]) == ("tiny 1", ["fp32"], ["int8"])
    return place


def test_what_was_made_is_checked(run: Run, tiny_bundle: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA1_MODEL", str(tiny_bundle))
    monkeypatch.setenv("JULIA1_THREADS", "1")
    done = run("golden", "check", made)
    assert done.code == 0 and done.error == ""
    lines = done.out.splitlines()
    assert lines[0] == "tiny 1, 24 requests" and "made on" in lines[1] and "checked on" in lines[2]
    assert lines[3].split()[:2] == ["fp32", "onnxruntime"] and " same " in lines[3] and "answers the same" in lines[3]
    data = run("golden", "check", made, "--json").data
    assert data["ok"] is True and [one["status"] for one in data["variants"]] == ["same"]
    assert data["variants"][0]["engine"].startswith("onnxruntime 1.")


def test_a_departure_exits_3_with_one_line(run: Run, tiny_bundle: Path, made: Path) -> None:
    data = json.loads(gzip.decompress(made.read_bytes()))
    for one in data["variants"]["fp32"]["made"]:
        for call in one["passes"]:
            call["outputs"] = {name: [value + 1 for value in values] for name, values in call["outputs"].items()}
    made.write_bytes(gzip.compress(json.dumps(data).encode()))
    done = run("golden", "check", made, tiny_bundle, "--threads", 1)
    assert done.code == 3 and "DEPARTS" in done.out
    assert len(done.error.splitlines()) == 1 and "fp32 departs first at logits by 1.0e+00" in done.error
    done = run("golden", "check", made, tiny_bundle, "--threads", 1, "--json")
    assert done.code == 3 and done.data["ok"] is False and done.data["variants"][0]["first"] == "logits"


def test_nothing_checked_exits_3(run: Run, tiny_bundle: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "missing_needs", lambda variant, cpu: "the CPU has no legs")
    done = run("golden", "check", made, tiny_bundle)
    assert done.code == 3 and "no variant of tiny 1 could be checked here" in done.error
    assert "not run" in done.out and "no legs" in done.out


def test_rows_of_ones_own(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "order 1 is late"}, {"state": {"order": 2}}, "order 3"])
    place = tmp_path / "golden.json.gz"
    made = ("golden", "make", tiny_bundle, "-o", place, "--variant", "fp32", "--threads", 1)
    done = run(*made, "--data", rows, "--yesno", "Is it late?", "--json")
    assert done.code == 0 and done.data["requests"] == 3
    assert run("golden", "check", place, tiny_bundle, "--threads", 1).code == 0
    done = run(*made, "--data", rows, "--yesno", "Is it late?")
    assert done.code == 0 and f"{place}: tiny 1, 3 requests, fp32; left out: int8" in done.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "rows.jsonl"], "no questions"),
        (["--yesno", "Late?"], "need --data"),
        (["--field", "x"], "need --data"),
        (["--data", "none.jsonl", "--yesno", "Late?"], "none.jsonl"),
        (["--data", "bad.jsonl", "--yesno", "Late?"], "line 2"),
        (["--data", "empty.jsonl", "--yesno", "Late?"], "give at least one"),
        (["--variant", "int9"], "no variant 'int9'"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_wrong_usage_is_one_line(
    run: Run, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(Path("rows.jsonl"), ["a text"])
    Path("bad.jsonl").write_text('"a text"\n{"nothing": 1}\n')
    Path("empty.jsonl").touch()
    assert told in run("golden", "make", tiny_bundle, "-o", "golden.json.gz", *words).failed()
    assert not Path("golden.json.gz").exists()


def test_files_that_cannot_be_used_are_named(run: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    assert "is a folder" in run("golden", "make", tiny_bundle, "-o", tmp_path, "--variant", "fp32").failed()
    assert "cannot read" in run("golden", "check", tmp_path / "none.json.gz", tiny_bundle).failed()
    (tmp_path / "text.json.gz").write_text("text")
    assert "no golden file" in run("golden", "check", tmp_path / "text.json.gz", tiny_bundle).failed()
