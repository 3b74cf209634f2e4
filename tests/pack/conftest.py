"""A folder of toy wheels that are pinned, and a small bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_samples import write_small
from pack_samples import MEMBERS, toy_wheel, write_lock

from julia1.pack import lock


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine, no cache of the user."""
    for name in ("JULIA1_MODEL", "JULIA1_VARIANT", "JULIA1_THREADS", "PYTHON", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def relock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Pins the wheels of a folder instead of those that julia1 pins."""

    def relock(folder: Path) -> None:
        write_lock(tmp_path / "lock.json", folder)
        monkeypatch.setattr(lock, "LOCK_FILE", tmp_path / "lock.json")

    return relock


@pytest.fixture
def wheels(tmp_path: Path, relock: Callable[[Path], None]) -> Path:
    """A folder of toy wheels, pinned."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, members in MEMBERS.items():
        toy_wheel(folder / name, members)
    relock(folder)
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_small(tmp_path / "small").folder
