"""The laws of the options encoding, on random states and questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from julia1 import Choice, InputError, Score, TooLongError, YesNo
from julia1.questions import Question
from julia1.text import Limits, OptionsEncoding, QuestionTokens, Row, TextTokenizer
from julia1.text.options import INPUT_NAMES, PADDING, TRUNK

WORD = st.sampled_from(
    ["billing", "refund", "late", "hotel", "x", "我", "42", "<mask>", "</s>", "[SEP]", "Zebra", "a-b"]
)
PHRASE = st.lists(WORD, min_size=1, max_size=2).map(" ".join)
STATE = st.lists(WORD, min_size=1, max_size=40).map(" ".join) | st.dictionaries(PHRASE, PHRASE, min_size=1, max_size=3)
NAMES = st.lists(PHRASE, min_size=2, max_size=8, unique=True)
QUESTION = st.one_of(
    st.builds(Choice, st.none() | PHRASE, NAMES),
    st.builds(Score, PHRASE, NAMES),
    st.builds(YesNo, PHRASE, st.none() | PHRASE, st.none() | PHRASE),
)
QUESTIONS = st.lists(QUESTION, min_size=1, max_size=5).map(lambda found: {f"q{i}": q for i, q in enumerate(found)})

Seen = tuple[tuple[int, int], ...]
"""What a token sees: (piece, position), in order."""


def visible(row: Row) -> npt.NDArray[np.bool_]:
    """Who sees whom, said again from the documentation."""
    a, b = np.indices((len(row), len(row)))
    viewer, seen = row.leaves[a], row.leaves[b]
    stem = (seen == 0) & (viewer >= 0) & ((row.branches[b] == TRUNK) | (row.branches[a] == row.branches[b]))
    text = (seen < 0) & (abs(viewer) == -seen)
    sees: npt.NDArray[np.bool_] = stem | text | ((seen > 0) & (viewer == seen))
    return sees


def views(rows: list[Row]) -> dict[tuple[int, int], tuple[Seen, Seen]]:
    """For each (question, option) of all rows, what its marker and what every token of its text sees."""
    found: dict[tuple[int, int], tuple[Seen, Seen]] = {}
    for row in rows:
        sees = visible(row)

        def seen_by(token: int, row: Row = row, sees: npt.NDArray[np.bool_] = sees) -> Seen:
            seen = np.flatnonzero(sees[token])
            return tuple(zip(row.input_ids[seen].tolist(), row.position_ids[seen].tolist(), strict=True))

        for marker, slot in zip(row.markers, row.slots, strict=True):
            assert slot not in found
            of_text = {seen_by(token) for token in np.flatnonzero(row.leaves == -row.leaves[marker])}
            assert len(of_text) <= 1
            found[slot] = seen_by(marker), of_text.pop() if of_text else ()
    return found


def view_of(trunk: list[int], question: QuestionTokens, option: int) -> tuple[Seen, Seen]:
    """The marker stands after trunk and branch; the text is read as if it stood alone."""
    stem = [*trunk, *question.branch]
    mask, *text = question.leaves[option]
    alone = tuple((token, position) for position, token in enumerate(text))
    return (*((token, position) for position, token in enumerate(stem)), (mask, len(stem)), *alone), alone


def built(
    encoding: OptionsEncoding, state: Any, questions: dict[str, Question]
) -> tuple[list[int], list[QuestionTokens], list[Row]]:
    ((trunk, _),) = encoding.trunks([state])
    tokens = [encoding.question_tokens(name, question) for name, question in questions.items()]
    return trunk, tokens, encoding.rows(trunk, tokens)


@given(state=STATE, questions=QUESTIONS)
def test_a_marker_sees_trunk_branch_and_its_text_and_the_text_itself_only(
    encoding: OptionsEncoding, state: Any, questions: dict[str, Question]
) -> None:
    trunk, tokens, rows = built(encoding, state, questions)
    expected = {
        (i, j): view_of(trunk, question, j) for i, question in enumerate(tokens) for j in range(len(question.leaves))
    }
    assert views(rows) == expected


@given(state=STATE, questions=QUESTIONS)
def test_nothing_sees_a_sibling(encoding: OptionsEncoding, state: Any, questions: dict[str, Question]) -> None:
    for row in built(encoding, state, questions)[2]:
        sees = visible(row)
        for a in range(len(row)):
            for b in np.flatnonzero(sees[a]):
                assert abs(row.leaves[b]) in (0, abs(row.leaves[a]))
                assert row.branches[b] in (TRUNK, row.branches[a])
        trunk = row.branches == TRUNK
        assert not sees[trunk][:, ~trunk].any()
        assert sees[row.leaves >= 0][:, trunk].all()
        assert sees.diagonal().all()


@given(state=STATE, questions=QUESTIONS)
def test_siblings_take_the_same_positions(
    encoding: OptionsEncoding, state: Any, questions: dict[str, Question]
) -> None:
    trunk, tokens, rows = built(encoding, state, questions)
    for row in rows:
        for branch in range(1, row.branches.max() + 1):
            of_branch = row.position_ids[(row.branches == branch) & (row.leaves == 0)]
            assert of_branch[0] == len(trunk)
            for leaf in row.leaves[(row.branches == branch) & (row.leaves > 0)]:
                assert row.position_ids[row.leaves == leaf].tolist() == [of_branch[-1] + 1]
                of_text = row.position_ids[row.leaves == -leaf]
                assert of_text.tolist() == list(range(len(of_text)))
        limits = encoding.limits
        assert row.position_ids.max() < limits.state_tokens + limits.question_tokens + limits.option_tokens
    assert len(tokens) == len(questions)


@given(state=STATE, questions=QUESTIONS, room=st.integers(0, 200))
def test_spreading_over_passes_changes_nothing(
    encoding: OptionsEncoding, state: Any, questions: dict[str, Question], room: int
) -> None:
    trunk, tokens, rows = built(encoding, state, questions)
    limits = Limits(48, 24, 24, 96 + room)
    spread = OptionsEncoding(encoding.tokenizer, limits).rows(trunk, tokens)
    assert views(spread) == views(rows)
    assert all(len(row) <= limits.pass_tokens for row in spread)
    assert [slot for row in spread for slot in row.slots] == [slot for row in rows for slot in row.slots]


@given(state=STATE, questions=QUESTIONS)
def test_no_pass_is_opened_before_the_last_one_is_full(
    encoding: OptionsEncoding, state: Any, questions: dict[str, Question]
) -> None:
    trunk, tokens, rows = built(encoding, state, questions)
    for row, following in pairwise(rows):
        question, option = following.slots[0]
        same_branch = row.slots[-1][0] == question
        need = len(tokens[question].leaves[option]) + (0 if same_branch else len(tokens[question].branch))
        assert len(row) + need > encoding.limits.pass_tokens
        assert following.input_ids[: len(trunk)].tolist() == trunk


@given(state=STATE, questions=QUESTIONS)
def test_special_tokens_stand_only_where_the_encoding_puts_them(
    any_tokenizer: TextTokenizer, state: Any, questions: dict[str, Question]
) -> None:
    encoding = OptionsEncoding(any_tokenizer, Limits(48, 40, 60, 200))
    trunk, _, rows = built(encoding, state, questions)
    for row in rows:
        assert np.flatnonzero(row.input_ids == any_tokenizer.cls).tolist() == [0, *(row.markers + 1)]
        assert np.flatnonzero(row.input_ids == any_tokenizer.mask).tolist() == row.markers.tolist()
        assert row.leaves[row.markers].tolist() == list(range(1, len(row.slots) + 1))
        assert (row.leaves > 0).sum() == len(row.markers)
        ends = np.flatnonzero(row.input_ids == any_tokenizer.sep)
        assert len(ends) == 1 + row.branches.max()
        assert ends[0] == len(trunk) - 1
        assert (row.leaves[ends] == 0).all()
        assert any_tokenizer.pad not in row.input_ids


@given(state=STATE, questions=QUESTIONS, further=QUESTIONS)
def test_what_is_read_of_a_state_does_not_depend_on_the_questions(
    encoding: OptionsEncoding, state: Any, questions: dict[str, Question], further: dict[str, Question]
) -> None:
    more = {**questions, **{f"further {name}": question for name, question in further.items()}}
    rows, reading = encoding.encode(state, questions)
    more_rows, more_reading = encoding.encode(state, more)
    assert reading == more_reading
    mine = views(rows)
    theirs = views(more_rows)
    assert {slot: theirs[slot] for slot in mine} == mine


@given(state=STATE, names=NAMES, random=st.randoms(use_true_random=False))
def test_the_order_of_options_only_names_the_slots_anew(
    encoding: OptionsEncoding, state: Any, names: list[str], random: Any
) -> None:
    shuffled = random.sample(names, len(names))
    first = views(encoding.encode(state, {"q": Choice("Which?", names)})[0])
    second = views(encoding.encode(state, {"q": Choice("Which?", shuffled)})[0])
    for option, name in enumerate(names):
        assert first[0, option] == second[0, shuffled.index(name)]


@given(state=STATE, questions=QUESTIONS, random=st.randoms(use_true_random=False))
def test_a_reordered_request_is_the_same_rows_to_the_last_token(
    encoding: OptionsEncoding, state: Any, questions: dict[str, Question], random: Any
) -> None:
    def shuffled(question: Question) -> Question:
        if isinstance(question, YesNo):
            return question
        texts = question.option_texts()
        parts = random.sample(texts, len(texts))
        return (
            Choice(question.instructions, parts)
            if isinstance(question, Choice)
            else Score(question.instructions, parts)
        )

    names = random.sample(list(questions), len(questions))
    first = encoding.encode(state, questions)[0]
    second = encoding.encode(state, {name: shuffled(questions[name]) for name in names})[0]
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for name in INPUT_NAMES:
            assert getattr(one, name).tolist() == getattr(other, name).tolist()


@given(requests=st.lists(st.tuples(STATE, QUESTIONS), min_size=1, max_size=4))
def test_a_batch_holds_its_rows_and_padding(
    encoding: OptionsEncoding, requests: list[tuple[Any, dict[str, Question]]]
) -> None:
    rows = [row for state, questions in requests for row in encoding.encode(state, questions)[0]]
    batch = encoding.collate(rows)
    feeds = batch.feeds()
    assert tuple(feeds) == INPUT_NAMES
    assert {array.dtype for array in feeds.values()} == {np.dtype(np.int64)}
    longest, most = max(map(len, rows)), max(len(row.markers) for row in rows)
    assert {name: array.shape for name, array in feeds.items()} == {
        **dict.fromkeys(INPUT_NAMES, (len(rows), longest)),
        "markers": (len(rows), most),
    }
    for i, row in enumerate(rows):
        for name in INPUT_NAMES[:-1]:
            assert feeds[name][i, : len(row)].tolist() == getattr(row, name).tolist()
        assert (batch.branches[i, len(row) :] == PADDING).all()
        assert (batch.input_ids[i, len(row) :] == encoding.tokenizer.pad).all()
        assert batch.markers[i, : len(row.markers)].tolist() == row.markers.tolist()
        assert (batch.markers[i, len(row.markers) :] == 0).all()


@given(states=st.lists(STATE, min_size=1, max_size=12))
def test_states_read_the_same_alone_and_together(encoding: OptionsEncoding, states: list[Any]) -> None:
    assert encoding.trunks(states) == [encoding.trunks([state])[0] for state in states]


def test_a_long_state_is_cut_and_says_so(encoding: OptionsEncoding) -> None:
    room = encoding.limits.state_tokens - 2
    for words, read in ((room, room), (room + 1, room), (room * 3, room)):
        ((trunk, reading),) = encoding.trunks([" ".join(["the"] * words)])
        assert (reading.tokens, reading.tokens_read, reading.truncated) == (words, read, words > read)
        assert len(trunk) == read + 2
        assert (trunk[0], trunk[-1]) == (encoding.tokenizer.cls, encoding.tokenizer.sep)


def test_strict_reading_raises_instead_of_cutting(encoding: OptionsEncoding) -> None:
    room = encoding.limits.state_tokens - 2
    encoding.trunks([" ".join(["the"] * room)], strict=True)
    with pytest.raises(TooLongError, match=f"the state has {room + 1} tokens and the model reads {room}"):
        encoding.trunks([" ".join(["the"] * (room + 1))], strict=True)
    with pytest.raises(TooLongError):
        encoding.encode("the " * 1000, {"q": YesNo("Late?")}, strict=True)


@given(number=st.integers(1, 60))
def test_questions_and_options_over_their_budget_are_errors(encoding: OptionsEncoding, number: int) -> None:
    text = " ".join(["the"] * number)
    limits = encoding.limits
    with_end, with_markers = number + 1, number + 2  # [SEP]; [MASK] and [CLS]
    questions: list[tuple[Question, int, int, str]] = [
        (YesNo(text), with_end, limits.question_tokens, "the instructions of question 'team'"),
        (Choice("Which?", ["a", text]), with_markers, limits.option_tokens, "an option of question 'team'"),
        (Score("How?", ["a", text]), with_markers, limits.option_tokens, "an option of question 'team'"),
    ]
    for question, tokens, limit, words in questions:
        if tokens <= limit:
            encoding.question_tokens("team", question)
            continue
        with pytest.raises(TooLongError) as caught:
            encoding.question_tokens("team", question)
        assert words in str(caught.value)
        assert f"has {tokens} tokens, {limit} fit" in str(caught.value)


def test_a_question_without_instructions_has_a_branch_of_its_own(encoding: OptionsEncoding) -> None:
    tokens = encoding.question_tokens("q", Choice(None, ["a", "b"]))
    assert tokens.branch[-1] == encoding.tokenizer.sep
    assert tokens == encoding.question_tokens("q", Choice("", ["a", "b"]))


def test_yes_no_puts_no_first(encoding: OptionsEncoding) -> None:
    no, yes = encoding.question_tokens("q", YesNo("Late?")).leaves
    assert [no, yes] == [
        [encoding.tokenizer.mask, encoding.tokenizer.cls, *ids] for ids in encoding.tokenizer.ids(["no", "yes: Late?"])
    ]


@pytest.mark.parametrize("state", ["", "  \n", {}, [], {"a": {}}])
def test_an_empty_state_is_refused(encoding: OptionsEncoding, state: Any) -> None:
    with pytest.raises(InputError, match="the state is empty: nothing to decide on"):
        encoding.trunks([state])
    with pytest.raises(InputError, match="state 1 is empty"):
        encoding.trunks(["fine", state])


@pytest.mark.parametrize("state", [None, 5, b"x", {"a": float("nan")}, "\ud800", "a\x00"])
def test_an_unreadable_state_is_named(encoding: OptionsEncoding, state: Any) -> None:
    with pytest.raises(InputError, match="state 2 "):
        encoding.trunks(["fine", "fine", state])


def test_a_pass_must_hold_one_whole_path() -> None:
    with pytest.raises(InputError, match="pass_tokens is 95: it must hold one whole path, 96 tokens"):
        Limits(48, 24, 24, 95)
    assert Limits(48, 24, 24, 96).pass_tokens == 96


@given(data=st.data())
def test_any_number_of_options_fits(encoding: OptionsEncoding, data: st.DataObject) -> None:
    number = data.draw(st.integers(2, 300))
    instructions = data.draw(PHRASE)
    assume(len(encoding.tokenizer.ids([instructions])[0]) < encoding.limits.question_tokens)
    rows, _ = encoding.encode("a state", {"q": Choice(instructions, [f"option {i}" for i in range(number)])})
    assert Counter(slot for row in rows for slot in row.slots) == Counter((0, i) for i in range(number))
    assert all(len(row) <= encoding.limits.pass_tokens for row in rows)


@pytest.mark.parametrize("name", ["state_tokens", "question_tokens", "option_tokens"])
def test_a_budget_that_holds_no_word_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 1: it must be at least"):
        replace(Limits(), **{name: 1})
