"""Cores and memory that this process may use, by affinity and cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from julia1.runtime import limits, usable_cores
from julia1.runtime.limits import cpu_quota, memory_limit


class Machine:
    """A made-up /proc and /sys/fs/cgroup, and cores without hyper-threads."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroup = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.cgroup.mkdir()

    def group(self, text: str) -> None:
        (self.proc / "self/cgroup").write_text(text)

    def limit(self, level: str, text: str) -> None:
        (self.cgroup / level).mkdir(parents=True, exist_ok=True)
        (self.cgroup / level / "cpu.max").write_text(text)

    def limit_1(self, controller: str, level: str, quota: str) -> None:
        folder = self.cgroup / controller / level
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.cfs_quota_us").write_text(quota + "\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")

    def cores(self) -> int:
        return usable_cores(self.proc, self.cgroup)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(limits, "core_of", str)
    return Machine(tmp_path)


def test_without_a_cgroup_all_allowed_cores_count(machine: Machine) -> None:
    assert machine.cores() == 8


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("200000 100000\n", 2),
        ("250000 100000\n", 2),
        ("50000 100000\n", 1),
        ("max 100000\n", 8),
        ("6400000 100000\n", 8),
        ("1000000 500000\n", 2),
        ("nonsense\n", 8),
        ("", 8),
    ],
)
def test_cgroup_2_quota(machine: Machine, limit: str, cores: int) -> None:
    machine.group("0::/app\n")
    machine.limit("app", limit)
    assert machine.cores() == cores


def test_the_tightest_level_of_a_cgroup_2_tree_counts(machine: Machine) -> None:
    machine.group("0::/kube/pod/app\n")
    machine.limit("kube", "700000 100000")
    machine.limit("kube/pod", "300000 100000")
    machine.limit("kube/pod/app", "max 100000")
    machine.limit("kube/other", "100000 100000")
    assert machine.cores() == 3


def test_a_container_sees_its_own_quota_at_the_root(machine: Machine) -> None:
    machine.group("0::/\n")
    machine.limit(".", "200000 100000")
    assert machine.cores() == 2


@pytest.mark.parametrize("group", ["0::/../../elsewhere\n", "garbage\n", ""])
def test_a_group_that_is_not_there_sets_no_limit(machine: Machine, group: str) -> None:
    machine.group(group)
    assert machine.cores() == 8


@pytest.mark.parametrize(("quota", "cores"), [("300000", 3), ("-1", 8), ("50000", 1), ("x", 8)])
def test_cgroup_1_quota(machine: Machine, quota: str, cores: int) -> None:
    machine.group("4:cpu,cpuacct:/docker/1234\n")
    machine.limit_1("cpu", ".", quota)
    assert machine.cores() == cores


@pytest.mark.parametrize("own", ["200000", "-1"])
def test_the_tightest_level_of_a_cgroup_1_tree_counts(machine: Machine, own: str) -> None:
    machine.group("4:cpu,cpuacct:/kube/pod\n2:memory:/\n")
    machine.limit_1("cpu", "kube", "300000")
    machine.limit_1("cpu", "kube/pod", own)
    assert machine.cores() == (2 if own == "200000" else 3)


def test_a_hybrid_of_both_cgroups_takes_the_tighter(machine: Machine) -> None:
    machine.group("4:cpu:/a\n0::/a\n")
    machine.limit("a", "500000 100000")
    machine.limit_1("cpu", "a", "400000")
    assert machine.cores() == 4


def test_a_share_of_a_cpu_is_one_core(machine: Machine) -> None:
    machine.group("0::/\n")
    machine.limit(".", "150000 100000")
    assert machine.cores() == 1
    assert cpu_quota(machine.proc, machine.cgroup) == 1.5


def test_affinity_counts_and_not_the_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
    assert machine.cores() == 1


def test_hyper_threads_of_one_core_count_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "core_of", lambda number: str(number // 2))
    assert machine.cores() == 4


def test_a_system_without_affinity_falls_back_on_the_cpu_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine.cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


GB = 1 << 30


def test_memory_is_the_tightest_of_machine_and_groups(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_address_space", lambda: None)
    (machine.proc / "meminfo").write_text("MemTotal:        8388608 kB\nMemFree: 1 kB\n")
    machine.group("0::/app\n4:memory:/app\n")
    assert memory_limit(machine.proc, machine.cgroup) == 8 * GB
    (machine.cgroup / "app").mkdir()
    (machine.cgroup / "app/memory.max").write_text("max\n")
    assert memory_limit(machine.proc, machine.cgroup) == 8 * GB
    (machine.cgroup / "memory/app").mkdir(parents=True)
    (machine.cgroup / "memory/app/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory_limit(machine.proc, machine.cgroup) == 8 * GB
    (machine.cgroup / "memory/app/memory.limit_in_bytes").write_text(f"{2 * GB}\n")
    assert memory_limit(machine.proc, machine.cgroup) == 2 * GB
    (machine.cgroup / "memory.max").write_text(f"{GB}\n")
    assert memory_limit(machine.proc, machine.cgroup) == GB


def test_a_limit_of_the_shell_counts(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_address_space", lambda: GB)
    (machine.proc / "meminfo").write_text("MemTotal: 8388608 kB\n")
    assert memory_limit(machine.proc, machine.cgroup) == GB
