"""Long texts as overlapping windows of tokens."""

from __future__ import annotations

from collections.abc import Sequence

Window = tuple[int, int]
"""First token, and one past the last."""


def windows_of(tokens: int, room: int, overlap: int = 0, most: int = 1) -> list[Window]:
    """Windows over a text.

    Each begins ``room - overlap`` tokens after the one before; the last one that reaches the end is moved back to be
    full. A text that needs more than ``most`` windows is read from its start.

    Args:
        tokens: of the text; an empty text has one empty window.
        room: tokens of a window.
        overlap: tokens that neighbours share, less than ``room``.
        most: windows at most.
    """
    if tokens <= room or most == 1:
        return [(0, min(tokens, room))]
    starts = range(0, tokens - overlap, room - overlap)
    return [(max(0, min(start, tokens - room)), min(start + room, tokens)) for start in starts[:most]]


def read_tokens(windows: Sequence[Window]) -> int:
    """Tokens of the text that the windows cover, from its start on."""
    return windows[-1][1]


def best_places(windows: Sequence[Window]) -> list[tuple[int, int]]:
    """For each token that is read, a window and the place in it: the one where it stands farthest from an edge.

    At the edge of a window a token lacks half of its context.
    """
    found = []
    for token in range(read_tokens(windows)):
        inside = [number for number, (start, end) in enumerate(windows) if start <= token < end]
        chosen = max(inside, key=lambda number: _depth(windows[number], token))
        found.append((chosen, token - windows[chosen][0]))
    return found


def _depth(window: Window, token: int) -> int:
    return min(token - window[0], window[1] - 1 - token)
