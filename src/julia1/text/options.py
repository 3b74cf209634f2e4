"""The *options* encoding: a state, its questions and their options as one tree in one token sequence.

    [CLS] state [SEP] | question [SEP] | [MASK] [CLS] option | [MASK] [CLS] option | question [SEP] | ...
    trunk             | branch 1       | leaf 1              | leaf 2              | branch 2       | ...

What sees what:

    trunk         itself
    branch        the trunk and itself
    option text   itself only, its [CLS] included: it is read as a sentence encoder would read it alone
    [MASK]        the trunk, its branch, its option's text and itself: here state, question and option meet

Nothing sees a sibling, and siblings take the same positions, so the order of options and of questions cannot matter,
and leaves can be spread over several rows ("passes") without changing a score. The score of an option is read at its
[MASK], from its text and from the trunk.

Token budgets are fixed numbers, not shares of what is left: how much of a state is read never depends on which other
questions are asked with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from julia1.answers import Reading
from julia1.content import Content
from julia1.errors import InputError, TooLongError
from julia1.questions import Question, instruction_text
from julia1.text.states import IntArray, read_states
from julia1.text.tokenizer import TextTokenizer

TRUNK = 0
PADDING = -1


@dataclass(frozen=True)
class Limits:
    """Token budgets of the options encoding.

    Attributes:
        state_tokens: trunk length at most, its [CLS] and [SEP] included; a longer state is cut (and reported).
        question_tokens: branch length at most, its [SEP] included; longer is an error.
        option_tokens: leaf length at most, its [MASK] and [CLS] included; longer is an error.
        pass_tokens: length of one row at most; further leaves go to another row with the same trunk.
    """

    state_tokens: int = 384
    question_tokens: int = 64
    option_tokens: int = 128
    pass_tokens: int = 768

    def __post_init__(self) -> None:
        for name, smallest in (("state_tokens", 3), ("question_tokens", 2), ("option_tokens", 3)):
            if getattr(self, name) < smallest:
                raise InputError(f"{name} is {getattr(self, name)}: it must be at least {smallest} to hold a word")
        least = self.state_tokens + self.question_tokens + self.option_tokens
        if self.pass_tokens < least:
            raise InputError(f"pass_tokens is {self.pass_tokens}: it must hold one whole path, {least} tokens")


@dataclass(frozen=True)
class Row:
    """One unpadded sequence of the encoding.

    Attributes:
        input_ids, position_ids: int64 ``[tokens]``.
        branches: int64 ``[tokens]``: 0 in the trunk, then 1, 2 … for each question with its leaves.
        leaves: int64 ``[tokens]``: ``k`` at the [MASK] of the row's leaf ``k`` (from 1), ``-k`` at its text, else 0.
        markers: int64 ``[options]``, index of each option's [MASK].
        slots: for each marker its (question index, option index).
        texts: for each marker the piece ids of its option's text, [CLS] included.
    """

    input_ids: IntArray
    position_ids: IntArray
    branches: IntArray
    leaves: IntArray
    markers: IntArray
    slots: tuple[tuple[int, int], ...]
    texts: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class Encoded:
    """A padded batch of rows, as ``OptionModel`` reads it; all int64.

    Attributes:
        input_ids, position_ids, branches, leaves: ``[rows, tokens]``; padding has branch -1.
        markers: ``[rows, options]``; padded with 0, to be ignored by the reader.
    """

    input_ids: IntArray
    position_ids: IntArray
    branches: IntArray
    leaves: IntArray
    markers: IntArray

    def feeds(self) -> dict[str, IntArray]:
        """The arrays by input name."""
        return {name: getattr(self, name) for name in INPUT_NAMES}


INPUT_NAMES = ("input_ids", "position_ids", "branches", "leaves", "markers")


@dataclass(frozen=True)
class QuestionTokens:
    """A question's branch and leaves as piece ids, special tokens included."""

    branch: list[int]
    leaves: list[list[int]]

    @cached_property
    def order(self) -> list[int]:
        """Indices of the leaves in the order of their tokens."""
        return sorted(range(len(self.leaves)), key=self.leaves.__getitem__)

    @cached_property
    def sort_key(self) -> tuple[list[int], list[list[int]]]:
        """What questions are sorted by."""
        return self.branch, [self.leaves[i] for i in self.order]


class OptionsEncoding:
    """Turns states and questions into rows. Thread-safe: it keeps nothing between calls."""

    def __init__(self, tokenizer: TextTokenizer, limits: Limits | None = None) -> None:
        self.tokenizer = tokenizer
        self.limits = limits or Limits()

    def question_tokens(self, name: str, question: Question) -> QuestionTokens:
        """Tokenize a question.

        Raises:
            TooLongError: the instructions or an option are over their token budget.
        """
        texts = [instruction_text(question), *question.option_texts()]
        ids = self.tokenizer.ids([texts[0] or " ", *texts[1:]])
        branch = ids[0] + [self.tokenizer.sep]
        _check_length(len(branch), self.limits.question_tokens, f"the instructions of question {name!r}", texts[0])
        leaves = []
        for text, option in zip(texts[1:], ids[1:], strict=True):
            leaf = [self.tokenizer.mask, self.tokenizer.cls, *option]
            _check_length(len(leaf), self.limits.option_tokens, f"an option of question {name!r}", text)
            leaves.append(leaf)
        return QuestionTokens(branch, leaves)

    def trunks(self, states: Sequence[Content], strict: bool = False) -> list[tuple[list[int], Reading]]:
        """Tokenize states into trunks, each with a record of how much was read.

        Raises:
            InputError: a state is empty.
            TooLongError: ``strict`` and a state is over its token budget.
        """
        return read_states(self.tokenizer, states, self.limits.state_tokens, strict)

    def rows(self, trunk: Sequence[int], questions: Sequence[QuestionTokens]) -> list[Row]:
        """Lay one trunk and its questions out in as few rows as the pass limit allows.

        They are laid out in the order of their tokens, not of the request: floating-point sums then run in the same
        order whatever the caller's, and answers are equal to the last bit, in int8 too.
        """
        rows: list[Row] = []
        builder = _RowBuilder(trunk)
        for question_index in sorted(range(len(questions)), key=lambda i: questions[i].sort_key):
            question = questions[question_index]
            branch_open = False
            for option_index in question.order:
                leaf = question.leaves[option_index]
                need = len(leaf) + (0 if branch_open else len(question.branch))
                if len(builder) + need > self.limits.pass_tokens and builder.markers:
                    rows.append(builder.build())
                    builder = _RowBuilder(trunk)
                    branch_open = False
                if not branch_open:
                    builder.open_branch(question.branch)
                    branch_open = True
                builder.add_leaf(leaf, (question_index, option_index))
        rows.append(builder.build())
        return rows

    def collate(self, rows: Sequence[Row]) -> Encoded:
        """Pad rows to one batch."""
        shape = (len(rows), max(len(row) for row in rows))
        input_ids = np.full(shape, self.tokenizer.pad, dtype=np.int64)
        position_ids = np.zeros(shape, dtype=np.int64)
        branches = np.full(shape, PADDING, dtype=np.int64)
        leaves = np.zeros(shape, dtype=np.int64)
        markers = np.zeros((len(rows), max(len(row.markers) for row in rows)), dtype=np.int64)
        for i, row in enumerate(rows):
            length = len(row)
            input_ids[i, :length] = row.input_ids
            position_ids[i, :length] = row.position_ids
            branches[i, :length] = row.branches
            leaves[i, :length] = row.leaves
            markers[i, : len(row.markers)] = row.markers
        return Encoded(input_ids, position_ids, branches, leaves, markers)

    def encode(
        self, state: Content, questions: Mapping[str, Question], strict: bool = False
    ) -> tuple[list[Row], Reading]:
        """Rows of one state with its questions; the convenience form of the steps above."""
        ((trunk, reading),) = self.trunks([state], strict)
        tokens = [self.question_tokens(name, question) for name, question in questions.items()]
        return self.rows(trunk, tokens), reading


class _RowBuilder:
    def __init__(self, trunk: Sequence[int]) -> None:
        self.ids = list(trunk)
        self.positions = list(range(len(trunk)))
        self.branches = [TRUNK] * len(trunk)
        self.leaves = [0] * len(trunk)
        self.markers: list[int] = []
        self.slots: list[tuple[int, int]] = []
        self.texts: list[tuple[int, ...]] = []
        self._trunk_length = len(trunk)
        self._branch = TRUNK
        self._branch_length = 0

    def __len__(self) -> int:
        return len(self.ids)

    def open_branch(self, tokens: Sequence[int]) -> None:
        self._branch += 1
        self._branch_length = len(tokens)
        self._add(tokens, self._trunk_length, 0)

    def add_leaf(self, tokens: Sequence[int], slot: tuple[int, int]) -> None:
        self.markers.append(len(self.ids))
        self.slots.append(slot)
        self.texts.append(tuple(tokens[1:]))
        leaf = len(self.markers)
        self._add(tokens[:1], self._trunk_length + self._branch_length, leaf)
        self._add(tokens[1:], 0, -leaf)

    def build(self) -> Row:
        def array(values: list[int]) -> IntArray:
            return np.asarray(values, dtype=np.int64)

        return Row(
            input_ids=array(self.ids),
            position_ids=array(self.positions),
            branches=array(self.branches),
            leaves=array(self.leaves),
            markers=array(self.markers),
            slots=tuple(self.slots),
            texts=tuple(self.texts),
        )

    def _add(self, tokens: Sequence[int], position: int, leaf: int) -> None:
        self.ids.extend(tokens)
        self.positions.extend(range(position, position + len(tokens)))
        self.branches.extend([self._branch] * len(tokens))
        self.leaves.extend([leaf] * len(tokens))


def _check_length(length: int, limit: int, where: str, text: str) -> None:
    if length > limit:
        raise TooLongError(f"{where} has {length} tokens, {limit} fit: shorten {text[:60]!r}…")
