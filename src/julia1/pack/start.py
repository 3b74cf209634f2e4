"""Starts julia1 in a box, after a look at whether this Python, system and CPU are those the box was packed for.

The scripts ``julia1`` and ``julia1.cmd`` run this file by its path, with ``-I -S``: neither the current folder nor
packages of the machine can come between. Up to the check it must run on any Python from 3.6.
"""

import contextlib
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

_LIB = Path(__file__).resolve().parents[2]
_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "win"}
_MACHINES = {"linux-amd64": "linux-x86_64", "linux-arm64": "linux-aarch64", "win-x86_64": "win-amd64"}
_BASELINE = ("pni", "ssse3", "sse4_1", "sse4_2", "popcnt")
"""Of x86-64-v2, in which NumPy is built."""


def here() -> "dict[str, Any]":
    """What this Python is: its ``platform``, ``python``, ``implementation``, ``bits``, ``glibc`` and ``macos``."""
    name = _SYSTEMS.get(sys.platform, sys.platform) + "-" + platform.machine().lower()
    glibc = ""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # another C library has no such name
            glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc", "").strip()
    return {
        "platform": _MACHINES.get(name, name),
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "implementation": sys.implementation.name + ("t" if "t" in getattr(sys, "abiflags", "") else ""),
        "bits": 64 if sys.maxsize > 2**32 else 32,
        "glibc": glibc,
        "macos": platform.mac_ver()[0],
    }


def problem(box: "dict[str, Any]", found: "dict[str, Any]") -> str:
    """Why a box cannot run here, in one line that names the mend; empty when it can.

    Args:
        box: what its ``box.json`` says.
        found: as ``here`` returns it.
    """
    wanted, python = box["platform"], box["python"]
    other = f"name another by  PYTHON=/path/to/python{python}"
    if found["platform"] != wanted:
        return f"this box was packed for {wanted} and this is {found['platform']}: pack one by  julia1 pack --platform"
    if found["bits"] != 64:
        return f"this box needs a 64-bit Python and {sys.executable} has {found['bits']} bits: {other}"
    if found["implementation"] != "cpython":
        kind = "free-threaded" if found["implementation"] == "cpythont" else found["implementation"]
        return f"this box needs the usual CPython and {sys.executable} is {kind}: {other}"
    if found["python"] != python:
        return (
            f"this box was packed for Python {python} and {sys.executable} is {found['python']}: {other}, or pack one "
            f"by  julia1 pack --python {found['python']}"
        )
    for name, least in box["needs"].items():
        if _numbers(found[name]) < _numbers(least):
            has = found[name] or "another C library"
            return f"this box needs {name} {least} or newer and this system has {has}: run it on a newer system"
    return ""


def cpu_problem(lib: Path) -> str:
    """Why the CPU cannot run what is in ``lib``, which would end in an illegal instruction; empty when it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ""
    # by its path: the package around it imports NumPy
    spec = importlib.util.spec_from_file_location("_instructions", lib / "julia1" / "runtime" / "instructions.py")
    assert spec is not None and spec.loader is not None
    instructions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(instructions)
    found = instructions.features("x86_64")
    missing = [name for name in _BASELINE if name not in found]
    if not found or not missing:
        return ""
    return f"this CPU has no {', '.join(missing)}, which NumPy needs: take a machine with SSE4.2, of 2009 or newer"


def main() -> int:
    """Check, then run the command line."""
    box = json.loads((_LIB.parent / "box.json").read_text(encoding="utf-8"))
    wrong = problem(box, here()) or cpu_problem(_LIB)
    if wrong:
        sys.stderr.write(f"julia1: error: {wrong}\n")
        return 1
    sys.path.insert(0, str(_LIB))
    # for processes that julia1 starts itself
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_LIB), os.environ.get("PYTHONPATH")]))
    if not os.environ.get("JULIA1_MODEL"):
        os.environ["JULIA1_MODEL"] = str(_LIB.parent / "model")
    from julia1.cli import main as command_line

    return command_line()


def _numbers(version: str) -> "list[int]":
    return [int(part) for part in f"{version}.0".split(".")[:2] if part.isdigit()]


if __name__ == "__main__":
    sys.exit(main())
