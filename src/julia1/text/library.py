"""Cuts text with the Rust ``tokenizers`` library."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tokenizers import Tokenizer

_FEW = 8
"""Up to here one call a text is faster than a batch call, which costs a round trip through a thread pool."""


class LibrarySegmenter:
    """Text to pieces with a tokenizer of the library. Text that spells a special token is ordinary text.

    Args:
        tokenizer: of the library; its stored padding and truncation are taken off.
        threads: that may tokenize at once; the cores without it. The library has one pool for the whole process, made
            when it is first needed: RAYON_NUM_THREADS says how large, and without that the first tokenizer does.

    Attributes:
        size: number of ids.
    """

    def __init__(self, tokenizer: Tokenizer, threads: int | None = None) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.size = int(tokenizer.get_vocab_size())
        self._alone = threads == 1
        if threads is not None and not self._alone:
            os.environ.setdefault("RAYON_NUM_THREADS", str(threads))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of each text."""
        if self._alone or len(texts) <= _FEW:
            return [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Piece ids of a text, and the characters of the text that each was made of."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def piece(self, token_id: int) -> str | None:
        """The text of a piece, ``None`` for an id that there is not."""
        found: str | None = self._tokenizer.id_to_token(token_id)
        return found

    def id_of(self, piece: str) -> int | None:
        """The id of a piece or of a special token, ``None`` where there is none."""
        found: int | None = self._tokenizer.token_to_id(piece)
        return found

    def vocabulary(self) -> dict[str, int]:
        """Every piece with its id."""
        found: dict[str, int] = self._tokenizer.get_vocab()
        return found
