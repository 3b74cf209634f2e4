"""Reading labelled sets, and keeping evaluation rows out of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import InputError
from julia1.train.sources import LabelledSet, read_json_lines, read_set, text_key, without_held_out


def test_a_set_has_its_rows_and_labels(data: Path) -> None:
    both = read_set(data / "intents", ["train", "val"])
    assert both.name == "intents"
    assert len(both.rows) == 6 * 11 * 2 * 3
    assert both.labels["alarm set"] == "set an alarm"
    assert both.labels_zh["alarm set"] == "设置闹钟"
    assert read_set(data / "pairs", []).rows == []
    assert read_set(data / "pairs", []).labels_zh == {}


def test_held_out_languages_are_not_read(data: Path) -> None:
    rows = read_set(data / "intents", ["train"], ["it", "zh"]).rows
    assert {row["lang"] for row in rows} == {"en"}


def test_a_folder_without_meta_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a labelled set: it has no meta\.json"):
        read_set(tmp_path, ["train"])


def test_a_missing_split_is_named(data: Path) -> None:
    with pytest.raises(InputError, match=r"pairs.none\.jsonl does not exist"):
        read_set(data / "pairs", ["none"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "rows.jsonl:3: not JSON"),
        ('{"text": "x"} {"text": "y"}', "rows.jsonl:3: not JSON"),
        ("[1, 2]", "rows.jsonl:3: a row must be a JSON object, got list"),
        ('"text"', "rows.jsonl:3: a row must be a JSON object, got str"),
        ("null", "rows.jsonl:3: a row must be a JSON object, got NoneType"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": "fine"}}\n\n{line}\n{{"text": "fine"}}\n', encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_json_lines(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1e"])
def test_line_separators_inside_a_string_end_no_row(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "rows.jsonl"
    text = f"one{separator}two"
    line = json.dumps({"text": text}, ensure_ascii=False) if separator > "\x1f" else json.dumps({"text": text})
    path.write_text(f"{line}\n{line}\r\n", encoding="utf-8", newline="")
    assert read_json_lines(path) == [{"text": text}] * 2


@given(st.text(max_size=30))
def test_equal_keys_ignore_case_blanks_and_punctuation(text: str) -> None:
    assert text_key(f"  {text} !") == text_key(text)
    assert text_key(text_key(text)) == text_key(text)


def test_keys_of_other_texts_differ() -> None:
    assert text_key("Set an ALARM, for 3!") == text_key("set an alarm for 3")
    assert text_key("设置闹钟3点") != text_key("设置闹钟4点")


def test_held_out_texts_go_with_their_translations() -> None:
    rows = [
        {"text": "Wake me up!", "group": "1", "lang": "en"},
        {"text": "叫醒我", "group": "1", "lang": "zh"},
        {"text": "叫醒我", "group": "2", "lang": "zh"},
        {"text": "other", "group": "3", "lang": "en"},
        {"text": "no group"},
        {"text": "wake me up", "subset": "b"},
        {"text": "same group number in another part", "group": "1", "subset": "b"},
    ]
    kept = without_held_out(LabelledSet("x", {}, rows), frozenset({text_key("wake me up")})).rows
    assert [row["text"] for row in kept] == ["叫醒我", "other", "no group", "same group number in another part"]
    assert kept[0]["group"] == "2"
