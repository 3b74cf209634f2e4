"""Instruction sets, asked of the CPU and told by the system."""

from __future__ import annotations

import mmap
import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1.runtime import instructions
from julia1.runtime.instructions import cpuinfo_features, decode, features

X86 = platform.machine().lower() in ("x86_64", "amd64")

NEHALEM = {(0, 0): (11, 0, 0, 0), (1, 0): (0, 0, 0x9802200 | 1 << 19 | 1 << 20 | 1 << 23, 0)}
AVX2 = {
    (0, 0): (7, 0, 0, 0),
    (1, 0): (0, 0, 1 << 12 | 1 << 19 | 1 << 20 | 1 << 27 | 1 << 28, 0),
    (7, 0): (0, 1 << 5, 0, 0),
}
SAPPHIRE = {
    **AVX2,
    (7, 0): (1, 1 << 5 | 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31, 1 << 11, 1 << 22 | 1 << 24 | 1 << 25),
    (7, 1): (1 << 4 | 1 << 5, 0, 0, 0),
}


def told(cpu: dict[tuple[int, int], tuple[int, int, int, int]], state: int = 0) -> frozenset[str]:
    return decode(lambda leaf, sub: cpu.get((leaf, sub), (0, 0, 0, 0)), lambda: state)


def test_a_cpu_without_avx() -> None:
    def never() -> int:
        raise AssertionError("XGETBV is an illegal instruction here")

    found = decode(lambda leaf, sub: NEHALEM.get((leaf, sub), (0, 0, 0, 0)), lambda: 0)
    assert {"sse4_1", "sse4_2", "popcnt"} <= found
    assert not found & {"avx", "avx2", "fma", "avx512f"}
    old = {**NEHALEM, (1, 0): (0, 0, 1 << 20, 0)}  # no OSXSAVE
    assert decode(lambda leaf, sub: old.get((leaf, sub), (0, 0, 0, 0)), never) == {"sse4_2"}


def test_what_the_system_does_not_save_may_not_be_used() -> None:
    assert "avx2" in told(AVX2, 0x7)
    assert "avx2" not in told(AVX2, 0x3)
    assert {"avx512_vnni", "avx_vnni", "amx_int8", "avx512_bf16"} <= told(SAPPHIRE, 0x600E7)
    assert not told(SAPPHIRE, 0xE7) & {"amx_int8", "amx_tile"}
    assert told(SAPPHIRE, 0x7) & {"avx512_vnni", "avx_vnni"} == {"avx_vnni"}


def test_leaves_that_a_cpu_does_not_have_are_not_read_as_features() -> None:
    """An old CPU answers a leaf beyond its last with that of the last one."""
    assert "avx2" not in decode(lambda leaf, sub: (4, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), lambda: 0xFFFFFFFF)
    sixteen = {**SAPPHIRE, (7, 0): (0, *SAPPHIRE[7, 0][1:])}
    assert "avx_vnni" not in told(sixteen, 0x600E7)


@pytest.mark.skipif(not X86, reason="CPUID is of x86-64")
def test_this_cpu_says_what_the_system_says() -> None:
    asked, said = instructions._x86_features(), cpuinfo_features()
    assert asked
    if said:
        assert asked == said & set(instructions._X86)


@pytest.mark.skipif(not X86, reason="CPUID is of x86-64")
def test_a_system_that_allows_no_executable_memory_is_read_from_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError("execmem")

    asked = features("x86_64")
    monkeypatch.setattr(mmap, "mmap", refused)
    assert instructions._x86_features() == frozenset()
    monkeypatch.setattr(instructions, "_cpuinfo", lambda: "flags\t\t: sse4_2 avx2 avx_vnni\n")
    assert features("x86_64") == {"sse4_2", "avx2", "avx_vnni", "vnni"}
    assert instructions.name("x86_64") == platform.processor()
    monkeypatch.setattr(instructions, "_cpuinfo", lambda: "")
    assert features("x86_64") <= asked


@given(st.text())
def test_any_cpuinfo_is_read(text: str) -> None:
    assert isinstance(cpuinfo_features(text), frozenset)


def test_features_of_a_cpu_that_nothing_tells_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_cpuinfo", lambda: "isa : rv64imafdc\n")
    monkeypatch.setattr(instructions, "_numpy_features", frozenset)
    assert features("riscv64") == frozenset()
