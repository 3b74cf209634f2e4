"""Cuts text with a Unigram vocabulary that is held in a dictionary.

The Rust library keeps such a vocabulary as a trie of hash tables, about 1 KB a piece: 77 MB for 76,000 pieces, which is
more than the weights take. A dictionary of the same pieces takes an eighth. The library still normalises text and
splits it into words; which pieces a word is made of is found here, by the same search for the likeliest cut (Kudo 2018,
https://arxiv.org/abs/1804.10959), with the same rules for what is unknown and for ties.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import PreTokenizedString, Token, Tokenizer

_UNKNOWN_PENALTY = 10.0
"""An unknown character is so much less likely than the rarest piece, as in SentencePiece."""

KEPT_WORDS = 2048
_LONGEST_KEPT = 24
"""Characters; longer words, such as whole sentences of Chinese, hardly come again."""

_FIELDS = {"type", "unk_id", "vocab", "byte_fallback"}


class UnigramSegmenter:
    """Text to pieces as the library's Unigram model cuts it. Text that spells a special token is ordinary text.

    Args:
        data: content of a ``tokenizer.json`` that ``reads`` accepts.

    Attributes:
        size: number of ids.

    Raises:
        TypeError, ValueError: the vocabulary is not a list of pieces and scores.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        vocabulary, self._unknown = data["model"]["vocab"], data["model"]["unk_id"]
        self._pieces = [str(piece) for piece, _ in vocabulary]
        self._scores = array("d", (score for _, score in vocabulary))
        self._ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._names = {added["content"]: int(added["id"]) for added in data.get("added_tokens") or []}
        self.size = len(self._ids) + sum(name not in self._ids for name in self._names)
        self._unknown_score = min(self._scores) - _UNKNOWN_PENALTY
        self._longest: dict[str, int] = {}
        for piece in self._pieces:
            self._longest[piece[:1]] = max(len(piece), self._longest.get(piece[:1], 0))
        self._reader = _reader(data)
        self._normaliser, self._splitter = self._reader.normalizer, self._reader.pre_tokenizer
        self._kept = lru_cache(KEPT_WORDS)(self._word_ids)

    @staticmethod
    def reads(data: dict[str, Any]) -> bool:
        """Whether the tokenizer has nothing that only the library does."""
        model = data.get("model")
        return (
            isinstance(model, dict)
            and model.get("type") == "Unigram"
            and model.keys() <= _FIELDS
            and isinstance(model.get("unk_id"), int)
            and isinstance(model.get("vocab"), list)
            and 0 <= model["unk_id"] < len(model["vocab"])
            and not model.get("byte_fallback")
            and all(added.get("special") for added in data.get("added_tokens") or [])
        )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of each text."""
        return [[i for word in self._words(text) for i in self._ids_of(word)] for text in texts]

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Piece ids of a text, and the characters of the text that each was made of."""
        parts = PreTokenizedString(text)
        if self._normaliser is not None:
            parts.normalize(self._normaliser.normalize)
        if self._splitter is not None:
            self._splitter.pre_tokenize(parts)
        parts.tokenize(self._tokens)
        encoding = parts.to_encoding()
        return encoding.ids, encoding.offsets

    def piece(self, token_id: int) -> str | None:
        """The text of a piece, ``None`` for an id that there is not."""
        if 0 <= token_id < len(self._pieces):
            return self._pieces[token_id]
        return next((name for name, number in self._names.items() if number == token_id), None)

    def id_of(self, piece: str) -> int | None:
        """The id of a piece or of a special token, ``None`` where there is none."""
        return self._names.get(piece, self._ids.get(piece))

    def vocabulary(self) -> dict[str, int]:
        """Every piece with its id."""
        return {**self._ids, **self._names}

    def _words(self, text: str) -> list[str]:
        if self._normaliser is not None:
            text = self._normaliser.normalize_str(text)
        return [text] if self._splitter is None else [word for word, _ in self._splitter.pre_tokenize_str(text)]

    def _ids_of(self, word: str) -> tuple[int, ...]:
        return self._kept(word) if len(word) <= _LONGEST_KEPT else self._word_ids(word)

    def _word_ids(self, word: str) -> tuple[int, ...]:
        return tuple(number for number, _, _ in self._cut(word))

    def _tokens(self, word: str) -> list[Token]:
        """The pieces of a word with their places in UTF-8, as the library counts them."""
        tokens, at = [], 0
        for number, start, end in self._cut(word):
            until = at + len(word[start:end].encode())
            tokens.append(Token(number, word[start:end], (at, until)))
            at = until
        return tokens

    def _cut(self, word: str) -> list[tuple[int, int, int]]:
        """The likeliest cut of a word: id, first character and end of each piece."""
        size, known, scores, longest = len(word), self._ids.get, self._scores, self._longest.get
        # for each place: the score of the best way there, where its last piece begins, and that piece
        best: list[float | None] = [0.0, *[None] * size]
        starts, pieces = [0] * (size + 1), [self._unknown] * (size + 1)
        for start in range(size):
            here: Any = best[start]
            single = False
            for end in range(start + 1, min(size, start + longest(word[start], 0)) + 1):
                number = known(word[start:end])
                if number is None:
                    continue
                single = single or end == start + 1
                score, other = here + scores[number], best[end]
                if other is None or score > other:
                    best[end], starts[end], pieces[end] = score, start, number
            if not single:
                score, other, end = here + self._unknown_score, best[start + 1], start + 1
                if other is None or score > other:
                    best[end], starts[end], pieces[end] = score, start, self._unknown
        return self._way_back(word, starts, pieces)

    def _way_back(self, word: str, starts: list[int], pieces: list[int]) -> list[tuple[int, int, int]]:
        """The pieces of the best way, first to last; unknown neighbours are one piece."""
        found: list[tuple[int, int, int]] = []
        end = len(word)
        while end:
            start, number = starts[end], pieces[end]
            if number == self._unknown:
                while start and pieces[start] == self._unknown:
                    start = starts[start]
                number = self._ids.get(word[start:end], self._unknown)
            found.append((number, start, end))
            end = start
        return found[::-1]


def _reader(data: dict[str, Any]) -> Tokenizer:
    """The library's tokenizer without its vocabulary: it normalises and splits."""
    model = data["model"]
    small = {**model, "vocab": [model["vocab"][model["unk_id"]]], "unk_id": 0}
    return Tokenizer.from_str(json.dumps({**data, "model": small, "added_tokens": [], "post_processor": None}))
