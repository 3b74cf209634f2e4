"""Cleaning takes markup out and leaves what carries meaning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1.cli.app import main
from julia1.train.data.cleaning import clean_text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("<p>Hello <b>world</b></p>", "Hello world"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<div>one</div><div>two</div>", "one\ntwo"),
        ("<style>p { color: red }</style>Text<script>alert(1)</script>", "Text"),
        ("a <!-- hidden --> b", "a b"),
        ('<a href="x?a=1&b=2">link</a> &amp; more', "link & more"),
        ("Tom &amp; Jerry &lt;3", "Tom & Jerry <3"),
        ("price < 5 and size > 3", "price < 5 and size > 3"),
        ("I <3 you", "I <3 you"),
        ("mail <email> or call <phone>", "mail <email> or call <phone>"),
        ("<b>mail</b> <email> now", "mail <email> now"),
        ("if x<y then z", "if x<y then z"),
        ("so\u200b\u00adft\ufeff", "soft"),
        ("a\u00a0\u3000 b\t\tc", "a b c"),
        ("one  \r\n\r\n  two\rthree", "one\ntwo\nthree"),
        ("!!! ??? ... :-) 😀👩‍👩‍👧 100% #tag @me $5", "!!! ??? ... :-) 😀👩‍👩‍👧 100% #tag @me $5"),
        ("می‌خواهم", "می‌خواهم"),
        ("How do I use the <head> tag in my page?", "How do I use the <head> tag in my page?"),
        ("<p>if a <b and c> d</p>", "if a <b and c> d"),
        ("see x.org/?a=1&copy=2", "see x.org/?a=1&copy=2"),
        ("<input disabled>on", "on"),
        ("<template>x", "<template>x"),
        ("", ""),
        (" <p> </p> ", ""),
    ],
)
def test_what_goes_and_what_stays(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<&"), max_size=60))
def test_without_markup_only_blanks_and_invisible_characters_change(text: str) -> None:
    kept = [c for c in clean_text(text) if not c.isspace()]
    assert kept == [c for c in text if not c.isspace() and c not in "\u00ad\u200b\u2060\ufeff"]


@given(st.text(alphabet="ab<>/& ;p\n", max_size=40))
def test_cleaned_text_has_no_outer_or_repeated_blanks(text: str) -> None:
    cleaned = clean_text(text)
    assert cleaned == cleaned.strip()
    assert "  " not in cleaned
    assert "\n\n" not in cleaned


def test_rows_without_a_known_text_are_repeated_only_when_all_of_them_is(tmp_path: Path) -> None:
    rows = [{"body": f"text {i}", "label": "x", "age": 1.0} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in [*rows, rows[0]]))
    command = ["data", "clean", str(tmp_path / "rows.jsonl"), "--features", "age", "-o", str(tmp_path / "out.jsonl")]
    assert main(command) == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 4
    assert main(command) == 2, "it is there already"
    assert main([*command[:-1], str(tmp_path / "rows.jsonl"), "--force"]) == 2, "the source itself"
