"""States as piece ids, and rows of ids as padded arrays: what every encoding begins and ends with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from julia1.answers import Reading
from julia1.content import Content, render
from julia1.errors import InputError, TooLongError
from julia1.text.tokenizer import TextTokenizer

IntArray = npt.NDArray[np.int64]


def read_states(
    tokenizer: TextTokenizer,
    states: Sequence[Content],
    state_tokens: int,
    strict: bool = False,
) -> list[tuple[list[int], Reading]]:
    """``[CLS] state [SEP]`` of each state as piece ids, with a record of how much was read.

    Args:
        tokenizer: of the model.
        states: texts, or data to render as text.
        state_tokens: ids of a state at most, [CLS] and [SEP] included; the end of a longer one is cut.
        strict: raise instead of cutting.

    Raises:
        InputError: a state is empty.
        TooLongError: ``strict`` and a state is over its token budget.
    """
    texts = render_states(states)
    return [framed(tokenizer, ids, state_tokens, strict) for ids in tokenizer.ids(texts)]


def render_states(states: Sequence[Content], allow_empty: Sequence[bool] | None = None) -> list[str]:
    """The text of each state; raises ``InputError`` for an empty one, unless ``allow_empty`` takes it."""
    texts = []
    for index, state in enumerate(states):
        where = "the state" if len(states) == 1 else f"state {index}"
        text = render(state, where)
        if not text.strip() and not (allow_empty and allow_empty[index]):
            raise InputError(f"{where} is empty: nothing to decide on")
        texts.append(text)
    return texts


def require_room(tokens: int, room: int) -> None:
    """Raise ``TooLongError`` for a state of more tokens than are read."""
    if tokens > room:
        raise TooLongError(
            f"the state has {tokens:,} tokens and the model reads {room:,}: shorten it, or allow truncation"
        )


def framed(
    tokenizer: TextTokenizer, ids: Sequence[int], state_tokens: int, strict: bool = False
) -> tuple[list[int], Reading]:
    """``[CLS] ids [SEP]``, cut to ``state_tokens``, and how much was read; as ``read_states``."""
    room = state_tokens - 2
    if strict:
        require_room(len(ids), room)
    return [tokenizer.cls, *ids[:room], tokenizer.sep], Reading(len(ids), min(len(ids), room))


def framed_pair(
    tokenizer: TextTokenizer, first: Sequence[int], second: Sequence[int], pair_tokens: int, strict: bool = False
) -> tuple[list[int], Reading]:
    """``[CLS] first [SEP] second [SEP]`` in ``pair_tokens`` at most: the longer text gives way first."""
    room, total = pair_tokens - 3, len(first) + len(second)
    if strict and total > room:
        raise TooLongError(
            f"the two texts have {total:,} tokens and the model reads {room:,}: shorten them, or allow truncation"
        )
    kept = min(len(first), max(room - len(second), room // 2))
    ids = [tokenizer.cls, *first[:kept], tokenizer.sep, *second[: room - kept], tokenizer.sep]
    return ids, Reading(total, len(ids) - 3)


def round_up(number: int, step: int) -> int:
    """The least multiple of ``step`` that is not under ``number``."""
    return -(-number // step) * step


def pad_rows(rows: Sequence[Sequence[int]], pad: int, step: int = 1) -> tuple[IntArray, IntArray]:
    """Padded ids and their attention mask (1 at tokens), both int64 ``[rows, tokens]``, ``tokens`` a multiple of
    ``step``."""
    shape = (len(rows), round_up(max(map(len, rows)), step))
    ids, mask = np.full(shape, pad, np.int64), np.zeros(shape, np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return ids, mask
