"""Which wheels go into a box: pinned by ``wheels.json`` beside this file, which ``scripts/lock-wheels`` writes."""

from __future__ import annotations

import difflib
import json
import platform as system
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from julia1.content import shown
from julia1.errors import InputError

LOCK_FILE = Path(__file__).with_name("wheels.json")

PLATFORMS = ("linux-aarch64", "linux-x86_64", "macos-arm64", "win-amd64")

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_SYSTEMS = {
    ("linux", "aarch64"): "linux-aarch64",
    ("linux", "x86_64"): "linux-x86_64",
    ("darwin", "aarch64"): "macos-arm64",
    ("win32", "x86_64"): "win-amd64",
}
# PEP 600, and the names that it replaced
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_\w+")
_OLD_GLIBC = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_MACOS = re.compile(r"macosx_(\d+)_(\d+)_\w+")


@dataclass(frozen=True)
class Pin:
    """A wheel that goes into a box.

    Attributes:
        file: its file name, which carries name, version and tags.
        sha256: of its bytes.
    """

    file: str
    sha256: str

    @property
    def name(self) -> str:
        """Of the package."""
        return self.file.split("-")[0]

    @property
    def version(self) -> str:
        """Of the package."""
        return self.file.split("-")[1]

    @property
    def tags(self) -> tuple[str, ...]:
        """The platforms that it runs on, as wheels call them; ``any`` for all."""
        return tuple(self.file.removesuffix(".whl").split("-")[-1].split("."))


def pins(platform: str, python: str) -> tuple[Pin, ...]:
    """The wheels of a box, sorted by name.

    Args:
        platform: one of ``PLATFORMS``.
        python: the target's Python, as ``3.11``.

    Raises:
        InputError: no such platform, or no wheels for that Python there.
    """
    if platform not in PLATFORMS:
        near = difflib.get_close_matches(platform, PLATFORMS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(PLATFORMS)}"
        raise InputError(f"unknown platform {shown(platform)}: {hint}")
    known: Mapping[str, Mapping[str, str]] = json.loads(LOCK_FILE.read_text(encoding="utf-8"))[platform]
    if python not in known:
        raise InputError(
            f"there are no wheels of Python {shown(python)} for {platform}: name one of {', '.join(known)}, the one "
            "that the target has"
        )
    return tuple(Pin(file, sha256) for file, sha256 in sorted(known[python].items()))


def needs(wheels: Iterable[Pin]) -> dict[str, str]:
    """What the system must have for the wheels: the least version of ``glibc`` or ``macos``, where there is one."""
    least: dict[str, tuple[int, int]] = {}
    for pin in wheels:
        found = [need for need in map(_need, pin.tags) if need]
        if found:  # a wheel of several tags runs where any of them does
            kind, version = min(found)
            least[kind] = max(least.get(kind, version), version)
    return {kind: f"{major}.{minor}" for kind, (major, minor) in sorted(least.items())}


def this_platform() -> str | None:
    """The platform of this machine; ``None`` when no box is made for its kind."""
    machine = system.machine().lower()
    return _SYSTEMS.get((sys.platform, _MACHINES.get(machine, machine)))


def this_python() -> str:
    """The version of this Python, as ``3.11``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _need(tag: str) -> tuple[str, tuple[int, int]] | None:
    for kind, pattern in (("glibc", _GLIBC), ("macos", _MACOS)):
        match = pattern.fullmatch(tag)
        if match:
            return kind, (int(match[1]), int(match[2]))
    old = _OLD_GLIBC.get(tag.partition("_")[0])
    return ("glibc", old) if old else None
