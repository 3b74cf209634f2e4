"""``julia1 decide --input``: JSON lines in and out, bad rows, interruptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ASK, FakeDecider, Ran, read_rows, write_rows

Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("julia1.cli.batch.CHUNK_ROWS", 4)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.jsonl", [{"id": i, "text": f"text {i}"} for i in range(10)])


def test_every_row_is_written_with_its_answers(run: Run, decider: FakeDecider, rows: Path, tmp_path: Path) -> None:
    done = run("decide", *ASK, "--input", rows, "--output", tmp_path / "out.jsonl")
    assert done.code == 0 and done.out == f"{tmp_path / 'out.jsonl'}: 10 rows\n" and done.error == ""
    written = read_rows(tmp_path / "out.jsonl")
    assert [(row["id"], row["text"]) for row in written] == [(i, f"text {i}") for i in range(10)]
    assert all(row["answers"]["yesno"]["type"] == "yesno" for row in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    assert len(decider.loaded) == 1


def test_rows_go_to_standard_output_without_an_output(run: Run, decider: FakeDecider, rows: Path) -> None:
    done = run("decide", *ASK, "--input", rows)
    assert done.code == 0 and done.error == ""
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == list(range(10))


def test_summary_is_json_when_asked(run: Run, decider: FakeDecider, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = run("decide", *ASK, "--input", rows, "--output", out, "--json")
    assert done.data == {"input": str(rows), "output": str(out), "rows": 10, "errors": 0, "resumed": 0}


def test_every_form_of_row_is_read(run: Run, decider: FakeDecider) -> None:
    lines = [
        b'\xef\xbb\xbf"plain"',
        b'{"text": "with\\u2028separator"}\r',
        b"",
        '{"text": "raw\u2028separator"}'.encode(),
        b'{"state": {"a": 1}, "id": "\\ud800"}',
    ]
    done = run("decide", *ASK, "--input", "-", stdin=b"\n".join(lines))
    assert done.code == 0, done.error
    assert decider.seen == ["plain", "with\u2028separator", "raw\u2028separator", {"a": 1}]
    written = [json.loads(line) for line in done.out.split("\n")[:-1]]
    assert written[0]["text"] == "plain" and written[3]["id"] == "\ud800"


def test_fields_may_be_chosen(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "in.jsonl", [{"text": "a", "state": "b", "body": "c", "answers": "gold", "line": 1, "error": "own"}]
    )
    done = run("decide", *ASK, "--input", path, "--field", "body", "--answers-field", "given")
    assert done.code == 0 and decider.seen == ["c"]
    assert done.data["answers"] == "gold" and done.data["given"].keys() == {"yesno"}


def test_empty_input_gives_an_empty_output(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"")
    assert run("decide", *ASK, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl").code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b"" and decider.loaded == []


BAD = [
    (b"{", "column 2"),
    (b'"a" "b"', "column 5"),
    (b"\xff", "byte 0"),
    (b"5", "it is 5"),
    (b"null", "it is None"),
    (b"{}", "'text' or 'state'"),
    (b'{"Text": "x"}', "--field Text"),
    (b'{"text": "a", "state": "b"}', "both"),
    (b'{"text": "a", "answers": 1}', "'answers'"),
    (b'{"text": ""}', "empty"),
    (b'{"text": 5}', "got 5"),
    (b'{"text": null}', "got None"),
    (b'{"text": "a", "b": NaN}', "NaN"),
    (b'{"text": "a", "text": "b"}', "'text'"),
    (b'{"text": "\\ud800"}', "U+D800"),
    (b'{"text": "\\u0000"}', "NUL"),
    (b'{"text": "' + b"x" * 600_000 + b'"}', "600,000"),
    (b'{"text": "' + b"x" * (17 << 20) + b'"}', "16 MiB"),
    (b"[" * 100_000, "nested"),
]


@pytest.mark.parametrize(("bad", "named"), BAD)
def test_bad_row_is_one_error_with_its_line(
    run: Run, decider: FakeDecider, tmp_path: Path, bad: bytes, named: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'"one"\n\n' + bad + b'\n"four"\n')
    line = run("decide", *ASK, "--input", path, "--output", tmp_path / "out.jsonl").failed()
    assert f"{path} line 3: " in line and named in line
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(("bad", "named"), BAD)
def test_bad_row_is_passed_over_when_told(
    run: Run, decider: FakeDecider, tmp_path: Path, bad: bytes, named: str
) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_bytes(b'"one"\n\n' + bad + b'\n"four"\n')
    done = run("decide", *ASK, "--input", path, "--output", out, "--keep-going")
    assert done.code == 1 and done.error.startswith("julia1: error: 1 row could not be answered")
    first, middle, last = read_rows(out)
    assert middle["line"] == 3 and named in middle["error"] and middle.keys() == {"line", "error"}
    assert (first["text"], last["text"]) == ("one", "four") and first["answers"] and last["answers"]


def test_one_bad_row_of_many_costs_few_calls(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in.jsonl", [{"text": f"t{i}" if i != 7 else " "} for i in range(12)])
    done = run("decide", *ASK, "--input", path, "--keep-going")
    assert [("error" in json.loads(line)) for line in done.out.splitlines()] == [i == 7 for i in range(12)]
    assert len(decider.seen) < 30


def test_strict_fails_on_the_long_row_only(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in.jsonl", ["short", "word " * 60])
    assert "line 2: the state has 60 tokens" in run("decide", *ASK, "--input", path, "--strict").failed()


def test_bad_question_is_no_fault_of_a_row(run: Run, decider: FakeDecider, rows: Path, tmp_path: Path) -> None:
    line = run("decide", "--yesno", "why " * 100, "--input", rows, "--output", tmp_path / "o", "--keep-going").failed()
    assert line == "julia1: error: the instructions have too many tokens"
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--input", "nowhere.jsonl"], "'nowhere.jsonl'"),
        (["--input", "."], "'.'"),
        (["--input", "in.jsonl", "--output", "no/such/out.jsonl"], "no/such"),
        (["--input", "in.jsonl", "--output", "in.jsonl"], "in.jsonl exists"),
        (["--input", "in.jsonl", "--resume"], "--resume needs --output"),
        (["--input", "in.jsonl", "--output", "-", "--resume"], "--resume needs --output"),
        (["--input", "in.jsonl", "-f", "x"], "--file"),
        (["--input", "in.jsonl", "--state-json"], "--state-json"),
        (["--input", "-", "-q", "-"], "standard input"),
    ],
)
def test_bad_paths_are_one_error(
    run: Run,
    decider: FakeDecider,
    rows: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.chdir(rows.parent)
    assert named in run("decide", *ASK, *arguments).failed()
    assert [p.name for p in rows.parent.iterdir()] == ["in.jsonl"]


class Interrupted:
    """A run over ten rows that was interrupted in its third chunk."""

    def __init__(self, run: Run, decider: FakeDecider, rows: Path, *more: str) -> None:
        self.rows, self.out = rows, rows.parent / "out.jsonl"
        self.partial = rows.parent / "out.jsonl.partial"
        self.command = ("decide", "--input", rows, "--output", self.out, *more)
        assert run(*self.command, "--output", rows.parent / "whole.jsonl", *ASK).code == 0
        self.whole = (rows.parent / "whole.jsonl").read_bytes()
        decider.interrupt_at = "text 9"
        done = run(*self.command, *ASK)
        assert done.code == 130 and done.error == "julia1: interrupted\n"
        decider.interrupt_at = "never"
        decider.seen.clear()


@pytest.fixture
def interrupted(run: Run, decider: FakeDecider, rows: Path) -> Interrupted:
    return Interrupted(run, decider, rows)


def test_interrupted_run_leaves_only_whole_chunks(interrupted: Interrupted) -> None:
    assert not interrupted.out.exists()
    assert len(read_rows(interrupted.partial)) == 8


@pytest.mark.parametrize("torn", [b"", b'{"id": 8, "te', b'{"id": 8, "text": "text 8"}', b"\xff\x00"])
def test_resume_ends_as_if_never_interrupted(
    run: Run, decider: FakeDecider, interrupted: Interrupted, torn: bytes
) -> None:
    with interrupted.partial.open("ab") as file:
        file.write(torn)
    done = run(*interrupted.command, *ASK, "--resume")
    assert done.code == 0 and "10 rows, 8 of them by an earlier run" in done.out
    assert interrupted.out.read_bytes() == interrupted.whole and not interrupted.partial.exists()
    assert decider.seen == ["text 7", "text 8", "text 9"], "one row is answered again, to compare"


def test_resume_of_a_run_killed_before_its_end_needs_no_model(
    run: Run, decider: FakeDecider, interrupted: Interrupted
) -> None:
    interrupted.partial.write_bytes(interrupted.whole)
    decider.loaded.clear()
    assert run(*interrupted.command, *ASK, "--resume").code == 0
    assert interrupted.out.read_bytes() == interrupted.whole and decider.loaded == []


def test_resume_without_an_earlier_run_starts_one(run: Run, decider: FakeDecider, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run("decide", *ASK, "--input", rows, "--output", out, "--resume").code == 0
    assert len(read_rows(out)) == 10


def test_resume_of_a_complete_output_adds_the_rows_that_came_since(
    run: Run, decider: FakeDecider, rows: Path, tmp_path: Path
) -> None:
    command = ("decide", *ASK, "--input", rows, "--output", tmp_path / "out.jsonl", "--resume")
    assert run(*command).code == 0
    before = (tmp_path / "out.jsonl").read_bytes()
    assert "10 rows, 10 of them" in run(*command).out
    assert (tmp_path / "out.jsonl").read_bytes() == before
    with rows.open("a") as file:
        file.write('"one more"\n')
    assert run(*command).code == 0
    assert (tmp_path / "out.jsonl").read_bytes().startswith(before)
    assert len(read_rows(tmp_path / "out.jsonl")) == 11
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_resume_keeps_rows_with_errors(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "in.jsonl", [{"text": f"text {i}"} if i != 2 else {} for i in range(10)])
    decider.interrupt_at = "text 9"
    command = ("decide", *ASK, "--input", rows, "--output", tmp_path / "out.jsonl", "--keep-going")
    assert run(*command).code == 130
    decider.interrupt_at = "never"
    assert run(*command, "--resume").code == 1
    assert ["error" in row for row in read_rows(tmp_path / "out.jsonl")] == [i == 2 for i in range(10)]


def test_unfinished_run_is_not_overwritten(run: Run, decider: FakeDecider, interrupted: Interrupted) -> None:
    before = interrupted.partial.read_bytes()
    assert "--resume" in run(*interrupted.command, *ASK).failed()
    interrupted.out.touch()
    assert "both" in run(*interrupted.command, *ASK, "--resume").failed()
    assert interrupted.partial.read_bytes() == before


def _other_text(rows: list[Any]) -> list[Any]:
    return [*rows[:5], {**rows[5], "text": "changed"}, *rows[6:]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_other_text, "line 6"),
        (lambda rows: rows[1:], "line 1"),
        (lambda rows: rows[:7], "more rows"),
        (lambda rows: [*rows[:3], {"id": 3}, *rows[4:]], "line 4"),
    ],
)
def test_resume_refuses_another_input(
    run: Run,
    decider: FakeDecider,
    interrupted: Interrupted,
    change: Callable[[list[Any]], list[Any]],
    named: str,
) -> None:
    write_rows(interrupted.rows, change(read_rows(interrupted.rows)))
    before = interrupted.partial.read_bytes()
    assert named in run(*interrupted.command, *ASK, "--resume").failed()
    assert interrupted.partial.read_bytes() == before and not interrupted.out.exists()


@pytest.mark.parametrize(
    "other",
    [
        ("--yesno", "Is it something else?"),
        (*ASK, "--abstain-below", "1"),
        (*ASK, "--yesno", "And more?"),
        (*ASK, "--answers-field", "given"),
        ("--choice", "Is it urgent?", "no", "yes"),
    ],
)
def test_resume_refuses_other_questions(
    run: Run, decider: FakeDecider, interrupted: Interrupted, other: tuple[str, ...]
) -> None:
    before = interrupted.partial.read_bytes()
    assert "out.jsonl.partial" in run(*interrupted.command, *other, "--resume").failed()
    assert interrupted.partial.read_bytes() == before and not interrupted.out.exists()


def test_resume_refuses_a_damaged_file(run: Run, decider: FakeDecider, interrupted: Interrupted) -> None:
    lines = interrupted.partial.read_bytes().split(b"\n")
    interrupted.partial.write_bytes(b"\n".join([*lines[:2], b"{", *lines[3:]]))
    assert "out.jsonl.partial line 3 is not JSON" in run(*interrupted.command, *ASK, "--resume").failed()


def test_progress_is_a_line_now_and_then(
    run: Run, decider: FakeDecider, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("julia1.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
    done = run("decide", *ASK, "--input", rows, "--output", tmp_path / "out.jsonl")
    assert done.error.splitlines()[0].startswith("julia1: 4 rows, ")
    assert done.error.splitlines()[-1] == "julia1: 10 rows, 100%"
    assert run("decide", *ASK, "--input", rows).error == "", "no lines between rows on standard output"


def test_progress_is_a_bar_on_a_terminal(
    run: Run, decider: FakeDecider, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert run("decide", *ASK, "--input", rows, "--output", tmp_path / "out.jsonl").code == 0


def test_memory_is_bounded_by_bytes_of_a_chunk(
    run: Run, decider: FakeDecider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("julia1.cli.batch.CHUNK_BYTES", 10)
    path = write_rows(tmp_path / "in.jsonl", ["a long row indeed"] * 3)
    assert run("decide", *ASK, "--input", path).out.count("\n") == 3
