"""Rows that say the same: exactly (but for case, blanks and punctuation), nearly, or by their group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from julia1.train.data.rows import DataRow
from julia1.train.sources import text_key

NO_TEXT = "\0"
"""Begins the content of a row of features alone; no text has it. Such rows are the same or they are not: numbers that
look alike say nothing."""
GRAM = 4
PERMUTATIONS = 64
MARGIN = 0.1
"""Candidates are looked for so far below the bound, since MinHash only estimates."""
NEAR = 0.8
"""Jaccard likeness of two texts' character 4-grams from which they count as near duplicates."""


class Families:
    """Sets of row indices that belong together (a union-find)."""

    def __init__(self, number: int) -> None:
        self._parent = list(range(number))

    def find(self, index: int) -> int:
        """The representative of a row's family."""
        while self._parent[index] != index:
            self._parent[index] = self._parent[self._parent[index]]
            index = self._parent[index]
        return index

    def join(self, first: int, second: int) -> None:
        """Make two rows one family; the smaller index represents it."""
        low, high = sorted((self.find(first), self.find(second)))
        self._parent[high] = low

    def members(self) -> list[list[int]]:
        """All families, each sorted, in the order of their first row."""
        found: dict[int, list[int]] = {}
        for index in range(len(self._parent)):
            found.setdefault(self.find(index), []).append(index)
        return list(found.values())


def families(rows: Sequence[DataRow], near: float | None = NEAR) -> Families:
    """Join rows with the same content, the same group, and, unless ``near`` is ``None``, nearly the same content."""
    joined = Families(len(rows))
    for same in (exact_duplicates(rows), _by_group(rows)):
        for members in same:
            for index in members[1:]:
                joined.join(members[0], index)
    if near is not None:
        for first, second in near_duplicates([content_of(row) for row in rows], near):
            joined.join(first, second)
    return joined


def content_of(row: DataRow) -> str:
    """What a model sees of a row: its texts, and its structured features."""
    features = "".join(f" {name}={value}" for name, value in row.features.items() if value is not None)
    texts = " ".join(filter(str.strip, (row.text, row.second, *row.candidates)))
    return (texts or NO_TEXT) + features


def content_key(content: str) -> str:
    """Equal for contents that are equal but for case, blanks and punctuation."""
    return content if content.startswith(NO_TEXT) else text_key(content) or " ".join(content.split())


def exact_duplicates(rows: Sequence[DataRow]) -> list[list[int]]:
    """Indices of rows with the same content, two or more each; case, blanks and punctuation are ignored."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        by_key[content_key(content_of(row))].append(index)
    return [members for members in by_key.values() if len(members) > 1]


def near_duplicates(contents: Sequence[str], likeness: float = NEAR) -> list[tuple[int, int]]:
    """Pairs of indices of contents that are nearly but not exactly the same, each content at its first place.

    MinHash finds candidates and the exact likeness decides, so no pair is wrong; a pair near the bound may be missed.
    """
    from datasketch import MinHash, MinHashLSH

    first: dict[str, int] = {}
    for number, content in enumerate(contents):
        first.setdefault(content_key(content), number)
    places = list(first.values())
    grams = [_grams(contents[place]) for place in places]
    index = MinHashLSH(threshold=min(0.9, max(0.1, likeness - MARGIN)), num_perm=PERMUTATIONS)
    pairs: list[tuple[int, int]] = []
    encoded = ([gram.encode() for gram in own] for own in grams)
    for number, signature in enumerate(MinHash.generator(encoded, num_perm=PERMUTATIONS, seed=1)):
        if not grams[number]:
            continue
        alike = [o for o in index.query(signature) if _jaccard(grams[number], grams[o]) >= likeness]
        pairs += [(places[o], places[number]) for o in alike]
        index.insert(number, signature)
    return sorted(pairs)


def _by_group(rows: Sequence[DataRow]) -> Iterable[list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.group:
            groups[row.group].append(index)
    return groups.values()


def _grams(text: str) -> frozenset[str]:
    key = "" if text.startswith(NO_TEXT) else text_key(text)
    return frozenset(key[i : i + GRAM] for i in range(max(1, len(key) - GRAM + 1))) if key else frozenset()


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    common = len(first & second)
    return common / (len(first) + len(second) - common)
