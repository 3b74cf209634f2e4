"""How likely each piece of the vocabulary is in each language, counted in training rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from julia1.errors import InputError
from julia1.model.languages import LanguageGate
from julia1.train.data.rows import DataRow
from julia1.train.items import Item

LEAST_ROWS = 50
"""Rows of a language from which on it gets heads of its own."""
SMOOTHING = 0.05
"""Share of a language's probability that lies on all pieces alike, so that none is impossible."""
FLOOR_SHARE = 0.05
"""Of the texts of a language so many may look unlike it. With 1 % half of the German and Portuguese ones passed for
English, whose short texts of rare words lie as low; with 5 % none did, and 97 % of the English ones were known."""

FloatArray = npt.NDArray[np.float32]


def languages_of(rows: Sequence[DataRow]) -> dict[str, list[int]]:
    """Languages with rows enough for heads of their own, in alphabetical order, and which rows are theirs.

    Raises:
        InputError: there are not two of them.
    """
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if row.language and row.text.strip():
            found.setdefault(row.language, []).append(number)
    kept = {name: found[name] for name in sorted(found) if len(found[name]) >= LEAST_ROWS}
    if len(kept) < 2:
        counts = ", ".join(f"{name} {len(numbers):,}" for name, numbers in sorted(found.items())) or "none"
        raise InputError(
            f"language_heads needs two languages with {LEAST_ROWS} training rows each, told by the field 'lang'; rows "
            f"by language: {counts}"
        )
    return kept


@torch.no_grad()
def fill_gate(
    gate: LanguageGate, languages: Mapping[str, Sequence[int]], items: Sequence[Item], special: Collection[int]
) -> None:
    """Count pieces by language, and set the floors from rows that were not counted.

    Args:
        gate: filled in place.
        languages: indices into ``items`` for each language.
        items: training rows.
        special: pieces that stand for no text.
    """
    pieces = gate.table.shape[0]
    texts = [[[i for i in items[n].ids if i not in special] for n in numbers] for numbers in languages.values()]
    table = np.zeros((pieces, len(texts) + 1), np.float32)
    for column, own in enumerate(texts):
        table[:, column] = _log_shares(own, pieces)
        # a text that stands several times would be looked at with what it brought itself
        own = [list(ids) for ids in dict.fromkeys(map(tuple, own))]
        halves = [_log_shares(own[start::2], pieces) for start in (0, 1)]
        # each half is looked at with what the other one knows: as a new text will be
        means = [float(halves[1 - n % 2][ids].mean()) for n, ids in enumerate(own) if ids]
        gate.floor[column] = float(np.quantile(means, FLOOR_SHARE))
    table[:, -1] = 1.0
    table[sorted(special)] = 0.0
    gate.table.copy_(torch.from_numpy(table))


def _log_shares(texts: Sequence[Sequence[int]], pieces: int) -> FloatArray:
    """Log-probability of every piece, fp32 ``[pieces]``."""
    counts = np.zeros(pieces)
    for ids in texts:
        np.add.at(counts, np.array(ids, np.int64), 1.0)
    shares: FloatArray = np.log(
        (1 - SMOOTHING) * counts / max(1.0, counts.sum()) + SMOOTHING / pieces, dtype=np.float64
    ).astype(np.float32)
    return shares
