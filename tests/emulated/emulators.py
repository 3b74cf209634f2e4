"""The CPUs that the packed box is run on under qemu's user-mode emulation."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ARM_ROOT = TESTS.parents[1] / "build" / "arm64-root"

VZEROUPPER, VPAND_YMM, VPXORD_ZMM = "c5f877", "c5fddbc0", "62f17d48efc0"
"""An instruction each of AVX, AVX2 and AVX-512, in hexadecimal."""


@dataclass(frozen=True)
class EmulatedCpu:
    """A CPU as qemu has it.

    Attributes:
        model: its name to qemu.
        platform: of the box that it runs.
        variant: of the bundled model that must be chosen.
        runs, dies: machine code that it must execute and must not, which shows that the emulation is one.
    """

    model: str
    platform: str
    variant: str
    runs: tuple[str, ...] = ()
    dies: tuple[str, ...] = ()


CPUS = {
    "nehalem": EmulatedCpu("Nehalem", "linux-x86_64", "fp32", (), (VZEROUPPER, VPAND_YMM, VPXORD_ZMM)),
    "haswell": EmulatedCpu("Haswell", "linux-x86_64", "fp32", (VZEROUPPER, VPAND_YMM), (VPXORD_ZMM,)),
    # qemu 7.2 emulates no AVX-512, and its CPUID says so: here it is another Haswell
    "cascadelake": EmulatedCpu("Cascadelake-Server", "linux-x86_64", "fp32", (VZEROUPPER, VPAND_YMM), (VPXORD_ZMM,)),
    "cortex-a53": EmulatedCpu("cortex-a53", "linux-aarch64", "int8"),
    "cortex-a72": EmulatedCpu("cortex-a72", "linux-aarch64", "int8"),
    "neoverse-n1": EmulatedCpu("neoverse-n1", "linux-aarch64", "int8"),
}

TOO_OLD = EmulatedCpu("core2duo", "linux-x86_64", "none")
"""Without SSE4.2."""


def missing(cpu: EmulatedCpu) -> str:
    """Why this machine cannot emulate a CPU; empty when it can."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"made for Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    if shutil.which(_emulator(cpu)) is None:
        return f"{_emulator(cpu)} is not installed: apt-get install qemu-user"
    if cpu.platform == "linux-aarch64" and shutil.which("dpkg-deb") is None:
        return "an arm64 Python comes from Debian's packages, and this is no Debian"
    return ""


def emulated_python(cpu: EmulatedCpu, place: Path) -> Path:
    """Write a script to ``place`` that is Python on that CPU."""
    command = [_emulator(cpu), "-cpu", cpu.model]
    if cpu.platform == "linux-aarch64":
        if not ARM_ROOT.exists():
            subprocess.run([TESTS / "arm64-root", ARM_ROOT], check=True)
        command += ["-L", str(ARM_ROOT), str(ARM_ROOT / "usr/bin/python3")]
    else:
        command.append(str(Path(sys.executable).resolve()))
    place.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
    place.chmod(0o755)
    return place


def said(stderr: str) -> Sequence[str]:
    """What the program itself wrote: the lines that are not qemu's, which warns of what it does not emulate."""
    return [line for line in stderr.splitlines() if not line.startswith(("qemu-x86_64: warning", "qemu-aarch64: "))]


def _emulator(cpu: EmulatedCpu) -> str:
    return "qemu-" + cpu.platform.removeprefix("linux-")
