"""Rendering of content to text, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import InputError
from julia1.content import MAX_CHARACTERS, MAX_DEPTH, render

SENTENCE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | SENTENCE
DATA = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SENTENCE, inner, max_size=3))


def nested(levels: int, kind: str) -> Any:
    data: Any = "end"
    for _ in range(levels):
        data = [data] if kind == "list" else {"k": data}
    return data


def leaves(data: Any) -> int:
    if isinstance(data, dict):
        return sum(leaves(item) for item in data.values())
    return sum(leaves(item) for item in data) if isinstance(data, list) else 1


@pytest.mark.parametrize("text", ["", "plain", " kept \n as it is ", "我", "😀", "<mask> </s> [SEP]"])
def test_text_stands_as_it_is(text: str) -> None:
    assert render(text) == text


def test_data_becomes_one_line_a_leaf_in_its_own_order() -> None:
    state = {"order": {"items": ["socks", "hat"], "paid": True, "note": None}, "total": 12.5, "count": -3}
    assert render(state).split("\n") == [
        "order.items.0: socks",
        "order.items.1: hat",
        "order.paid: true",
        "order.note: none",
        "total: 12.5",
        "count: -3",
    ]
    assert render(("a", [1])) == "0: a\n1.0: 1"
    assert render({}) == render([]) == ""


def test_numpy_floats_read_as_plain_numbers() -> None:
    assert render({"price": np.float64(1.5)}) == "price: 1.5"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "got None (NoneType)"),
        (5, "got 5 (int)"),
        (1.5, "got 1.5 (float)"),
        (True, "got True (bool)"),
        (b"bytes", "got b'bytes' (bytes)"),
        (bytearray(b"x"), "(bytearray)"),
        ({"a", "b"}, "(set)"),
        (frozenset(), "(frozenset)"),
        ((x for x in "ab"), "(generator)"),
        (object, "(type)"),
        ({"a": {"b": float("nan")}}, "nan at 'a.b'"),
        ([1.0, float("inf")], "inf at '1'"),
        ([float("-inf")], "-inf at '0'"),
        ({"a": np.float64("nan")}, "at 'a'"),
        ({"a": b"x"}, "b'x' (bytes) at 'a'"),
        ({"a": [{1}]}, "{1} (set) at 'a.0'"),
        ({"a": 1j}, "(complex)"),
        ({"a": Decimal("1")}, "(Decimal)"),
        ({"a": np.int64(1)}, "(int64)"),
        ({1: "a"}, "the key 1 (int): keys must be text"),
        ({None: "a"}, "the key None"),
        ({"a": {b"k": 1}}, "the key b'k'"),
        ({"a": 10**5000}, "more than 4,000 digits at 'a'"),
        ("a\x00b", "NUL character at position 1"),
        ({"a": "\x00"}, "NUL character at position 0"),
        ({"k\x00": 1}, "NUL"),
        ("a\ud83d", "lone surrogate (U+D83D) at position 1"),
        ({"a": ["\udc00"]}, "lone surrogate (U+DC00)"),
        ({"\ud800": 1}, "lone surrogate"),
        ("x" * (MAX_CHARACTERS + 1), "500,001 characters"),
        ([["x" * 300_000], ["y" * 300_000]], "characters"),
        ({"a": "x" * 1_000_000}, "1,000,000 characters"),
        (b"x" * 1_000_000, "(bytes)"),
    ],
)  # fmt: skip
def test_content_that_cannot_be_read_is_refused(content: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        render(content, "the state")
    message = str(caught.value)
    assert words in message
    assert "the state" in message
    assert len(message) < 300


@pytest.mark.parametrize("kind", ["list", "object"])
def test_nesting_has_a_limit(kind: str) -> None:
    assert render(nested(MAX_DEPTH, kind)).endswith(": end")
    for levels in (MAX_DEPTH + 1, 500):
        with pytest.raises(InputError, match="nested deeper than 32 levels"):
            render(nested(levels, kind))


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InputError, match="nested deeper"):
        render(loop)


def test_the_longest_text_is_taken() -> None:
    assert len(render("x" * MAX_CHARACTERS)) == MAX_CHARACTERS


@given(st.lists(DATA, max_size=4) | st.dictionaries(SENTENCE, DATA, max_size=4))
def test_every_leaf_is_read_once_and_nothing_is_changed(data: Any) -> None:
    before = json.dumps(data)
    text = render(data)
    assert json.dumps(data) == before
    own_breaks = before.count("\\n")
    lines = text.split("\n") if leaves(data) else []
    assert leaves(data) <= len(lines) <= leaves(data) * (1 + own_breaks * 6)
    assert text == render(json.loads(before))


def test_an_object_that_holds_itself_many_times_is_refused_before_it_fills_the_memory() -> None:
    state: list[object] = ["a text of some length"]
    for _ in range(25):
        state = [state, state]
    with pytest.raises(InputError, match="longer than 500,000 characters as text"):
        render(state)
