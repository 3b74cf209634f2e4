"""Questions in YAML and JSON files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import FakeDecider, Ran

from julia1.cli.questions import read_questions
from julia1.questions import Choice, Score, YesNo

Run = Callable[..., Ran]

WHOLE = """
team:
  type: choice
  instructions: Which team handles this?
  options:
    billing: charges and refunds
    shipping:
yes:  # in YAML 1.1 this key is a boolean
  type: yesno
  instructions: Does it need an answer today?
  true: someone is waiting
urgent:
  type: noul
  criteria: {true: it burns, false: it can wait}
when:
  type: choice
  criteria: [yes, no, 10:30, 2026-11-30, off]
mood: {type: score, instructions: "How upset?", levels: [calm, annoyed, furious]}
"""


def test_yaml_gives_typed_questions(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(WHOLE)
    assert read_questions(str(tmp_path / "q.yaml")) == {
        "team": Choice("Which team handles this?", {"billing": "charges and refunds", "shipping": None}),
        "yes": YesNo("Does it need an answer today?", true="someone is waiting"),
        "urgent": YesNo(None, true="it burns", false="it can wait"),
        "when": Choice(None, ["yes", "no", "10:30", "2026-11-30", "off"]),
        "mood": Score("How upset?", ["calm", "annoyed", "furious"]),
    }


def test_json_gives_the_same(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    path.write_text('\ufeff{"a":\t{"type": "noul", "instructions": "Is it?", "criteria": {"true": "T"}}}', "utf-8")
    assert read_questions(str(path)) == {"a": YesNo("Is it?", true="T")}


def test_file_and_flags_are_asked_together(run: Run, decider: FakeDecider, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text("yesno: {type: yesno, instructions: a}")
    done = run("decide", "x", "--yesno", "b", "-q", tmp_path / "q.yaml", "--json")
    assert list(done.data["answers"]) == ["yesno", "yesno2"]


def test_questions_may_come_from_standard_input(run: Run, decider: FakeDecider) -> None:
    assert run("decide", "x", "-q", "-", stdin=b"a: {type: yesno, instructions: b}").code == 0


NESTED = "a: {type: yesno, instructions: " + "[" * 2000 + "]" * 2000 + "}"
LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "nothing"),
        ("- a", "list"),
        ("just text", "str"),
        ("a: b", "'b'"),
        ("a: {instructions: b}", "'type'"),
        ("a: {type: choise, options: [x, y]}", "did you mean 'choice'?"),
        ("a: {type: [choice]}", "['choice']"),
        ("a: {type: zzz}", "yesno"),
        ("a: {type: choice, optoins: [x, y]}", "did you mean 'options'?"),
        ("a: {type: choice, levels: [x, y]}", "'levels'"),
        ("a: {type: choice}", "missing key 'options'"),
        ("a: {type: choice, options: [x, y], criteria: [x, y]}", "not both"),
        ("a: {type: choice, options: x}", "'x'"),
        ("a: {type: choice, options: [x, 1]}", "got 1"),
        ("a: {type: choice, options: [x]}", "['x']"),
        ("a: {type: choice, options: [x, x]}", "'x'"),
        ("a: {type: score, levels: {x: y}}", "levels"),
        ("a: {type: score, levels: [1, 2]}", "got 1"),
        ("a: {type: yesno}", "instructions"),
        ("a: {type: yesno, instructions: b, true: c, criteria: {}}", "'true'"),
        ("a: {type: yesno, criteria: {ture: b}}", "'ture'"),
        ("a: {type: yesno, criteria: [b]}", "['b']"),
        ("a: {type: yesno, instructions: 5}", "got 5"),
        ("a: {type: yesno, instructions: b}\na: {type: yesno, instructions: c}", "line 2, column 1"),
        ("a: {type: choice, options: {x: y, x: z}}", "'x'"),
        ("a: {type: yesno\nb: c", "line 2"),
        ("a:\n\t- b", "line 2"),
        ("a: !!python/object:os.system {}", "line 1"),
        ("? [a]\n: b", "key must be text"),
        ("a: b\n---\nc: d", "line 2"),
        ("a: \x07", "U+0007"),
        (LAUGHS, "*a"),
        (NESTED, "nested"),
        ("a: {type: yesno, instructions: [" + "1" * 5000 + "]}", "digits"),
    ],
)
def test_bad_yaml_is_one_error_with_file_and_place(
    run: Run, decider: FakeDecider, tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "questions.yaml"
    path.write_text(text, encoding="utf-8")
    line = run("decide", "x", "-q", path).failed()
    assert named in line and "questions.yaml" in line
    assert decider.loaded == []


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'{"a": {"type": "yesno", "instructions": NaN}}', "NaN"),
        (b'{"a": 1, "a": 2}', "'a'"),
        (b'{"a":\n {]}', "line 2, column 3"),
        (b'{"a": "\xff"}', "byte 7"),
        (b"[]", "nothing"),
    ],
)
def test_bad_json_is_one_error_with_file_and_place(
    run: Run, decider: FakeDecider, tmp_path: Path, content: bytes, named: str
) -> None:
    path = tmp_path / "questions.json"
    path.write_bytes(content)
    line = run("decide", "x", "-q", path).failed()
    assert named in line and "questions.json" in line


def test_missing_file_is_an_error(run: Run, decider: FakeDecider) -> None:
    assert "'nowhere.yaml'" in run("decide", "x", "-q", "nowhere.yaml").failed()
