"""Recipes: typed, with unknown keys refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from julia1 import InputError
from julia1.text import Limits
from julia1.train import Recipe, load_recipe
from julia1.train.recipe import Source
from julia1.train.views import VIEWS

LEAST = {
    "name": "small",
    "sources": [{"set": "intents", "view": "choice", "weight": 2}],
    "wordings": {"choice": {"en": ["Which?"]}},
}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({**LEAST, **changes}, allow_unicode=True), encoding="utf-8")
    return path


def test_a_short_recipe_gets_defaults_that_work(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path))
    assert recipe.sources == [Source("intents", "choice", 2.0)]
    assert isinstance(recipe.sources[0].weight, float)
    assert recipe.sources[0].splits == ["train"]
    assert recipe.layers is None
    assert recipe.limits == Limits()


def test_nested_parts_are_filled(tmp_path: Path) -> None:
    recipe = load_recipe(
        written(
            tmp_path,
            layers=6,
            training={"steps": 10, "learning_rate": 1},
            vocabulary={"favoured": {"en": 5}},
            limits={"state_tokens": 100},
        )
    )
    assert (recipe.layers, recipe.training.steps, recipe.training.learning_rate) == (6, 10, 1.0)
    assert recipe.vocabulary.favoured == {"en": 5}
    assert recipe.limits.state_tokens == 100


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sead": 1}, "unknown key 'sead', did you mean 'seed'?"),
        ({"training": {"step": 1}}, "training: unknown key 'step', did you mean 'steps'?"),
        (
            {"sources": [{"set": "a", "view": "b", "weight": 1, "split": []}]},
            "sources[0]: unknown key 'split', did you mean 'splits'?",
        ),
        ({"xyzzy": 1}, "unknown key 'xyzzy'; known: name, sources"),
        ({"sources": [{"set": "a", "view": "b"}]}, "sources[0]: missing weight"),
        ({"sources": {"set": "a"}}, "sources: expected a list"),
        ({"sources": ["a"]}, "sources[0]: expected keys and values, got str"),
        ({"seed": "one"}, "seed: expected int, got 'one'"),
        ({"seed": True}, "seed: expected int, got True"),
        ({"seed": 1.5}, "seed: expected int, got 1.5"),
        ({"training": {"bf16": 1}}, "training: bf16: expected bool, got 1"),
        ({"training": {"learning_rate": "1e-4"}}, "training: learning_rate: expected float, got '1e-4'"),
        ({"training": {"learning_rate": False}}, "learning_rate: expected float, got False"),
        ({"training": [1]}, "training: expected keys and values, got list"),
        ({"wordings": []}, "wordings: expected keys and values, got []"),
        ({"wordings": {"choice": {"en": "Which?"}}}, "wordings.choice.en: expected a list, got 'Which?'"),
        ({"held_out": [1]}, "held_out[0]: expected str, got 1"),
        ({"limits": {"pass_tokens": 10}}, "pass_tokens is 10"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(written(tmp_path, **changes))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["name", "sources", "wordings"])
def test_missing_keys_are_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in LEAST.items() if key != name}))
    with pytest.raises(InputError, match=f"recipe.yaml: missing {name}"):
        load_recipe(path)


@pytest.mark.parametrize("content", ["a: [", "a: b: c", "\t- x"])
def test_a_file_that_is_not_yaml_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=r"recipe\.yaml is not YAML"):
        load_recipe(path)


@pytest.mark.parametrize("content", ["", "[]", "text"])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match="expected keys and values"):
        load_recipe(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the recipe"):
        load_recipe(tmp_path / "none.yaml")


def test_the_shipped_recipe_loads_and_holds_out_what_it_measures(bundled_recipe: Recipe) -> None:
    assert bundled_recipe.name == "julia1-open-small"
    assert {source.view for source in (*bundled_recipe.sources, *bundled_recipe.calibration)} <= set(VIEWS)
    assert {"banking77/test", "hwu64/test", "xsid/test"} <= set(bundled_recipe.held_out)
    used = {(source.set, split) for source in bundled_recipe.sources for split in source.splits}
    used |= {(source.set, split) for source in bundled_recipe.calibration for split in source.splits}
    assert not used & {tuple(name.split("/")) for name in bundled_recipe.held_out}
    assert not any(split.endswith("test") for _, split in used)
    assert not any(name.endswith("test") for name in bundled_recipe.development)
    assert "banking77" not in {name for name, _ in used}
    assert len(bundled_recipe.held_out_languages) == 3


def test_the_shipped_wordings_are_asked_in_english_and_chinese(bundled_recipe: Recipe) -> None:
    needed = {
        "choice",
        "none",
        "yesno",
        "area",
        "sentiment",
        "is_positive",
        "is_negative",
        "sentiment_level",
        "upset",
        "language",
        "answer_kind",
        "same",
        "parallel",
    }
    assert needed == set(bundled_recipe.wordings)
    for kind, by_language in bundled_recipe.wordings.items():
        assert set(by_language) == {"en", "zh"}
        for templates in by_language.values():
            assert len(templates) == len(set(templates)) >= 1
            for template in templates:
                assert ("{label}" in template) is (kind == "yesno")
                assert template.format(label="x")
