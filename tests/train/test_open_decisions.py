"""The recipe from end to end: what it refuses, and how it looks at the development sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

from julia1 import Choice, Decider, InputError  # noqa: E402
from julia1.text import OptionsEncoding  # noqa: E402
from julia1.train import Recipe, train_open_decisions  # noqa: E402
from julia1.train.open_decisions import development_check  # noqa: E402
from julia1.train.sources import read_set  # noqa: E402

if TYPE_CHECKING:
    from conftest import Exported


def test_a_backbone_without_a_tokenizer_is_refused(
    data: Path, tmp_path: Path, make_recipe: Callable[..., Recipe]
) -> None:
    with pytest.raises(InputError, match=r"it has no tokenizer\.json"):
        train_open_decisions(make_recipe(), data, tmp_path, tmp_path / "run")


def test_development_accuracy_is_that_of_the_decider(
    data: Path, make_recipe: Callable[..., Recipe], exported: Exported, encoding: OptionsEncoding, decider_fp32: Decider
) -> None:
    recipe = make_recipe(development=["intents/val"], held_out_languages=["it", "zh"])
    figures = development_check(recipe, data, encoding)(exported.model)
    labelled = read_set(data / "intents", ["val"], ["it", "zh"])
    question = Choice(labelled.meta["question"], list(labelled.labels))
    answers = decider_fp32.decide_many([row["text"] for row in labelled.rows], {"label": question})
    right = [found["label"].choice == row["label"] for found, row in zip(answers, labelled.rows, strict=True)]  # type: ignore[union-attr]
    assert set(figures) == {"intents/val"}
    assert figures["intents/val"] == pytest.approx(sum(right) / len(right), abs=0.12)  # it is measured in bf16
