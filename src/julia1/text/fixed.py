"""The *fixed* encoding: ``[CLS] text [SEP]``, for models whose questions were fixed in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from julia1.answers import Reading
from julia1.content import Content, render
from julia1.errors import InputError, TooLongError
from julia1.text.tokenizer import TextTokenizer

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FixedRow:
    """One encoded text: piece ids with [CLS] and [SEP], and how much of the text they hold."""

    ids: list[int]
    reading: Reading


class FixedEncoding:
    """Turns texts into rows. Thread-safe: it keeps nothing between calls.

    Args:
        tokenizer: of the model.
        state_tokens: length of a row at most, [CLS] and [SEP] included; a longer text is cut, and the reading says so.
    """

    def __init__(self, tokenizer: TextTokenizer, state_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.state_tokens = state_tokens

    def rows(self, states: Sequence[Content], strict: bool = False, allow_empty: bool = False) -> list[FixedRow]:
        """Encode states.

        Args:
            states: texts, or data to render as text.
            strict: raise instead of cutting.
            allow_empty: a model with structured features can decide without a text.

        Raises:
            InputError: a state is empty.
            TooLongError: ``strict`` and a state is over the budget.
        """
        texts = []
        for index, state in enumerate(states):
            where = "the state" if len(states) == 1 else f"state {index}"
            text = render(state, where)
            if not text.strip() and not allow_empty:
                raise InputError(f"{where} is empty: nothing to decide on")
            texts.append(text)
        room = self.state_tokens - 2
        rows = []
        for ids in self.tokenizer.ids(texts):
            if strict and len(ids) > room:
                raise TooLongError(
                    f"the state has {len(ids):,} tokens and the model reads {room:,}: shorten it, or allow truncation"
                )
            cut = [self.tokenizer.cls, *ids[:room], self.tokenizer.sep]
            rows.append(FixedRow(cut, Reading(len(ids), min(len(ids), room))))
        return rows

    def collate(self, rows: Sequence[FixedRow]) -> tuple[IntArray, IntArray]:
        """Padded ids and their attention mask, both int64 ``[rows, tokens]``."""
        shape = (len(rows), max(len(row.ids) for row in rows))
        ids, mask = np.full(shape, self.tokenizer.pad, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row.ids)] = row.ids
            mask[i, : len(row.ids)] = 1
        return ids, mask
