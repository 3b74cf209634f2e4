"""The pins that ship with julia1, and what wheels need of a system."""

from __future__ import annotations

import re

import pytest

from julia1.pack import PLATFORMS, this_platform
from julia1.pack.lock import Pin, needs, pins

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
RUNTIME = ["numpy", "onnxruntime", "pyyaml", "rich", "tokenizers"]
"""What julia1 declares, and nothing that these bring: none of that is imported."""


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_platform_has_every_wheel(platform: str, python: str) -> None:
    pinned = pins(platform, python)
    assert [pin.name for pin in pinned] == RUNTIME
    for pin in pinned:
        assert re.fullmatch(r"[0-9a-f]{64}", pin.sha256)
        interpreter = pin.file.split("-")[-3]
        assert interpreter in ("py3", "cp310", f"cp{python.replace('.', '')}")
        fits = {"linux-aarch64": "aarch64", "linux-x86_64": "x86_64", "macos-arm64": "arm64", "win-amd64": "win_amd64"}
        assert pin.tags == ("any",) or all(tag.endswith(fits[platform]) for tag in pin.tags)


def test_systems_of_the_last_years_suffice() -> None:
    assert {platform: needs(pins(platform, "3.11")) for platform in PLATFORMS} == {
        "linux-aarch64": {"glibc": "2.28"},
        "linux-x86_64": {"glibc": "2.28"},
        "macos-arm64": {"macos": "14.0"},
        "win-amd64": {},
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a-1-py3-none-any.whl"], {}),
        (["a-1-cp311-cp311-win_amd64.whl"], {}),
        (["a-1-cp311-cp311-manylinux1_x86_64.whl"], {"glibc": "2.5"}),
        (["a-1-cp311-cp311-manylinux_2_9_x86_64.manylinux_2_28_x86_64.whl"], {"glibc": "2.9"}),
        (["a-1-cp3-abi3-manylinux2014_aarch64.whl", "b-1-cp3-abi3-manylinux_2_5_aarch64.whl"], {"glibc": "2.17"}),
        (["a-1-cp311-cp311-macosx_11_0_arm64.whl", "b-1-cp311-cp311-macosx_10_9_universal2.whl"], {"macos": "11.0"}),
    ],
)
def test_needs_are_the_least_that_run_every_wheel(files: list[str], expected: dict[str, str]) -> None:
    assert needs(Pin(file, "") for file in files) == expected


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", "linux-x86_64"),
        ("linux", "aarch64", "linux-aarch64"),
        ("darwin", "arm64", "macos-arm64"),
        ("win32", "AMD64", "win-amd64"),
        ("darwin", "x86_64", None),
        ("linux", "riscv64", None),
    ],
)
def test_this_platform(monkeypatch: pytest.MonkeyPatch, system: str, machine: str, expected: str | None) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert this_platform() == expected
