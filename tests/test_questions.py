"""Every question that cannot be asked is one clear error that names the value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import Choice, InputError, Score, YesNo
from julia1.questions import MAX_OPTIONS, instruction_text

NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "at least two options, got 0"),
        ({}, "at least two options, got 0"),
        (["only"], "'only'"),
        (["a", "b", "a"], "the option 'a' stands twice"),
        (["a b", " a  b "], "the option 'a b' stands twice"),
        (["a\tb", "a\nb"], "the option 'a b' stands twice"),
        ({"a: b": None, "a": "b"}, "the option 'a: b' stands twice"),
        (["a", ""], "option '' is blank"),
        (["a", " \n"], "is blank"),
        ("ab", "not 'ab'"),
        (b"ab", "not b'ab'"),
        (5, "not 5"),
        (None, "not None"),
        ([1, 2], "got 1 (int): put it in quotes"),
        ([True, False], "got True (bool)"),
        (["a", None], "got None (NoneType)"),
        ({"a": None, 2: None}, "got 2 (int)"),
        ([b"a", b"b"], "b'a'"),
        (["a\x00", "b"], "option 'a\\x00' holds a NUL character at position 1"),
        (["a", "b\ud800"], "lone surrogate (U+D800)"),
        (["a", "b" * 500_001], "500,001 characters"),
        ({"a": 5, "b": None}, "option 'a' must be text, an object or a list, got 5 (int)"),
        ({"a": {"limit": NAN}, "b": None}, "nan at 'limit'"),
        ({"a": "x\x00", "b": None}, "NUL"),
        ({"a": {"x"}, "b": None}, "set"),
        ([f"option {i}" for i in range(MAX_OPTIONS + 1)], "at most 10,000 options, got 10,001"),
    ],
)  # fmt: skip
def test_choice_refuses(options: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Choice("Which?", options)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ([], "at least two levels, got 0"),
        (["only"], "at least two levels, got 1"),
        (["low", "high", "low"], "the level 'low' stands twice"),
        (["very low", "very  low "], "the level 'very low' stands twice"),
        (["low", ""], "level 1 is blank"),
        (["low", "\n"], "level 1 is blank"),
        (["low", {}], "level 1 is blank"),
        ("low high", "not str"),
        (b"low", "not bytes"),
        ({"low": 0, "high": 1}, "not dict"),
        ({"low", "high"}, "not set"),
        (5, "not int"),
        (None, "not NoneType"),
        ([1, 2], "level 0 must be text, an object or a list, got 1 (int)"),
        (["low", None], "level 1 must be text"),
        (["low", NAN], "level 1 must be text"),
        (["low", "\udfff"], "lone surrogate (U+DFFF)"),
        (["low", "x\x00"], "level 1 holds a NUL character"),
    ],
)
def test_score_refuses(levels: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Score("How much?", levels)
    assert words in str(caught.value)


@pytest.mark.parametrize("nothing", [None, "", "  ", {}, []])
def test_yes_no_needs_something_to_ask(nothing: Any) -> None:
    with pytest.raises(InputError, match="needs instructions, or a description"):
        YesNo(nothing)
    assert YesNo(nothing, true="it is late").option_texts() == ["no", "yes: it is late"]


@pytest.mark.parametrize("kind", [lambda x: Choice(x, ["a", "b"]), YesNo, lambda x: Score(x, ["a", "b"])])
@pytest.mark.parametrize(
    ("instructions", "words"),
    [
        (5, "instructions must be text"),
        (b"x", "instructions must be text"),
        ({"x": float("inf")}, "inf at 'x'"),
        ("a\x00", "instructions holds a NUL"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_instructions_that_cannot_be_read_are_refused(kind: Any, instructions: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        kind(instructions)
    assert words in str(caught.value)


@pytest.mark.parametrize("part", ["true", "false"])
def test_yes_no_refuses_a_description_that_cannot_be_read(part: str) -> None:
    with pytest.raises(InputError, match=f"{part} must be text"):
        YesNo("Late?", **{part: 5})


def test_option_texts_are_what_the_model_reads() -> None:
    choice = Choice("Which?", {"billing": "charges", "shipping": None, "other": " ", "both": {"is": ["x", 1]}})
    assert choice.option_texts() == ["billing: charges", "shipping", "other", "both: is.0: x\nis.1: 1"]
    assert YesNo("Late?").option_texts() == ["no", "yes: Late?"]
    assert YesNo("Late?", true="past noon", false="before").option_texts() == ["no: before", "yes: Late? past noon"]
    assert Score("How?", ["calm", {"mood": "angry"}]).option_texts() == ["calm", "mood: angry"]


def test_options_may_come_from_any_iterable() -> None:
    assert list(Choice(None, (name for name in "ab")).options) == ["a", "b"]
    assert Choice(None, ["a", "b"]) == Choice(None, {"a": None, "b": None})


def test_instructions_may_be_missing_or_data() -> None:
    assert instruction_text(Choice(None, ["a", "b"])) == ""
    assert instruction_text(Choice({"ask": "Which?"}, ["a", "b"])) == "ask: Which?"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1), max_size=6))
def test_a_choice_keeps_its_names_or_says_why_not(names: list[str]) -> None:
    folded = [" ".join(name.split()) for name in names]
    if len(names) >= 2 and all(folded) and len(set(folded)) == len(folded):
        assert list(Choice("Which?", names).options) == names
    else:
        with pytest.raises(InputError):
            Choice("Which?", names)
