"""Cores that this process may use, by affinity and cgroup."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from julia1.runtime import cpu, probe, usable_cores


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

    def cores(self) -> int:
        return usable_cores(self.proc, self.cgroup)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cpu, "_core", str)
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
    (machine.cgroup / "cpu").mkdir()
    (machine.cgroup / "cpu/cpu.cfs_quota_us").write_text(quota + "\n")
    (machine.cgroup / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert machine.cores() == cores


def test_affinity_counts_and_not_the_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
    assert machine.cores() == 1


def test_hyper_threads_of_one_core_count_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_core", lambda number: str(number // 2))
    assert machine.cores() == 4


def test_a_system_without_affinity_falls_back_on_the_cpu_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine.cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


def test_probe_describes_this_machine() -> None:
    found = probe()
    assert found.cores >= 1
    assert found is probe()
    assert found.architecture not in ("amd64", "arm64", "x64")
    if found.features & {"avx512_vnni", "avx_vnni"}:
        assert "vnni" in found.features
    elif found.architecture == "x86_64":
        assert "vnni" not in found.features


@pytest.mark.parametrize(
    ("machine_name", "architecture"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("ppc64le", "ppc64le")]
)
def test_architectures_go_by_one_name(monkeypatch: pytest.MonkeyPatch, machine_name: str, architecture: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine_name)
    assert probe.__wrapped__().architecture == architecture
