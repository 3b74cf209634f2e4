"""A thin wrapper around a ``tokenizer.json``: text to piece ids, special tokens by name and never by text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from julia1.errors import BundleError

_NAMES = {
    "cls": ("[CLS]", "<s>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
}

_FEW = 8
"""Up to here one call a text is faster than a batch call, which costs a round trip through a thread pool."""


class TextTokenizer:
    """Tokenizes text with the Rust ``tokenizers`` library.

    Text that spells a special token (``<mask>``, ``</s>`` …) is read as ordinary characters: user text can never act
    as a marker.

    Args:
        tokenizer: of the library.
        threads: that may tokenize at once; the cores without it. The library has one pool for the whole process, made
            when it is first needed: RAYON_NUM_THREADS says how large, and without that the first tokenizer does.

    Attributes:
        cls, sep, mask, pad: ids of the special tokens.
        vocabulary_size: number of ids.
    """

    def __init__(self, tokenizer: Tokenizer, threads: int | None = None) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._alone = threads == 1
        if threads is not None and not self._alone:
            os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        self.vocabulary_size = int(tokenizer.get_vocab_size())
        self.cls, self.sep, self.mask, self.pad = (self._special(kind) for kind in ("cls", "sep", "mask", "pad"))
        self._reserved = frozenset((self.cls, self.sep, self.mask, self.pad))

    @classmethod
    def from_file(cls, path: Path, threads: int | None = None) -> TextTokenizer:
        """Read ``tokenizer.json``; raises ``BundleError`` when it is not one."""
        try:
            return cls(Tokenizer.from_file(str(path)), threads)
        except BundleError:
            raise
        except Exception as error:  # the Rust library raises plain Exception
            raise BundleError(f"{path} is not a readable tokenizer file: {error}") from None

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of each text, without special tokens."""
        if self._alone or len(texts) <= _FEW:
            found = [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        else:
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
            found = [encoding.ids for encoding in encodings]
        return [
            ids if self._reserved.isdisjoint(ids) else self._without_reserved(text)
            for text, ids in zip(texts, found, strict=True)
        ]

    def ids_and_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Piece ids of each text as ``ids`` has them, and the characters of the text that each was made of."""
        found = []
        for text in texts:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            ids, offsets = encoding.ids, encoding.offsets
            if not self._reserved.isdisjoint(ids):
                spaced = self._spaced(text)
                encoding = self._tokenizer.encode(spaced, add_special_tokens=False)
                kept = [(i, place) for i, place in zip(encoding.ids, encoding.offsets, strict=True) if self._usable(i)]
                original = _places_before(text, spaced)
                ids = [i for i, _ in kept]
                offsets = [(original[start], original[end]) for _, (start, end) in kept]
            found.append((ids, offsets))
        return found

    def piece(self, token_id: int) -> str:
        """The text of a piece, '' for an id that there is not."""
        return self._tokenizer.id_to_token(token_id) or ""

    def vocabulary(self) -> dict[str, int]:
        """Every piece with its id."""
        found: dict[str, int] = self._tokenizer.get_vocab()
        return found

    def _without_reserved(self, text: str) -> list[int]:
        """Piece ids of a text that spells a special token which is also a piece of the model's vocabulary."""
        ids: list[int] = self._tokenizer.encode(self._spaced(text), add_special_tokens=False).ids
        return [i for i in ids if self._usable(i)]

    def _spaced(self, text: str) -> str:
        """The text with a blank in every special token that it spells."""
        for token_id in sorted(self._reserved):
            name = str(self._tokenizer.id_to_token(token_id))
            text = text.replace(name, f"{name[0]} {name[1:]}")
        return text

    def _usable(self, token_id: int) -> bool:
        return token_id not in self._reserved

    def _special(self, kind: str) -> int:
        for name in _NAMES[kind]:
            token_id = self._tokenizer.token_to_id(name)
            if token_id is not None:
                return int(token_id)
        raise BundleError(f"the tokenizer has no {kind} token (looked for {', '.join(_NAMES[kind])})")


def _places_before(text: str, spaced: str) -> list[int]:
    """For each place in ``spaced``, which has further blanks, the place in ``text``."""
    places, at = [], 0
    for character in spaced:
        places.append(at)
        at += at < len(text) and text[at] == character
    return [*places, at]
