"""Rows made more even: what is left out, what stands several times, and that none of it leaks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("datasketch")

from julia1 import InputError
from julia1.cli.app import main
from julia1.train.data.balancing import MOST_REPEATS, Balanced, Target, balance
from julia1.train.data.rows import DataSet, find_heads, read_rows
from julia1.train.data.splitting import split_rows
from julia1.train.parts import make_parts

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def rows(**counts: int) -> list[dict[str, Any]]:
    """``billing_en=5`` are five rows of a label in a language, none like another."""
    found = []
    for name, number in counts.items():
        label, _, language = name.partition("_")
        for i in range(number):
            words = " ".join(NUMBERS[int(digit)] for digit in f"{i:04d}")
            found.append({"text": f"{label} {language} {words}", "label": label, "lang": language})
    return found


def data_of(folder: Path, data: list[dict[str, Any]], name: str = "rows.jsonl") -> DataSet:
    (folder / name).write_text("\n".join(map(json.dumps, data)), encoding="utf-8")
    return read_rows([folder / name])


def test_frequent_rows_are_left_out_and_rare_ones_repeated(tmp_path: Path) -> None:
    data = data_of(tmp_path, rows(a_en=50, b_en=20, c_en=3))
    found = balance(data, Target(most=30, least=10))
    assert (found.before, found.after) == ({"a": 50, "b": 20, "c": 3}, {"a": 30, "b": 20, "c": 10})
    assert (found.left_out, found.repeated, found.short) == (20, 7, [])
    assert Counter(row["label"] for row in found.rows) == found.after
    assert Counter(Counter(row["text"] for row in found.rows if row["label"] == "c").values()) == {3: 2, 4: 1}


@pytest.mark.parametrize(
    ("by", "after"),
    [
        ("label", {"a": 12, "b": 6}),
        ("language", {"en": 12, "de": 4}),
        ("both", {"a / en": 12, "b / de": 4, "b / en": 2}),
    ],
)
def test_classes_are_labels_languages_or_both(tmp_path: Path, by: Any, after: dict[str, int]) -> None:
    data = data_of(tmp_path, rows(a_en=40, b_de=4, b_en=2))
    assert balance(data, Target(most=12), by=by).after == after


def test_a_power_moves_shares_and_keeps_the_total(tmp_path: Path) -> None:
    data = data_of(tmp_path, rows(a_en=64, b_en=16, c_en=4))
    assert balance(data, Target(power=1.0)).after == {"a": 64, "b": 16, "c": 4}
    assert balance(data, Target(power=0.0)).after == {"a": 28, "b": 28, "c": 28}
    assert balance(data, Target(power=0.5)).after == {"a": 48, "b": 24, "c": 12}


def test_a_row_is_repeated_so_often_at_most(tmp_path: Path) -> None:
    found = balance(data_of(tmp_path, rows(a_en=40, b_en=2)), Target(least=40))
    assert found.after == {"a": 40, "b": 2 * MOST_REPEATS}
    assert found.short == ["b"]


def test_repeated_rows_are_never_evaluated_on(tmp_path: Path) -> None:
    found = balance(data_of(tmp_path, rows(a_en=60, b_en=20)), Target(least=60))
    again = data_of(tmp_path, found.rows, "even.jsonl")
    split = split_rows(again.rows, (2, 1, 1))
    evaluated = [again.rows[i] for i in (*split.val, *split.test)]
    assert any(row.answers["label"] == "b" for row in evaluated)
    assert not any(row.augmented for row in evaluated)
    assert not {row.text for row in evaluated} & {again.rows[i].text for i in split.train}
    assert split.left_out, "repetitions of what is evaluated on"
    (tmp_path / "test.jsonl").write_text((tmp_path / "even.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    parts = make_parts(data_of(tmp_path, rows(a_en=60, b_en=20, a_de=9)), None, read_rows([tmp_path / "even.jsonl"]), 1)
    assert len(parts.test) == 80, "each once"


def test_groups_stay_and_what_is_left_out_does_not_depend_on_the_order(tmp_path: Path) -> None:
    data = [{**row, "group": f"g{i}", "subset": "s"} for i, row in enumerate(rows(a_en=30, b_en=3))]
    found = balance(data_of(tmp_path, data), Target(most=10, least=6))
    assert {row["group"] for row in found.rows} <= {row["group"] for row in data}
    other = balance(data_of(tmp_path, data[::-1]), Target(most=10, least=6))
    assert sorted(row["text"] for row in other.rows) == sorted(row["text"] for row in found.rows)
    seeded = balance(data_of(tmp_path, data), Target(most=10, least=6), seed=2)
    assert sorted(row["text"] for row in seeded.rows) != sorted(row["text"] for row in found.rows)


def test_augmented_rows_are_left_out_first(tmp_path: Path) -> None:
    data = [{**row, "augmented": i < 20} for i, row in enumerate(rows(a_en=30, b_en=5))]
    found = balance(data_of(tmp_path, data), Target(most=12))
    assert sum(bool(row["augmented"]) for row in found.rows if row["label"] == "a") == 2


def test_a_row_of_several_labels_counts_for_its_rarest(tmp_path: Path) -> None:
    data = [{"text": f"t {w}", "labels": ["big", "rare"] if i < 2 else ["big"]} for i, w in enumerate(NUMBERS)]
    found = balance(data_of(tmp_path, [*data, {"text": "no", "labels": []}]), Target(most=3))
    assert found.before == {"big": 8, "rare": 2, "(none)": 1}
    assert found.after == {"big": 3, "rare": 2, "(none)": 1}


@pytest.mark.parametrize(
    ("answers", "classes"),
    [
        ([True, False, True], {"yes": 2, "no": 1}),
        ([1, 2, 2], {"2": 2, "1": 1}),
        ([{"x": 0.9, "y": 0.1}, {"x": 0.2, "y": 0.8}, {"y": 1}], {"y": 2, "x": 1}),
        ([None, "x", "x"], {"x": 2, "(none)": 1}),
    ],
)
def test_answers_of_every_type_have_classes(tmp_path: Path, answers: list[Any], classes: dict[str, int]) -> None:
    data = [{"text": f"t {i}", "answers": {"q": answer, "other": "z"}} for i, answer in enumerate(answers)]
    assert balance(data_of(tmp_path, data), Target(most=9), question="q").before == classes


@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    most=st.integers(1, 15),
    least=st.integers(1, 15),
)
def test_sizes_are_between_least_and_most(counts: list[int], most: int, least: int) -> None:
    target = Target(most=max(most, least), least=least)
    sizes = target.sizes({str(i): number for i, number in enumerate(counts)})
    for i, number in enumerate(counts):
        assert sizes[str(i)] == min(max(number, least), max(most, least))


@pytest.mark.parametrize(
    ("data", "target", "how", "message"),
    [
        (rows(a_en=3), Target(), {}, "give --most, --least or --power"),
        (rows(a_en=3), Target(most=2, least=3), {}, "--most 2 is less than --least 3"),
        (rows(a_en=3), Target(most=2, power=0.5), {}, "--power stands alone"),
        (rows(a_en=3), Target(most=2), {"question": "team"}, "no row answers 'team'; the questions are: label"),
        (
            [{"text": "a", "answers": {"q": "x", "r": "y"}}],
            Target(most=2),
            {},
            "several questions, q, r: name one with --question",
        ),
        ([{"text": f"t {i}", "score": i} for i in range(20)], Target(most=2), {}, "'score' has no classes"),
        ([{"text": "a", "candidates": ["b", "c"], "best": 0}], Target(most=2), {}, "'best' has no classes"),
    ],
)
def test_what_cannot_be_balanced_is_named(
    tmp_path: Path, data: list[dict[str, Any]], target: Target, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        balance(data_of(tmp_path, data), target, **how)


class TestCommand:
    def test_a_table_tells_before_and_after(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data_of(tmp_path, rows(a_en=30, b_en=1))
        command = ["data", "balance", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "even.jsonl")]
        assert main([*command, "--most", "20", "--least", "12"]) == 0
        out = capsys.readouterr().out
        assert f"{tmp_path / 'even.jsonl'}: 30 rows of 31; 10 left out, 9 repetitions" in out
        assert ["b", "1", "10"] in [line.split() for line in out.splitlines()]
        assert "1 of the classes stay smaller than wanted, since a row stands 10 times at most: b" in out
        assert main([*command, "--power", "0.5", "--json"]) == 2
        assert "is there already: name another file, or write over it with --force" in capsys.readouterr().err
        assert main([*command, "--power", "0.5", "--json", "--force"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["classes"][0] == {"class": "a", "before": 30, "after": 26}
        assert find_heads(read_rows([tmp_path / "even.jsonl"]).rows)["label"].labels == ("a", "b")

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["-o", "{}/rows.jsonl", "--most", "2"], "would be lost: name another file"),
            (["-o", "{}/even.csv", "--most", "2"], "name the file .jsonl"),
            (["-o", "{}/even.jsonl"], "give --most, --least or --power"),
            (["-o", "{}/even.jsonl", "--power", "2"], "not a number from 0 to 1"),
            (["-o", "{}/even.jsonl", "--by", "team"], "invalid choice"),
        ],
    )
    def test_bad_use_is_one_line_and_writes_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
    ) -> None:
        data_of(tmp_path, rows(a_en=3, b_en=3))
        before = (tmp_path / "rows.jsonl").read_bytes()
        assert main(["data", "balance", str(tmp_path / "rows.jsonl"), *(f.format(tmp_path) for f in flags)]) == 2
        err = capsys.readouterr().err
        assert message in err and len(err.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
        assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_the_result_is_plain(tmp_path: Path) -> None:
    found = balance(data_of(tmp_path, rows(a_en=2, b_en=2)), Target(most=5))
    assert found == Balanced(rows(a_en=2, b_en=2), {"a": 2, "b": 2}, {"a": 2, "b": 2}, 0, 0, [])
