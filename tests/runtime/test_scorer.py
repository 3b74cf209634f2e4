"""The scorer: option texts are read once, kept within bounds, and change nothing by being kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from julia1 import Choice, Decider, InputError, load
from julia1.runtime.engines import Engine
from julia1.runtime.scorer import OptionScorer
from julia1.text import OptionsEncoding
from julia1.text.options import Row


class Counting:
    """An engine that counts the rows it reads, option texts apart from states."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.inputs, self.texts, self.states = engine, engine.inputs, 0, 0

    def run(self, feeds: Any, outputs: Sequence[str]) -> list[Any]:
        rows = len(feeds["input_ids"])
        if "logits" in outputs:
            self.states += rows
        else:
            self.texts += rows
        return self.engine.run(feeds, outputs)


def rows_of(encoding: OptionsEncoding, state: str, options: Sequence[str]) -> list[Row]:
    return encoding.encode(state, {"q": Choice("Which?", options)})[0]


def counted(decider: Decider, memory: int) -> tuple[OptionScorer, Counting]:
    engine = Counting(decider._scorer._engine)
    return OptionScorer(engine, decider._encoding.tokenizer.pad, memory), engine


def test_an_option_is_read_once_for_many_states(decider_fp32: Decider, encoding: OptionsEncoding) -> None:
    scorer, engine = counted(decider_fp32, 100)
    for state in ("late order", "good food", "music"):
        scorer.scores(rows_of(encoding, state, ["food", "music", "sport"]))
    assert (engine.texts, engine.states) == (3, 3)
    scorer.scores(rows_of(encoding, "music", ["music", "hotel"]))
    assert (engine.texts, engine.states) == (4, 4)


def test_an_option_that_many_rows_share_is_read_once(decider_fp32: Decider, encoding: OptionsEncoding) -> None:
    scorer, engine = counted(decider_fp32, 0)
    scorer.scores([row for s in ("late order", "food") for row in rows_of(encoding, s, ["food", "music"])])
    assert engine.texts == 2


def test_what_is_kept_changes_no_bit(decider: Decider, encoding: OptionsEncoding, texts: list[str]) -> None:
    options = ["food", "music and song", "hotel booking in the city", "我想你", "x"]
    kept, _ = counted(decider, 1000)
    forgetful, _ = counted(decider, 0)
    narrow, _ = counted(decider, 7)
    for text in texts[:12]:
        rows = rows_of(encoding, text, options)
        first = forgetful.scores(rows)
        assert first.tolist() == kept.scores(rows).tolist() == narrow.scores(rows).tolist()


def test_the_memory_stays_within_its_bound(decider_fp32: Decider, encoding: OptionsEncoding) -> None:
    scorer, _ = counted(decider_fp32, 30)
    for i in range(40):
        scorer.scores(rows_of(encoding, "late order", [f"topic {i}", f"city {i}", "food"]))
        kept = scorer._memory._items
        assert sum(map(len, kept)) <= 30
        assert scorer._memory._room == 30 - sum(map(len, kept))
    assert encoding.tokenizer.ids(["food"])[0] == list(next(t for t in kept if len(t) == 2)[1:]), "used last, so kept"


def test_a_thousand_options_need_no_more_memory_than_it_has(decider_fp32: Decider, encoding: OptionsEncoding) -> None:
    scorer, engine = counted(decider_fp32, 20)
    rows = rows_of(encoding, "music", [f"topic {i}" for i in range(300)])
    found = np.concatenate([scorer.scores([row])[0, : len(row.markers)] for row in rows])
    assert engine.texts == 300
    assert np.isfinite(found).all()
    assert sum(map(len, scorer._memory._items)) <= 20


@pytest.mark.parametrize("value", [-1, -100])
def test_a_negative_memory_is_refused(tiny_bundle: Path, value: int) -> None:
    with pytest.raises(InputError, match=f"option_memory is {value}: a number of tokens, or 0 to keep none"):
        load(tiny_bundle, option_memory=value)


def test_questions_that_were_warmed_up_have_no_option_left_to_read(tiny_bundle: Path) -> None:
    decider = load(tiny_bundle, variant="fp32", threads=1)
    questions = {"q": Choice("Which?", ["food", "music", "sport"])}
    engine = Counting(decider._scorer._engine)
    decider._scorer._engine = engine
    decider.warm_up(questions)
    assert engine.texts == 3
    engine.texts = 0
    decider.decide("late order", questions)
    assert engine.texts == 0
    with pytest.raises(InputError, match="no questions"):
        decider.warm_up({})


def test_a_load_reads_the_questions_that_it_is_given(tiny_bundle: Path) -> None:
    questions = {"q": Choice("Which?", ["food", "music", "sport"])}
    decider = load(tiny_bundle, variant="fp32", threads=1, questions=questions)
    engine = Counting(decider._scorer._engine)
    decider._scorer._engine = engine
    decider.decide("late order", questions)
    assert engine.texts == 0


def test_questions_without_a_warm_up_are_refused(tiny_bundle: Path) -> None:
    with pytest.raises(InputError, match="leave warm_up=False out, or the questions"):
        load(tiny_bundle, warm_up=False, questions={"q": Choice("Which?", ["a", "b"])})
