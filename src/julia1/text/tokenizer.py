"""A ``tokenizer.json``: text to piece ids, special tokens by name and never by text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from julia1.errors import BundleError
from julia1.text.library import LibrarySegmenter
from julia1.text.unigram import UnigramSegmenter

_NAMES = {
    "cls": ("[CLS]", "<s>", "<bos>"),
    "sep": ("[SEP]", "</s>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
}


class Segmenter(Protocol):
    """Cuts text into pieces; no special token is added to it, and none is read in it before it is cut."""

    size: int

    def ids(self, texts: Sequence[str]) -> list[list[int]]: ...

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]: ...

    def piece(self, token_id: int) -> str | None: ...

    def id_of(self, piece: str) -> int | None: ...

    def vocabulary(self) -> dict[str, int]: ...


class TextTokenizer:
    """Tokenizes text.

    Text that spells a special token (``<mask>``, ``</s>`` …) is read as ordinary characters: user text can never act
    as a marker.

    Args:
        segmenter: cuts text.

    Attributes:
        cls, sep, mask, pad: ids of the special tokens.
        vocabulary_size: number of ids.
    """

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter
        self.vocabulary_size = segmenter.size
        self.cls, self.sep, self.mask, self.pad = (self._special(kind) for kind in ("cls", "sep", "mask", "pad"))
        self._reserved = frozenset((self.cls, self.sep, self.mask, self.pad))

    @classmethod
    def from_file(cls, path: Path, threads: int | None = None) -> TextTokenizer:
        """Read ``tokenizer.json``.

        Args:
            path: of the file.
            threads: that may tokenize at once; see ``LibrarySegmenter``.

        Raises:
            BundleError: it is not a tokenizer, or has not all special tokens.
        """
        try:
            content = path.read_bytes()
            # the library reads the file itself: a large one of another kind is not read twice
            data = json.loads(content) if b'"Unigram"' in content else {}
            segmenter: Segmenter = (
                UnigramSegmenter(data)
                if UnigramSegmenter.reads(data)
                else LibrarySegmenter(Tokenizer.from_file(str(path)), threads)
            )
        except Exception as error:  # the Rust library raises plain Exception
            raise BundleError(f"{path} is not a readable tokenizer file: {error}") from None
        return cls(segmenter)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of each text, without special tokens."""
        return [
            ids if self._reserved.isdisjoint(ids) else self._without_reserved(text)
            for text, ids in zip(texts, self._segmenter.ids(texts), strict=True)
        ]

    def ids_and_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Piece ids of each text as ``ids`` has them, and the characters of the text that each was made of."""
        found = []
        for text in texts:
            ids, offsets = self._segmenter.ids_and_offsets(text)
            if not self._reserved.isdisjoint(ids):
                spaced = self._spaced(text)
                pieces = zip(*self._segmenter.ids_and_offsets(spaced), strict=True)
                kept = [(i, place) for i, place in pieces if self._usable(i)]
                original = _places_before(text, spaced)
                ids = [i for i, _ in kept]
                offsets = [(original[start], original[end]) for _, (start, end) in kept]
            found.append((ids, offsets))
        return found

    def piece(self, token_id: int) -> str:
        """The text of a piece, '' for an id that there is not."""
        return self._segmenter.piece(token_id) or ""

    def vocabulary(self) -> dict[str, int]:
        """Every piece with its id."""
        return self._segmenter.vocabulary()

    def _without_reserved(self, text: str) -> list[int]:
        """Piece ids of a text that spells a special token which is also a piece of the model's vocabulary."""
        (ids,) = self._segmenter.ids([self._spaced(text)])
        return [i for i in ids if self._usable(i)]

    def _spaced(self, text: str) -> str:
        """The text with a blank in every special token that it spells."""
        for token_id in sorted(self._reserved):
            name = self.piece(token_id)
            text = text.replace(name, f"{name[0]} {name[1:]}")
        return text

    def _usable(self, token_id: int) -> bool:
        return token_id not in self._reserved

    def _special(self, kind: str) -> int:
        for name in _NAMES[kind]:
            token_id = self._segmenter.id_of(name)
            if token_id is not None:
                return token_id
        raise BundleError(f"the tokenizer has no {kind} token (looked for {', '.join(_NAMES[kind])})")


def _places_before(text: str, spaced: str) -> list[int]:
    """For each place in ``spaced``, which has further blanks, the place in ``text``."""
    places, at = [], 0
    for character in spaced:
        places.append(at)
        at += at < len(text) and text[at] == character
    return [*places, at]
