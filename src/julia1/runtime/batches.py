"""Cut rows into batches under a budget of padded tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def padded_batches(
    items: Iterable[Item], length: Callable[[Item], int], tokens: int, most: int | None = None
) -> Iterator[list[Item]]:
    """Runs of ``items`` in their own order; sort them by length first, or padding is wasted.

    Args:
        items: what to batch.
        length: tokens of an item.
        tokens: of a padded batch at most; a single item always fits.
        most: items of a batch at most.
    """
    batch: list[Item] = []
    longest = 0
    for item in items:
        widest = max(longest, length(item))
        if batch and (len(batch) == most or widest * (len(batch) + 1) > tokens):
            yield batch
            batch, widest = [], length(item)
        batch.append(item)
        longest = widest
    if batch:
        yield batch
