"""What the system says of a process, and what it leaves out."""

from __future__ import annotations

import math
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from julia1.bench.process import ProcessSample, peak_memory, sample_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
STATUS = "Name:\tpython\nVmHWM:\t   3000 kB\nVmRSS:\t   2000 kB\nVmSwap:\t     16 kB\nThreads:\t5\n"


def fake(proc: Path, **files: str) -> Path:
    (proc / "self/fd").mkdir(parents=True)
    for name in ("0", "1", "2", "3"):
        (proc / "self/fd" / name).touch()
    for name, text in files.items():
        place = proc / ("stat" if name == "stat" else f"self/{name}")
        place.write_text(text)
    return proc


@linux
def test_what_is_taken_is_seen() -> None:
    before = sample_process()
    held = np.ones(4 << 20)  # 32 MiB, every page touched
    reading = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    after = sample_process()
    stop.set()
    thread.join()
    for one in reading:
        os.close(one)
    assert 30e6 < after.resident - before.resident < 40e6
    assert after.shared_out > before.shared_out + 30e6
    assert (after.descriptors - before.descriptors, after.threads - before.threads) == (3, 1)
    assert after.machine_busy >= before.machine_busy > 0
    assert peak_memory() >= after.resident - 1e6
    assert held.any()


def test_the_exact_count_goes_before_the_rough_one(tmp_path: Path) -> None:
    proc = fake(tmp_path, status=STATUS, smaps_rollup="Rss:  2100 kB\nPss:  900 kB\nSwap:  8 kB\n")
    found = sample_process(proc)
    assert (found.resident, found.shared_out, found.swapped) == (2100 * 1024, 900 * 1024, 8 * 1024)
    assert (found.descriptors, found.threads) == (3, 5)
    assert peak_memory(proc) == 3000 * 1024


def test_the_rough_count_stands_in_for_the_exact_one(tmp_path: Path) -> None:
    found = sample_process(fake(tmp_path, status=STATUS))
    assert (found.resident, found.swapped) == (2000 * 1024, 16 * 1024)
    assert math.isnan(found.shared_out) and math.isnan(found.machine_busy)


def test_a_machine_is_busy_with_all_but_idle_and_waiting(tmp_path: Path) -> None:
    proc = fake(tmp_path, stat="cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 2 3\n")
    assert sample_process(proc).machine_busy == pytest.approx(171 / os.sysconf("SC_CLK_TCK"))


def test_a_system_without_proc_tells_its_descriptors_at_most(tmp_path: Path) -> None:
    descriptors = tmp_path / "dev"
    descriptors.mkdir()
    for name in ("0", "1", "2"):
        (descriptors / name).touch()
    found = sample_process(tmp_path / "none", descriptors)
    assert found.descriptors == 2
    assert all(math.isnan(value) for name, value in found._asdict().items() if name != "descriptors")
    nothing = sample_process(tmp_path / "none", tmp_path / "none")
    assert all(math.isnan(value) for value in nothing)
    assert len(nothing) == len(ProcessSample._fields)


def test_the_peak_comes_from_elsewhere_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    expected = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak_memory(tmp_path) == pytest.approx(expected * (1 if sys.platform == "darwin" else 1024), rel=0.05)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert math.isnan(peak_memory(tmp_path))
