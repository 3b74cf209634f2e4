"""A folder with a small bundle, and a cache of the test's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundle_samples import FACTS, small_manifest, write_small

from julia1.bundle import BundleWriter, Registry


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


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("JULIA1_REGISTRY", str(tmp_path / "registry"))
    return Registry()


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Writes a bundle; ``facts`` change its provenance."""

    def make(folder: str = "run", version: str = "1", name: str = "tickets", **facts: Any) -> Path:
        with BundleWriter(tmp_path / folder, replace=True) as writer:
            manifest = small_manifest(writer, version)
            return writer.finish(replace(manifest, name=name, provenance={**FACTS, **facts})).folder

    return make
