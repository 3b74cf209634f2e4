"""How much of the machine this process may use: cores by affinity, hyper-threads and cgroup, and memory.

cgroup v2 (``cpu.max``, ``memory.max``) and v1 (``cpu.cfs_quota_us``, ``memory.limit_in_bytes``) count at every level
from the process's own group to the root, since a limit anywhere above binds too. Sources: kernel.org, ``cgroup-v2`` and
``cgroup-v1`` of the admin guide.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""cgroup v1 writes a number of about 2^63 where there is no limit."""


def allowed_cpus() -> list[int]:
    """Logical CPUs that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_of(cpu: int) -> str:
    """A text that the hyper-threads of one core share."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def usable_cores(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Physical cores within this process's affinity, cut by its cgroup quota; at least 1."""
    return cut(physical_cores(allowed_cpus()), cpu_quota(proc, cgroup))


def physical_cores(cpus: Sequence[int]) -> int:
    """Cores that these logical CPUs belong to."""
    return len({core_of(cpu) for cpu in cpus})


def cut(cores: int, quota: float | None) -> int:
    """So many of the cores as a quota of CPUs keeps busy, at least 1."""
    return max(1, cores if quota is None else min(cores, int(quota)))


def cpu_quota(proc: Path = PROC, root: Path = CGROUP) -> float | None:
    """CPUs granted by cgroups, such as 1.5; ``None`` without a limit."""
    quotas = [_quota_2(level) for level in _levels(proc, root, "")]
    quotas += [_quota_1(level) for level in _levels(proc, root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit(proc: Path = PROC, root: Path = CGROUP) -> int | None:
    """Bytes that this process may use: the least of cgroups, ``ulimit -v`` and the machine's memory; ``None`` where
    nothing tells."""
    limits = [_address_space(), _physical(proc)]
    limits += [_bytes(level / "memory.max") for level in _levels(proc, root, "")]
    limits += [_bytes(level / "memory.limit_in_bytes") for level in _levels(proc, root, "memory")]
    return min((limit for limit in limits if limit is not None), default=None)


def _quota_2(level: Path) -> float | None:
    try:
        quota, period = (level / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_1(level: Path) -> float | None:
    try:
        micros = int((level / "cpu.cfs_quota_us").read_text())
        return micros / int((level / "cpu.cfs_period_us").read_text()) if micros > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _bytes(file: Path) -> int | None:
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):  # v2 writes "max"
        return None
    return limit if limit < _UNLIMITED else None


def _levels(proc: Path, root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group in the hierarchy of a v1 controller, or of v2 for '', up to its root."""
    top, group = root / controller, ""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            group = path.lstrip("/")
    # a container sees its own group as the root, and the path of the host that it reads is not there
    folder = Path(os.path.normpath(top / group))
    for level in (folder, *folder.parents):
        if top not in (level, *level.parents):
            break
        yield level
    if top not in (folder, *folder.parents):
        yield top


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _physical(proc: Path) -> int | None:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
