"""What ``julia1 train`` makes of a file and of flags, without training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_samples import Ran

from julia1.cli.data_text import parse_yaml
from julia1.cli.train_rows import machine_settings
from julia1.train.config import MACHINE
from julia1.train.recipe import FineTuning

Run = Callable[..., Ran]

FILE = """
rows: [rows.jsonl]
test: test.jsonl
name: tickets
settings:
  learning_rate: 2e-4      # as people write it
  epochs: 4
search:
  epochs: [2, 3]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def printed(run: Run, *arguments: object) -> dict[str, Any]:
    done = run("train", *arguments, "--print-config")
    assert (done.code, done.error) == (0, "")
    found: dict[str, Any] = parse_yaml(done.out, "printed")
    return found


def test_the_defaults_are_printed_for_rows(run: Run, tmp_path: Path) -> None:
    found = printed(run, "some/rows.jsonl")
    assert found["rows"] == [str(Path("some/rows.jsonl").absolute())]
    expected = asdict(machine_settings())
    assert found["settings"] == {name: value for name, value in expected.items() if name not in MACHINE}
    assert set(found["settings"]) == set(asdict(FineTuning())) - set(MACHINE)
    chosen = printed(run, "some/rows.jsonl", "--set", f"threads={expected['threads'] + 1}")
    assert chosen["settings"]["threads"] == expected["threads"] + 1
    assert (found["base"], found["trials"], found["search"]) == (None, None, {})


def test_what_is_printed_trains_the_same(run: Run, file: Path, tmp_path: Path) -> None:
    first = printed(run, file, "--set", "dropout=0.2", "--validation", "v.jsonl", "--base", "owner/model")
    assert (first["settings"]["learning_rate"], first["settings"]["dropout"]) == (2e-4, 0.2)
    (tmp_path / "elsewhere").mkdir()
    again = tmp_path / "elsewhere" / "again.yaml"
    again.write_text(run("train", file, "--set", "dropout=0.2", "--validation", "v.jsonl", "--base", "owner/model",
                         "--print-config").out, encoding="utf-8")  # fmt: skip
    assert printed(run, again) == first
    assert json.loads(run("train", again, "--print-config", "--json").out) == first


def test_a_flag_wins_over_the_file(run: Run, file: Path, tmp_path: Path) -> None:
    flags = {
        "--validation": "v.jsonl", "--test": "t.jsonl", "--unlabelled": "u.jsonl", "--base": "owner/base",
        "--teacher": "owner/teacher", "--name": "other", "--bundle-version": "7", "--text": "body", "--answers": "a,b",
        "--features": "c", "--epochs": 9, "--max-tokens": 99, "--windows": 3, "--seed": 5, "--set": "pairing=cross",
        "--pseudo-threshold": 0.8, "--pseudo-quota": 4, "--pseudo-rounds": 2,
    }  # fmt: skip
    plain = tmp_path / "plain.yaml"
    plain.write_text(FILE.partition("search:")[0], encoding="utf-8")
    found = printed(run, plain, *(part for flag in flags.items() for part in flag))
    here = Path.cwd()
    assert [found[key] for key in ("validation", "test", "unlabelled")] == [
        str(here / name) for name in ("v.jsonl", "t.jsonl", "u.jsonl")
    ]
    assert (found["base"], found["teacher"], found["name"], found["version"]) == (
        "owner/base", "owner/teacher", "other", "7",
    )  # fmt: skip
    assert (found["text"], found["answers"], found["features"]) == ("body", ["a", "b"], ["c"])
    assert found["pseudo"] == {"threshold": 0.8, "quota": 4, "rounds": 2}
    used = found["settings"]
    assert (used["epochs"], used["max_tokens"], used["windows"], used["seed"], used["pairing"]) == (
        9,
        99,
        3,
        5,
        "cross",
    )
    assert used["learning_rate"] == 2e-4, "what no flag names stays"


def test_a_search_by_flags_takes_the_place_of_that_of_the_file(run: Run, file: Path) -> None:
    assert printed(run, file)["search"] == {"epochs": [2, 3]}
    found = printed(run, file, "--search", "learning_rate=1e-5..3e-4", "--search", "seed=1,2", "--trials", "4")
    assert (found["search"], found["trials"]) == ({"learning_rate": "1e-5..3e-4", "seed": [1, 2]}, 4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "learning_rte=1"], "did you mean 'learning_rate'?"),
        (["--set", "epochs"], "--set 'epochs': write NAME=VALUE"),
        (["--set", "epochs=2.5"], "expected int, got 2.5"),
        (["--set", "dropout=2"], "dropout is 2: at least 0, 0.99 at most"),
        (["--set", "learning_rate=NaN"], "learning_rate is nan"),
        (["--set", "epochs=3", "--epochs", "4"], "epochs is given twice"),
        (["--set", "seed=3", "--set", "seed=4"], "seed is given twice"),
        (["--trials", "4"], "4 trials of nothing"),
        (["--steps", "4"], "--steps is for a recipe"),
        (["--pairing", "cross"], "unknown flag '--pairing'"),
    ],
)
def test_flags_that_make_no_sense_are_one_line(run: Run, flags: list[str], message: str) -> None:
    assert message in run("train", "rows.jsonl", "-o", "out", *flags).failed()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("rows: [a.jsonl]\nsetings: {}\n", "unknown key 'setings', did you mean 'settings'?"),
        ("row: [a.jsonl]\n", "training on labelled rows needs the key 'rows'"),
        ("rows: [a\n", "not YAML"),
        ("rows: [a.jsonl]\nrows: [b.jsonl]\n", "line 2, column 1: not YAML: the key 'rows' stands twice"),
        ("rows: [a.jsonl]\nversion: 1.0\n", "version: expected str, got 1.0"),
        ("rows: [a.jsonl]\nsettings: {epochs: 0}\n", "epochs is 0: at least 1"),
        ("rows: [none.jsonl]\n", "there is no data file"),
        ("", "has no key"),
    ],
)
def test_a_bad_file_is_one_line(run: Run, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(content, encoding="utf-8")
    line = run("train", tmp_path / "bad.yaml", "-o", tmp_path / "out").failed()
    assert message in line and str(tmp_path) in line
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_told(run: Run, file: Path) -> None:
    assert "-o DIR is missing" in run("train", "rows.jsonl").failed()
    assert "cannot read 'none.yaml'" in run("train", "none.yaml", "-o", "out").failed()
    assert f"{file} stands alone, without rows.jsonl" in run("train", file, "rows.jsonl", "-o", "out").failed()


def test_a_recipe_is_printed_with_its_defaults(run: Run, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("name: x\nsources: []\nwordings: {}\n", encoding="utf-8")
    done = run("train", tmp_path / "recipe.yaml", "--steps", 7, "--print-config")
    found = yaml.safe_load(done.out)
    assert (found["training"]["steps"], found["limits"]["state_tokens"]) == (7, 384)
    (tmp_path / "again.yaml").write_text(done.out, encoding="utf-8")
    assert run("train", tmp_path / "again.yaml", "--print-config").out == done.out
    assert "--epochs is for labelled rows" in run("train", tmp_path / "recipe.yaml", "-o", "x", "--epochs", 3).failed()
