"""``julia1 decide`` for one text: where text and questions come from, and what is printed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ASK, FakeDecider, Ran

from julia1.cli.drawing import draw
from julia1.questions import Choice, Score, YesNo

Run = Callable[..., Ran]

CHOICE = ("--choice", "Which team?", "billing: charges and refunds", "shipping")


def test_answers_are_one_json_object_with_the_model(run: Run, decider: FakeDecider) -> None:
    done = run("decide", "I was charged twice", *CHOICE, *ASK, "--score", "How upset?", "calm", "furious", "--json")
    assert done.code == 0 and done.error == ""
    assert done.data["model"] == {"name": "fake", "version": "1.0", "variant": "fp32", "engine": "onnxruntime"}
    assert list(done.data["answers"]) == ["choice", "yesno", "score"]
    assert done.data["answers"]["choice"]["probabilities"].keys() == {"billing", "shipping"}
    assert done.data["answers"]["score"]["legend"] == ["calm", "furious"]
    assert done.out.count("\n") == 1


def test_plain_lines_are_printed_when_not_a_terminal(run: Run, decider: FakeDecider) -> None:
    done = run("decide", "I was charged twice", *CHOICE, *ASK)
    assert done.code == 0 and done.error == ""
    assert "\x1b" not in done.out
    lines = done.out.splitlines()
    assert lines[0].startswith(("choice: billing", "choice: shipping")) and "confidence" in lines[0]
    assert lines[1] == "  Which team?"
    assert len(lines) == 8


def test_same_type_twice_gets_numbered_names_in_order(run: Run, decider: FakeDecider) -> None:
    done = run("decide", "x", "--yesno", "a?", "--score", "s", "low", "high", "--yesno", "b?", "--json")
    assert list(done.data["answers"]) == ["yesno", "score", "yesno2"]


@pytest.mark.parametrize("arguments", [["-"], [], ["-f", "-"]])
def test_text_comes_from_standard_input(run: Run, decider: FakeDecider, arguments: list[str]) -> None:
    assert run("decide", *arguments, *ASK, stdin="﻿多收了我一次钱\r\n".encode()).code == 0
    assert decider.seen == ["多收了我一次钱"]


def test_text_comes_from_a_file(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("two\nlines\n")
    assert run("decide", "-f", tmp_path / "text", *ASK).code == 0
    assert decider.seen == ["two\nlines"]


def test_text_may_follow_the_options_after_two_dashes(run: Run, decider: FakeDecider) -> None:
    assert run("decide", *CHOICE, "--", "-5 degrees").code == 0
    assert decider.seen == ["-5 degrees"]


def test_state_may_be_json(run: Run, decider: FakeDecider) -> None:
    assert run("decide", "--state-json", '{"order": {"total": 120}}', *ASK).code == 0
    assert decider.seen == [{"order": {"total": 120}}]


def test_flags_reach_the_model(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    how = ("--engine", "onnxruntime", "--threads", 2)
    done = run("decide", "x", *ASK, "--model", tmp_path, "--variant", "int8", *how, "--abstain-below", 1)
    assert done.code == 0 and "abstained" in done.out
    loaded = {"bundle": tmp_path, "variant": "int8", "engine": "onnxruntime", "threads": 2, "warm_up": False}
    assert decider.loaded == [loaded]


def test_cut_text_is_told_and_is_an_error_when_strict(run: Run, decider: FakeDecider) -> None:
    long = "word " * 60
    assert "read 50 of 60 tokens" in run("decide", long, *ASK).out
    assert "60 tokens" in run("decide", long, *ASK, "--strict").failed()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["", *ASK], "empty"),
        (["  \n", *ASK], "empty"),
        ([], "--choice, --yesno"),
        (["x"], "no questions"),
        (["x", "--choice", "Which?", "one"], "'one'"),
        (["x", "--choice", "Which?"], "two options"),
        (["x", "--choice", "Which?", "one", "one: again"], "'one'"),
        (["x", "--choice", "Which?", "one", "  "], "blank"),
        (["x", "--score", "How?", "low"], "two levels"),
        (["x", "--score", "How?", "low", "low"], "'low'"),
        (["x", "--yesno", ""], "--yesno ''"),
        (["x", "--yesno"], "--yesno"),
        (["x", "y", *ASK], "'y'"),
        (["x", *ASK, "--chioce", "a"], "--choice"),
        (["x", *ASK, "--threads", "zero"], "'zero'"),
        (["x", *ASK, "--threads", "0"], "'0'"),
        (["x", *ASK, "--abstain-below", "1.5"], "'1.5'"),
        (["x", *ASK, "--abstain-below", "nan"], "'nan'"),
        (["x", *ASK, "--model", "no/such"], "'no/such'"),
        (["x" * 1_000_000, *ASK], "1,000,000 characters"),
        (["\udce9", *ASK], "U+DCE9"),
        (["a\x00b", *ASK], "NUL"),
        (["--state-json", '{"a": NaN}', *ASK], "NaN"),
        (["--state-json", '{"a": 1e999}', *ASK], "1e999"),
        (["--state-json", '{"a": 1, "a": 2}', *ASK], "'a'"),
        (["--state-json", '{"a": }', *ASK], "column 7"),
        (["--state-json", '"\\ud800"', *ASK], "U+D800"),
        (["--state-json", "5", *ASK], "got 5"),
        (["--state-json", "[" * 100_000, *ASK], "nested"),
        (["-f", "no-such-file", *ASK], "'no-such-file'"),
        (["-f", ".", *ASK], "'.'"),
        (["x", "-f", "y", *ASK], "--file y"),
        (["x", *ASK, "--output", "y"], "--output needs --input"),
        (["x", *ASK, "--resume"], "--resume needs --input"),
        (["x", *ASK, "--input", "y"], "TEXT"),
        (["-", "-q", "-"], "standard input"),
    ],
)
def test_bad_input_is_one_error_that_names_it(
    run: Run, decider: FakeDecider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    line = run("decide", *arguments).failed()
    assert named in line
    assert len(line) < 400
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "named"),
    [(b"", "empty"), (b" \n", "empty"), (b"caf\xe9", "byte 3"), (b"x" * (17 << 20), "16 MiB"), (b"a\x00", "NUL")],
)
def test_bad_standard_input_is_one_error(run: Run, decider: FakeDecider, content: bytes, named: str) -> None:
    assert named in run("decide", *ASK, stdin=content).failed()


def test_missing_text_is_an_error_on_a_terminal(
    run: Run, decider: FakeDecider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("julia1.cli.decide._no_input", lambda arguments: True)
    assert "no text" in run("decide", *ASK).failed()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(decider: FakeDecider, abstain_below: float | None = None, words: int = 3) -> str:
    questions = {
        "team": Choice("Which [bold]team[/bold]?", [f"option {i}\x1b[31m" for i in range(13)]),
        "urgent": YesNo("Is it urgent?"),
        "mood": Score("How upset?", ["calm", "annoyed", "furious"]),
    }
    stream = Terminal()
    draw(questions, decider.decide("word " * words, questions, abstain_below=abstain_below), stream)
    return stream.getvalue()


def test_terminal_gets_bars_ten_at_most(decider: FakeDecider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "90")
    text = drawn(decider)
    lines = text.splitlines()
    shares = [float(line.split()[-1].rstrip("%")) for line in lines if line.startswith("  option") and "%" in line]
    assert len(shares) == 10 and shares == sorted(shares, reverse=True)
    assert "… 3 more" in text and "━" in text
    assert "Which [bold]team[/bold]?" in text
    assert "\x1b[31m" not in text
    levels = [line.split()[1] for line in lines if line.split()[:1] in (["0"], ["1"], ["2"])]
    assert levels == ["calm", "annoyed", "furious"]
    assert "abstained" not in text and "tokens" not in text


def test_terminal_is_told_what_was_cut_and_abstained(decider: FakeDecider) -> None:
    text = drawn(decider, abstain_below=1.0, words=60)
    assert "abstained" in text and "read 50 of 60 tokens" in text


def test_environment_is_read_when_a_flag_is_left_out(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JULIA1_MODEL", str(tmp_path / "gone"))
    assert "gone" in run("decide", "x", *ASK).failed(code=1)


def test_output_is_valid_json_whatever_the_option_is_called(run: Run, decider: FakeDecider) -> None:
    done = run("decide", "x", "--choice", "Q", 'a "quoted" name', "b\u2028c", "http://x", "10:30", "--json")
    assert set(json.loads(done.out)["answers"]["choice"]["probabilities"]) == {
        'a "quoted" name',
        "b\u2028c",
        "http://x",
        "10:30",
    }


def test_nothing_heavy_is_imported_before_a_command_needs_it() -> None:
    import subprocess

    code = "import julia1.cli, sys; print({'onnxruntime', 'rich', 'yaml', 'tokenizers', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr
