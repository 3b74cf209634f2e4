"""What this machine's CPU is and how much of it this process may use."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache

from julia1.runtime import instructions
from julia1.runtime.limits import allowed_cpus, cpu_quota, cut, memory_limit, physical_cores

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Cpu:
    """A CPU as the choice of a variant sees it.

    Attributes:
        architecture: ``x86_64``, ``aarch64`` or what the platform says.
        features: instruction sets by their Linux names; on x86-64 also ``vnni`` when any 8-bit dot product exists.
            Empty where the system does not tell.
        cores: physical cores that this process may use, at least 1: those of its affinity, hyper-threads counted
            once, cut by the cgroup quota.
        name: what the maker calls it; may be empty.
        logical: CPUs that the scheduler may use, hyper-threads counted.
        physical: physical cores of these, before the quota.
        quota: CPUs granted by cgroups, ``None`` without a limit.
        memory: bytes that this process may use, ``None`` where nothing tells.
    """

    architecture: str
    features: frozenset[str]
    cores: int
    name: str = ""
    logical: int = 1
    physical: int = 1
    quota: float | None = None
    memory: int | None = None


@lru_cache(maxsize=1)
def probe() -> Cpu:
    """Read the CPU once. Affinity and cgroup limits are those at the first call."""
    machine = platform.machine().lower()
    architecture = _ARCHITECTURES.get(machine, machine)
    allowed, quota = allowed_cpus(), cpu_quota()
    physical = physical_cores(allowed)
    return Cpu(
        architecture,
        instructions.features(architecture),
        cut(physical, quota),
        instructions.name(architecture),
        len(allowed),
        physical,
        quota,
        memory_limit(),
    )
