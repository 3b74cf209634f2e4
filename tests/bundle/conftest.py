"""A folder with a small bundle, and a cache of the test's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bundle_samples import write_small


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("JULIA1_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle to copy from: copying is faster than writing, which waits for the disk."""
    return write_small(tmp_path_factory.mktemp("written") / "small").folder


@pytest.fixture
def folder(tmp_path: Path, written: Path) -> Path:
    """The folder of a whole bundle: two variants that share their weights, and a checkpoint."""
    return Path(shutil.copytree(written, tmp_path / "small"))
