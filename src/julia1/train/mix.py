"""The training mix: weighted draws from several sources, the same for the same seed and step."""

from __future__ import annotations

import random
from pathlib import Path

from julia1.errors import InputError
from julia1.train.recipe import Recipe
from julia1.train.sources import LabelledSet, read_set, text_key, without_held_out
from julia1.train.views import VIEWS, Drawing, Example

MOST_FRUITLESS = 10_000
"""Rows that may give no question, one after the other, before the recipe is at fault."""


class Mix:
    """Draws examples for a step.

    A draw depends on the recipe's seed and the step only, so training resumes exactly.
    """

    def __init__(self, recipe: Recipe, data: Path) -> None:
        self._seed = recipe.seed
        self.drawings: list[Drawing] = []
        self._weights: list[float] = []
        held_out = held_out_texts(recipe, data)
        cache: dict[tuple[str, tuple[str, ...]], LabelledSet] = {}
        for source in recipe.sources:
            if source.view not in VIEWS:
                raise InputError(f"source {source.set}: unknown view {source.view!r}; known: {', '.join(VIEWS)}")
            key = (source.set, tuple(source.splits))
            if key not in cache:
                labelled = read_set(data / source.set, source.splits, recipe.held_out_languages)
                cache[key] = without_held_out(labelled, held_out)
            if not cache[key].rows:
                raise InputError(f"source {source.set}: no rows are left in {', '.join(source.splits)}: take it out")
            self.drawings.append(Drawing(cache[key], source, recipe.wordings))
            self._weights.append(source.weight)

    def draw(self, step: int, number: int) -> list[Example]:
        """``number`` examples for a step."""
        rng = random.Random(f"{self._seed}/{step}")
        examples: list[Example] = []
        fruitless = 0
        while len(examples) < number:
            (drawing,) = rng.choices(self.drawings, self._weights)
            row = rng.choice(drawing.labelled.rows)
            example = VIEWS[drawing.source.view](row, drawing, rng)
            if example is not None and str(example.state).strip():
                examples.append(example)
                fruitless = 0
            elif (fruitless := fruitless + 1) >= MOST_FRUITLESS:
                raise InputError(
                    f"{fruitless:,} rows in a row gave no question, the last of {drawing.source.set} by the view "
                    f"{drawing.source.view!r}: does the view fit the set?"
                )
        return examples

    def texts_by_language(self, further: list[LabelledSet]) -> dict[str, list[str]]:
        """Every text of the mix and of ``further`` sets by language, each once, label names as English and Chinese."""
        texts: dict[str, dict[str, None]] = {}
        for drawing in self.drawings:
            meta = drawing.labelled.meta
            texts.setdefault("en", {}).update(dict.fromkeys([*drawing.labels, *drawing.labelled.labels.values()]))
            texts.setdefault("zh", {}).update(dict.fromkeys(drawing.labelled.labels_zh.values()))
            texts["en"][str(meta["question"])] = None
        for labelled in [*(d.labelled for d in self.drawings), *further]:
            for row in labelled.rows:
                language = str(row.get("lang", "en")).split("-")[0]
                of_language = texts.setdefault(language, {})
                for part in (row["text"], row.get("text_b"), row.get("question"), *row.get("options", ())):
                    if part:
                        of_language[part] = None
        return {language: list(rows) for language, rows in texts.items()}


def held_out_texts(recipe: Recipe, data: Path) -> frozenset[str]:
    """Keys of all texts that the recipe holds out."""
    keys: set[str] = set()
    for name in recipe.held_out:
        folder, _, split = name.partition("/")
        keys.update(text_key(row["text"]) for row in read_set(data / folder, [split]).rows)
    return frozenset(keys)
