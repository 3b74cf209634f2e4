"""What this machine's CPU is and how much of it this process may use."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_VNNI = frozenset({"avx512_vnni", "avx_vnni"})


@dataclass(frozen=True)
class Cpu:
    """A CPU as the choice of a variant sees it.

    Attributes:
        architecture: ``x86_64``, ``aarch64`` or what the platform says.
        features: instruction sets by their Linux names; on x86-64 also ``vnni`` when any 8-bit dot product exists.
            Empty where the system does not tell.
        cores: physical cores that this process may use, at least 1.
    """

    architecture: str
    features: frozenset[str]
    cores: int


@lru_cache(maxsize=1)
def probe() -> Cpu:
    """Read the CPU once. Affinity and cgroup quota are those at the first call."""
    machine = platform.machine().lower()
    architecture = _ARCHITECTURES.get(machine, machine)
    return Cpu(architecture, _features(), usable_cores())


def usable_cores(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Physical cores within this process's affinity, cut by its cgroup quota; at least 1."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    cores = len({_core(cpu) for cpu in allowed})
    quota = _quota(proc, cgroup)
    return max(1, cores if quota is None else min(cores, int(quota)))


def _core(cpu: int) -> str:
    """Hyper-threads of one core share this text."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota(proc: Path, root: Path) -> float | None:
    """CPUs granted by cgroup v2 (any level up to the root) or v1; ``None`` without a limit."""
    limits = []
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    group = next((line.split(":", 2)[2].lstrip("/") for line in lines if line.startswith("0::")), "")
    folder = root / group
    for level in (folder, *folder.parents):
        if root not in (level, *level.parents):
            break
        try:
            quota, period = (level / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            limits.append(int(quota) / int(period))
    try:
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            limits.append(quota_us / int((root / "cpu/cpu.cfs_period_us").read_text()))
    except (OSError, ValueError):
        pass
    return min(limits) if limits else None


def _features() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    found = frozenset(match.group(1).split()) if match else frozenset()
    return found | {"vnni"} if found & _VNNI else found
