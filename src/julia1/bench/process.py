"""What the system says of this process: memory, open descriptors, threads. What it does not say is NaN."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

_KIB = re.compile(r"(?m)^(\w+):\s+(\d+) kB")
_OWN_DESCRIPTOR = 1
"""What listing a folder of descriptors opens itself."""


class ProcessSample(NamedTuple):
    """One look at a process. NaN is what the system does not tell.

    Attributes:
        resident: resident memory in bytes (RSS).
        swapped: bytes of it that were moved to swap.
        shared_out: proportional set size in bytes (PSS): a page of several processes counts as its share.
        descriptors: open file descriptors.
        threads: of Python and of every library.
        machine_busy: CPU seconds that all processes of the machine have taken since it started.
    """

    resident: float = math.nan
    swapped: float = math.nan
    shared_out: float = math.nan
    descriptors: float = math.nan
    threads: float = math.nan
    machine_busy: float = math.nan


def sample_process(proc: Path = Path("/proc"), descriptors: Path = Path("/dev/fd")) -> ProcessSample:
    """Look at this process, on Linux in full, on macOS at its descriptors alone."""
    status = _read(proc / "self/status")
    # the counters of status lag by a few hundred kB a thread; these are counted page by page
    exact = dict(_KIB.findall(_read(proc / "self/smaps_rollup")))
    rough = dict(_KIB.findall(status))
    threads = re.search(r"(?m)^Threads:\s+(\d+)", status)
    return ProcessSample(
        resident=_bytes(exact.get("Rss") or rough.get("VmRSS")),
        swapped=_bytes(exact.get("Swap") or rough.get("VmSwap")),
        shared_out=_bytes(exact.get("Pss")),
        descriptors=_descriptors(proc / "self/fd", descriptors),
        threads=float(threads.group(1)) if threads else math.nan,
        machine_busy=_machine_busy(proc),
    )


def peak_memory(proc: Path = Path("/proc")) -> float:
    """Largest resident memory of this process so far, in bytes; NaN where the system does not tell."""
    found = dict(_KIB.findall(_read(proc / "self/status"))).get("VmHWM")
    if found:
        return _bytes(found)
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return math.nan
    peak = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else peak * 1024


def _descriptors(*folders: Path) -> float:
    for folder in folders:
        with contextlib.suppress(OSError):
            return float(sum(1 for _ in folder.iterdir()) - _OWN_DESCRIPTOR)
    return math.nan


def _machine_busy(proc: Path) -> float:
    fields = _read(proc / "stat").partition("\n")[0].split()
    if len(fields) < 6 or fields[0] != "cpu":
        return math.nan
    # user and nice hold guests already; idle and iowait are the fourth and fifth
    ticks = [float(field) for field in fields[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _read(place: Path) -> str:
    try:
        return place.read_text()
    except OSError:
        return ""


def _bytes(kib: str | None) -> float:
    return math.nan if kib is None else float(kib) * 1024
