"""Large blocks of memory go back to the system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from julia1.runtime import heap

# holds small blocks between large ones, frees the large ones, and prints what is left of them
FREED = """
import numpy as np
from pathlib import Path
from julia1.runtime.heap import return_large_blocks

def resident():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])

return_large_blocks()
for _ in range(3):
    np.ones(24 << 20, np.uint8)  # glibc by itself would now keep what is smaller in its heap
before = resident()
kept, large = [], []
for _ in range(40):
    large.append(np.ones(1 << 20, np.uint8))
    kept.append(np.ones(64 << 10, np.uint8))
del large
print(resident() - before)
"""


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    heap.return_large_blocks.cache_clear()


def freed(**variables: str) -> int:
    """KiB that stay behind, in a process of its own."""
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", FREED], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not heap.return_large_blocks(), reason="not glibc")
def test_large_blocks_between_small_ones_are_returned() -> None:
    assert freed() < 10_000
    assert freed(MALLOC_MMAP_THRESHOLD_="33554432") > 30_000  # as it would be without


@pytest.mark.parametrize(
    ("name", "value"), [("MALLOC_MMAP_THRESHOLD_", "65536"), ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=65536")]
)
def test_what_the_user_set_is_left_alone(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert not heap.return_large_blocks()


def test_systems_without_glibc_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not heap.return_large_blocks()
    heap.return_large_blocks.cache_clear()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: object())  # musl
    assert not heap.return_large_blocks()
