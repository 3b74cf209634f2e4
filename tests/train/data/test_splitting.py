"""Splits: no text on two sides, labels in proportion, augmented rows in training only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("datasketch")

from julia1 import InputError
from julia1.train.data.duplicates import exact_duplicates, near_duplicates
from julia1.train.data.rows import DataRow
from julia1.train.data.splitting import Split, split_rows

_WORDS = "order late refund card music song play weather rain city hotel book flight ticket pay bill angry calm"
WORDS = _WORDS.split()


def row(text: str, label: str = "x", number: int = 0, **more: Any) -> DataRow:
    fields = {"language": "", "group": "", "augmented": False, **more}
    return DataRow(f"f:{number}", text, {"label": label}, {}, data={}, **fields)


def made_up(number: int, labels: int = 4, seed: int = 0) -> list[DataRow]:
    random = np.random.default_rng(seed)
    return [row(" ".join(random.choice(WORDS, 9)) + f" {i}", f"label {i % labels}", i) for i in range(number)]


def parts(split: Split) -> list[list[int]]:
    return [split.train, split.val, split.test]


def test_eight_to_one_to_one_and_every_row_once() -> None:
    rows = made_up(500)
    split = split_rows(rows)
    assert [len(part) for part in parts(split)] == pytest.approx([400, 50, 50], abs=6)
    assert sorted(i for part in parts(split) for i in part) == list(range(500))
    assert split.left_out == []


def test_every_label_has_its_share_of_every_part() -> None:
    rows = made_up(600, labels=5)
    for part, share in zip(parts(split_rows(rows)), (0.8, 0.1, 0.1), strict=True):
        counts = Counter(rows[i].answers["label"] for i in part)
        assert all(abs(number - 120 * share) <= 3 for number in counts.values()), counts
        assert len(counts) == 5


def test_languages_are_balanced_too() -> None:
    rows = [
        row(f"{w} {i} {v}", "x", i, language="de" if i % 5 == 0 else "en")
        for i, (w, v) in enumerate(zip(WORDS * 20, WORDS[::-1] * 20, strict=True))
    ]
    test = split_rows(rows, near=None).test
    assert Counter(rows[i].language for i in test)["de"] == pytest.approx(len(rows) / 5 / 10, abs=3)


@given(seed=st.integers(0, 200), copies=st.integers(1, 30))
def test_equal_and_nearly_equal_texts_share_a_part(seed: int, copies: int) -> None:
    rows = made_up(60, seed=seed)
    random = np.random.default_rng(seed)
    rows += [row(rows[i].text.upper() + "!!", "x", 100 + i) for i in random.integers(0, 60, copies)]
    rows += [row(rows[i].text + " today", "x", 200 + i) for i in random.integers(0, 60, copies)]
    where = {i: name for name, part in enumerate(parts(split_rows(rows))) for i in part}
    for members in exact_duplicates(rows):
        assert len({where[i] for i in members}) == 1
    for first, second in near_duplicates([r.text for r in rows]):
        assert where[first] == where[second]


def test_rows_of_a_group_stay_together() -> None:
    rows = [row(f"{WORDS[i % 18]} {i} {WORDS[i * 7 % 18]}", "x", i, group=f"g{i // 4}") for i in range(200)]
    where = {i: name for name, part in enumerate(parts(split_rows(rows))) for i in part}
    assert all(len({where[i] for i in range(start, start + 4)}) == 1 for start in range(0, 200, 4))


def test_augmented_rows_are_never_evaluated_on() -> None:
    rows = [
        row(f"{WORDS[i % 18]} {i} {WORDS[i * 7 % 18]}", "x", i, group=f"g{i // 2}", augmented=i % 2 == 1)
        for i in range(300)
    ]
    split = split_rows(rows)
    assert not any(rows[i].augmented for i in [*split.val, *split.test])
    evaluated = {rows[i].group for i in [*split.val, *split.test]}
    assert {rows[i].group for i in split.left_out} == evaluated
    assert all(rows[i].augmented for i in split.left_out)
    assert not evaluated & {rows[i].group for i in split.train}


def test_the_order_of_rows_changes_nothing() -> None:
    rows = made_up(120)
    random = np.random.default_rng(2)
    first = split_rows(rows)
    order = random.permutation(120)
    second = split_rows([rows[i] for i in order])
    for a, b in zip(parts(first), parts(second), strict=True):
        assert {rows[i].text for i in a} == {rows[order[i]].text for i in b}


def test_the_order_of_rows_in_groups_changes_nothing_either() -> None:
    rows = [row(f"{WORDS[i % 18]} {i} {WORDS[i * 7 % 18]}", f"l{i % 3}", i, group=f"g{i // 3}") for i in range(150)]
    random = np.random.default_rng(2)
    first = split_rows(rows)
    for _ in range(3):
        order = random.permutation(150)
        second = split_rows([rows[i] for i in order])
        for a, b in zip(parts(first), parts(second), strict=True):
            assert {rows[i].text for i in a} == {rows[order[i]].text for i in b}


@given(labels=st.integers(2, 60), size=st.integers(2, 3), seed=st.integers(1, 50))
def test_training_has_every_label(labels: int, size: int, seed: int) -> None:
    """Also where each label is one family, or has one row a language."""
    grouped = [
        row(f"{WORDS[n % 18]} {n} {i}", f"label {n}", n, group=f"g{n}") for n in range(labels) for i in range(size)
    ]
    spoken = [
        row(f"{WORDS[n % 18]} {n} {i} {WORDS[n // 18]}", f"label {n}", n, language=f"l{i}")
        for n in range(labels)
        for i in range(size)
    ]
    for rows in (grouped + made_up(60), spoken + made_up(60)):
        split = split_rows(rows, seed=seed, near=None)
        assert {rows[i].answers["label"] for i in split.train} == {r.answers["label"] for r in rows}


def test_rows_that_differ_in_their_features_only_are_no_duplicates() -> None:
    rows = [
        DataRow(f"f:{i}", "the same text", {"label": "xy"[i % 2]}, {"age": float(i * 37 % 101)}, "", "", False, {})
        for i in range(60)
    ]
    assert exact_duplicates(rows) == []
    assert len(split_rows(rows, near=None).test) > 2


def test_very_many_equal_texts_cost_no_more_than_one() -> None:
    texts = ["thank you very much indeed"] * 30_000 + ["play some jazz for me now"]
    assert near_duplicates(texts) == []


def test_another_seed_is_another_split() -> None:
    rows = made_up(120)
    assert split_rows(rows, seed=1) == split_rows(rows, seed=1)
    assert split_rows(rows, seed=1).test != split_rows(rows, seed=2).test


@pytest.mark.parametrize("shares", [(0, 0, 0), (-1, 1, 1), (1, 1)])
def test_senseless_shares_are_refused(shares: Any) -> None:
    with pytest.raises(InputError, match="give three numbers"):
        split_rows(made_up(20), shares)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="2 distinct rows are too few for a"):
        split_rows([row("a b c", "x", 1), row("d e f", "x", 2)])


def test_near_duplicates_are_pairs_that_really_are_alike() -> None:
    text = "I was charged twice for one order and nobody answers my letters"
    texts = [text, text.upper() + "!", text + " now", "play some jazz", ""]
    assert near_duplicates(texts, 0.8) == [(0, 2)]
    assert near_duplicates(texts, 0.99) == []
