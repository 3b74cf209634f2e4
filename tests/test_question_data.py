"""Questions as plain data and back; what is refused is tested where files are read, in tests/cli."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import Choice, InputError, Question, Score, YesNo
from julia1.question_data import question_from_data, question_to_data

WORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), min_size=1, max_size=8).filter(
    lambda text: bool(text.strip())
)
NAMES = st.lists(WORDS, min_size=2, max_size=5, unique_by=lambda text: " ".join(text.split()))
QUESTIONS = st.one_of(
    st.builds(Choice, st.none() | WORDS, NAMES),
    st.builds(lambda names, about: Choice("Which?", {name: {"about": about} for name in names}), NAMES, WORDS),
    st.builds(YesNo, WORDS, st.none() | WORDS, st.none() | st.lists(WORDS, min_size=1, max_size=2)),
    st.builds(Score, st.none() | WORDS, NAMES),
)


@given(question=QUESTIONS)
def test_a_question_is_read_as_it_was(question: Question) -> None:
    data = json.loads(json.dumps(question_to_data(question)))
    found = question_from_data(data, "here")
    assert found == question and found.option_texts() == question.option_texts()


def test_an_error_says_where() -> None:
    with pytest.raises(InputError, match="here: unknown type 'choise', did you mean 'choice'"):
        question_from_data({"type": "choise"}, "here")
