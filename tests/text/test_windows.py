"""Windows cover a text from its start, with the overlap asked for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from julia1.text.windows import best_places, read_tokens, windows_of


@given(st.integers(0, 300), st.integers(2, 40), st.integers(0, 39), st.integers(1, 8))
def test_windows_cover_what_is_read(tokens: int, room: int, overlap: int, most: int) -> None:
    overlap = min(overlap, room - 1)
    windows = windows_of(tokens, room, overlap, most)
    assert 1 <= len(windows) <= most
    assert windows[0][0] == 0
    assert all(end - start == min(room, tokens) for start, end in windows)
    assert all(start < other_start <= end - overlap for (start, end), (other_start, _) in pairwise(windows))
    covered = {token for start, end in windows for token in range(start, end)}
    assert covered == set(range(read_tokens(windows)))
    if len(windows) < most:
        assert read_tokens(windows) == tokens
    for token, (window, place) in enumerate(best_places(windows)):
        start, end = windows[window]
        assert start + place == token < end
        edge = min(place, end - 1 - token)
        assert all(min(token - s, e - 1 - token) <= edge for s, e in windows if s <= token < e)


def test_no_window_more_than_is_needed() -> None:
    assert windows_of(10, 10, 4, 9) == [(0, 10)]
    assert windows_of(11, 10, 4, 9) == [(0, 10), (1, 11)]
    assert windows_of(16, 10, 4, 9) == [(0, 10), (6, 16)]
    assert windows_of(17, 10, 4, 9) == [(0, 10), (6, 16), (7, 17)]
    assert windows_of(100, 10, 4, 2) == [(0, 10), (6, 16)]
