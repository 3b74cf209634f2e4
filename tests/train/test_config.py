"""A file that says all of a training on labelled rows."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import InputError
from julia1.cli.data_text import parse_yaml
from julia1.cli.plain_yaml import plain_yaml
from julia1.train.bounds import BOUNDS, require_bounds
from julia1.train.config import PseudoLabels, RowTraining, is_recipe, portable, read_config
from julia1.train.recipe import FineTuning

DEFAULTS = FineTuning(threads=3, bf16=False)


def read(data: dict[str, Any], folder: Path = Path("/data")) -> RowTraining:
    return read_config(data, "train.yaml", folder, DEFAULTS)


def test_a_short_file_gets_the_defaults_of_the_machine() -> None:
    assert read({"rows": ["a.jsonl"]}) == RowTraining(["/data/a.jsonl"], settings=DEFAULTS)


def test_paths_start_at_the_file_and_hub_names_stay(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    data = {"rows": ["a.jsonl", "/b.csv"], "test": "t.jsonl", "base": "own", "teacher": "owner/model"}
    config = read(data, tmp_path)
    assert config.rows == [str(tmp_path / "a.jsonl"), "/b.csv"]
    assert (config.test, config.validation) == (str(tmp_path / "t.jsonl"), None)
    assert (config.base, config.teacher) == (str(tmp_path / "own"), "owner/model")


def test_parts_are_filled() -> None:
    config = read(
        {
            "rows": ["a.jsonl"],
            "settings": {"epochs": 3, "learning_rate": 1},
            "pseudo": {"threshold": 0.9},
            "search": {"epochs": [2, 3], "learning_rate": "1e-5..3e-4"},
            "trials": 5,
        }
    )
    assert (config.settings.epochs, config.settings.learning_rate, config.settings.threads) == (3, 1.0, 3)
    assert config.pseudo == PseudoLabels(0.9)
    assert config.search == {"epochs": [2, 3], "learning_rate": "1e-5..3e-4"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"row": []}, "train.yaml: unknown key 'row', did you mean 'rows'?"),
        ({"settings": {"epoch": 3}}, "train.yaml: settings: unknown key 'epoch', did you mean 'epochs'?"),
        ({"settings": {"epochs": 2.5}}, "settings: epochs: expected int, got 2.5"),
        ({"settings": None}, "settings: expected keys and values, got NoneType"),
        ({"settings": {"epochs": 0}}, "epochs is 0: at least 1"),
        ({"rows": []}, "rows is empty"),
        ({"rows": "a.jsonl"}, "rows: expected a list"),
        ({"pseudo": {"treshold": 0.9}}, "did you mean 'threshold'"),
        ({"search": {"epoch": [1]}}, "train.yaml: search: unknown key 'epoch', did you mean 'epochs'?"),
        ({"search": {"epochs": 3}}, "search: epochs is 3: give a list of values, or LOW..HIGH"),
        ({"search": {"epochs": []}}, r"epochs is \[\]: give a list"),
        ({"trials": 3}, "3 trials of nothing"),
        ({"trials": 0, "search": {"epochs": [1, 2]}}, "trials is 0: at least 1"),
        ({"search": {"epochs": [1, 2]}, "unlabelled": "u.jsonl"}, "--search has no place beside --unlabelled"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read({"rows": ["a.jsonl"], **changes})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"row": ["a"]}, "train.yaml has neither, but row: .*the key 'rows'.*needs 'sources'"),
        ({"rows": [], "sources": []}, "has both"),
        (None, "has no key"),
        (["a.jsonl"], "has no key"),
    ],
)
def test_a_file_that_is_neither_is_told_what_is_missing(data: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        is_recipe(data, "train.yaml")


def test_each_kind_of_file_is_told_by_its_key() -> None:
    assert is_recipe({"sources": [], "name": "x"}, "f")
    assert not is_recipe({"rows": [], "name": "x"}, "f")


WORDS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1),
    st.sampled_from(["yes", "no", "null", "~", "1e5", "1e-4", "10:30", "0x1f", "2026-11-30", "*a", "&a b"]),
)


@given(
    words=st.lists(WORDS, min_size=5, max_size=5),
    rate=st.floats(0, 1e9, allow_subnormal=False),
    tried=st.lists(st.floats(1e-12, 1e6), min_size=1, max_size=3, unique=True),
    trials=st.one_of(st.none(), st.integers(1, 9)),
)
def test_what_is_printed_is_read_back(words: list[str], rate: float, tried: list[float], trials: int | None) -> None:
    name, version, text, *answers = words
    config = RowTraining(
        ["/data/a.jsonl"],
        name=name,
        version=version,
        text=text,
        answers=answers,
        settings=FineTuning(learning_rate=rate, bf16=False),
        search={"learning_rate": tried, "epochs": "3..10"},
        trials=trials,
    )
    printed = plain_yaml(portable(config, FineTuning()))
    assert "threads" not in printed, "which is the machine's"
    expected = replace(config, settings=replace(config.settings, threads=DEFAULTS.threads))
    assert read_config(parse_yaml(printed, "printed"), "printed", Path("/elsewhere"), DEFAULTS) == expected


def test_bounds_are_of_hyper_parameters_and_hold_the_defaults() -> None:
    assert set(BOUNDS) <= {one.name for one in fields(FineTuning)}
    require_bounds(FineTuning())
    with pytest.raises(InputError, match="learning_rate is nan"):
        require_bounds(FineTuning(learning_rate=float("nan")))
    with pytest.raises(InputError, match=r"dropout is 1: at least 0, 0\.99 at most"):
        require_bounds(FineTuning(dropout=1.0))
