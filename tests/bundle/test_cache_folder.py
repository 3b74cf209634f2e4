"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from julia1.errors import InputError
from julia1.settings import cache_folder


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [
        ("/own", "/shared", "/own"),
        ("~/own", "/shared", "/home/someone/own"),
        ("", "/shared", "/shared/julia1"),
        ("", "relative", "/home/someone/.cache/julia1"),
        ("", "", "/home/someone/.cache/julia1"),
    ],
)
def test_variables_go_before_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, own: str, shared: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("JULIA1_CACHE", own)
    monkeypatch.setenv("XDG_CACHE_HOME", shared)
    assert cache_folder() == Path(expected)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("JULIA1_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InputError, match="set JULIA1_CACHE"):
        cache_folder()
