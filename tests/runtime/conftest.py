"""Fixtures of the tests of engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from julia1.runtime.engines import ENGINES, missing_engine


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of its own, and no setting of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JULIA1_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name in ("MODEL", "VARIANT", "ENGINE", "THREADS"):
            patch.delenv(f"JULIA1_{name}", raising=False)
        yield


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine that is installed, by name."""
    name: str = request.param
    if missing_engine(name):
        pytest.skip(missing_engine(name))
    return name


@pytest.fixture(scope="module", params=[name for name in ENGINES if name != "onnxruntime"])
def other(request: pytest.FixtureRequest) -> str:
    """Each engine beside ONNX Runtime, by name."""
    name: str = request.param
    if missing_engine(name):
        pytest.skip(missing_engine(name))
    return name
