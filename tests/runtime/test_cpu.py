"""What the probe says of this machine."""

from __future__ import annotations

import platform

import pytest

from julia1.runtime import probe, usable_cores


def test_probe_describes_this_machine() -> None:
    found = probe()
    assert found is probe()
    assert 1 <= found.cores <= found.physical <= found.logical
    assert found.cores == usable_cores()
    assert found.architecture not in ("amd64", "arm64", "x64")
    assert found.memory is None or found.memory > 0
    if found.features & {"avx512_vnni", "avx_vnni"}:
        assert "vnni" in found.features
    elif found.architecture == "x86_64":
        assert "vnni" not in found.features


@pytest.mark.parametrize(
    ("machine_name", "architecture"), [("AMD64", "x86_64"), ("x86_64", "x86_64"), ("ppc64le", "ppc64le")]
)
def test_architectures_go_by_one_name(monkeypatch: pytest.MonkeyPatch, machine_name: str, architecture: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine_name)
    if architecture == "x86_64" != probe().architecture:
        pytest.skip("CPUID can only be asked of an x86-64 CPU")
    assert probe.__wrapped__().architecture == architecture
