"""The training mix: exact repetition, and nothing held out ever drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from julia1 import InputError
from julia1.train import Mix, Recipe
from julia1.train import mix as mix_module
from julia1.train.recipe import Source
from julia1.train.sources import read_set, text_key

MakeRecipe = Callable[..., Recipe]


def test_a_draw_depends_on_seed_and_step_only(data: Path, make_recipe: MakeRecipe) -> None:
    first, second = Mix(make_recipe(), data), Mix(make_recipe(), data)
    later = second.draw(7, 30)
    assert second.draw(3, 30) == first.draw(3, 30)
    assert first.draw(7, 30) == later == first.draw(7, 30)
    assert first.draw(8, 30) != later
    assert Mix(make_recipe(seed=12), data).draw(7, 30) != later


def test_drawing_fewer_gives_the_beginning(data: Path, make_recipe: MakeRecipe) -> None:
    mix = Mix(make_recipe(), data)
    assert mix.draw(5, 10) == mix.draw(5, 25)[:10]


def test_weights_are_shares(data: Path, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(sources=[Source("intents", "choice", 9), Source("pairs", "pair", 1)])
    drawn = Counter(isinstance(example.state, dict) for example in Mix(recipe, data).draw(0, 800))
    assert 0.06 < drawn[True] / 800 < 0.14


def test_held_out_texts_and_their_translations_are_never_drawn(data: Path, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(held_out=["held/test"])
    mix = Mix(recipe, data)
    group = "alarm set-3-0"  # "set an alarm for 3", which the held-out set spells with capitals and a comma
    for drawing in mix.drawings:
        assert all(row.get("group") != group for row in drawing.labelled.rows)
        assert all(text_key(row["text"]) != text_key("set an alarm for 3") for row in drawing.labelled.rows)
    free = Mix(make_recipe(), data)
    assert any(row.get("group") == group for row in free.drawings[0].labelled.rows)
    assert len(free.drawings[0].labelled.rows) == len(mix.drawings[0].labelled.rows) + 3


def test_held_out_languages_are_never_drawn(data: Path, make_recipe: MakeRecipe) -> None:
    mix = Mix(make_recipe(held_out_languages=["it"]), data)
    languages = {row.get("lang") for drawing in mix.drawings for row in drawing.labelled.rows}
    assert "it" not in languages
    assert "zh" in languages
    assert not any("alle" in str(example.state) for example in mix.draw(0, 300))


def test_texts_are_listed_once_by_language(data: Path, make_recipe: MakeRecipe) -> None:
    texts = Mix(make_recipe(), data).texts_by_language([read_set(data / "held", ["test"])])
    assert "set an alarm for 3" in texts["en"]
    assert "set an alarm" in texts["en"]  # a label's description
    assert "设置闹钟" in texts["zh"]
    assert "Set an ALARM, for 3!" in texts["en"]
    assert "alarm set alle 3 0" in texts["it"]
    assert all(len(rows) == len(set(rows)) for rows in texts.values())


def test_an_unknown_view_lists_the_known_ones(data: Path, make_recipe: MakeRecipe) -> None:
    with pytest.raises(InputError, match=r"source pairs: unknown view 'pears'; known: choice, .*open"):
        Mix(make_recipe(sources=[Source("pairs", "pears", 1)]), data)


def test_a_source_without_rows_is_refused(data: Path, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(
        sources=[Source("intents", "choice", 1, splits=["val"])], held_out_languages=["en", "zh", "it"]
    )
    with pytest.raises(InputError, match="source intents: no rows are left in val"):
        Mix(recipe, data)


def test_a_missing_set_is_named(data: Path, make_recipe: MakeRecipe) -> None:
    with pytest.raises(InputError, match="nowhere"):
        Mix(make_recipe(sources=[Source("nowhere", "choice", 1)]), data)


def test_a_view_that_fits_no_row_is_an_error_and_no_endless_loop(
    data: Path, make_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mix_module, "MOST_FRUITLESS", 50)
    recipe = make_recipe(sources=[Source("intents", "area", 1, areas={"nothing": ["zzz"]})])
    with pytest.raises(InputError, match="50 rows in a row gave no question, the last of intents by the view 'area'"):
        Mix(recipe, data).draw(0, 3)
