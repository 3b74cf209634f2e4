"""What this machine can run and what not, and why, in words: for ``julia1 doctor``."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from julia1 import settings
from julia1.bundle import Bundle
from julia1.errors import EngineError, MissingExtraError
from julia1.runtime.cpu import Cpu
from julia1.runtime.engines import ENGINES, missing_engine
from julia1.runtime.plan import make_plan, thread_count
from julia1.runtime.tuned import engine_version
from julia1.runtime.variants import missing_needs

INSTRUCTIONS = {
    "x86_64": {
        "sse4_2": "SSE4.2",
        "avx": "AVX",
        "avx2": "AVX2",
        "fma": "FMA",
        "avx512f": "AVX-512",
        "avx512_vnni": "AVX-512 VNNI",
        "avx_vnni": "AVX-VNNI",
        "avx512_bf16": "AVX-512 BF16",
        "amx_int8": "AMX-INT8",
        "amx_bf16": "AMX-BF16",
    },
    "aarch64": {
        "asimd": "NEON",
        "asimdhp": "FP16",
        "asimddp": "dot product",
        "i8mm": "I8MM",
        "bf16": "BF16",
        "sve": "SVE",
        "sve2": "SVE2",
        "sme": "SME",
    },
}
"""The instruction sets that matter, by architecture: Linux name to common name."""

TRIAL_SECONDS = 300
_OLDEST_GLIBC = (2, 27)
_TRIAL = """
import sys
from julia1.runtime import load
load(sys.argv[1], variant=sys.argv[2], engine=sys.argv[3], tuned=False)
"""
_SMALL_MEMORY = 512 << 20


@dataclass(frozen=True)
class VariantReport:
    """Whether a variant runs here.

    Attributes:
        name, engine, precision: of the variant.
        runs: whether it does.
        why: what speaks against it, or what it was tried with.
        chosen: whether ``load`` takes it.
    """

    name: str
    engine: str
    precision: str
    runs: bool
    why: str
    chosen: bool


@dataclass(frozen=True)
class Report:
    """What ``examine`` found.

    Attributes:
        machine: system, architecture, CPU, C library, Python.
        instructions: common name to whether the CPU has it and the system allows it.
        cores: ``logical``, ``physical``, ``quota``, ``usable``; ``threads`` by default, ``shared`` beside others.
        memory: bytes that this process may use, if known.
        engines: name to version, or to why it is not there.
        bundle: name and version of the model.
        variants: each one of the bundle.
        notes: what the user should know, in sentences.
    """

    machine: dict[str, str]
    instructions: dict[str, bool]
    cores: dict[str, Any]
    memory: int | None
    engines: dict[str, dict[str, str]]
    bundle: str
    variants: list[VariantReport]
    notes: list[str]

    @property
    def runs(self) -> bool:
        """Whether any variant does."""
        return any(variant.runs for variant in self.variants)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "runs": self.runs}


def examine(bundle: Bundle, cpu: Cpu, trial: bool = True) -> Report:
    """Look at the machine and at what a bundle needs.

    Args:
        bundle: the model.
        cpu: the probed CPU.
        trial: load each variant that should run in a process of its own and let it read a text. A process that dies of
            an illegal instruction takes nothing with it.
    """
    chosen, problem = None, ""
    try:
        chosen = make_plan(bundle, cpu)
    except (EngineError, MissingExtraError) as error:
        problem = str(error)
    variants = []
    for variant in bundle.manifest.variants:
        why = missing_needs(variant, cpu) or missing_engine(variant.engine)
        runs = not why
        if runs and trial:
            why = try_variant(bundle.source, variant.name, variant.engine)
            runs, why = not why, why or "loaded and tried"
        taken = chosen is not None and chosen.variant.name == variant.name
        variants.append(VariantReport(variant.name, variant.engine, variant.precision, runs, why, taken))
    known = INSTRUCTIONS.get(cpu.architecture, {})
    libc, version = platform.libc_ver()
    machine = {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": cpu.architecture,
        "cpu": cpu.name or "unknown",
        "libc": f"{libc} {version}".strip() or "unknown",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    cores = {
        "logical": cpu.logical,
        "physical": cpu.physical,
        "quota": cpu.quota,
        "usable": cpu.cores,
        "threads": None if chosen is None else chosen.threads,
        "shared": thread_count("share", cpu),
    }
    engines = {name: {"version": engine_version(name), "problem": missing_engine(name)} for name in ENGINES}
    return Report(
        machine,
        {common: name in cpu.features for name, common in known.items()},
        cores,
        cpu.memory,
        engines,
        f"{bundle.manifest.name} {bundle.manifest.version}",
        variants,
        [
            *([problem] if problem else []),
            *notes(cpu, variants, libc, version),
            *([f"{chosen.variant.name} is taken: {chosen.reason}"] if chosen else []),
        ],
    )


def notes(cpu: Cpu, variants: Sequence[VariantReport], libc: str, version: str) -> list[str]:
    """What the user should know about this machine, in sentences."""
    found = []
    if cpu.architecture not in INSTRUCTIONS:
        found.append(f"there are no packages of the engines for {cpu.architecture}: they must be built from source")
    elif not cpu.features:
        found.append("the system does not tell what the CPU can do: only what every CPU runs is used")
    elif cpu.architecture == "x86_64" and "sse4_2" not in cpu.features:
        found.append("the CPU has no SSE4.2, which the packages of NumPy and ONNX Runtime need")
    elif cpu.architecture == "x86_64" and "vnni" not in cpu.features:
        found.append(
            "the CPU has no 8-bit dot product (VNNI): int8 sums would overflow, so fp32 runs, at about half the speed"
        )
    if sys.maxsize < 1 << 32:
        found.append("this Python has 32 bits: there are no packages of the engines for it")
    if platform.system() == "Linux" and not libc:
        found.append("this system has no glibc (musl?): ONNX Runtime has no packages for it")
    elif libc == "glibc" and tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST_GLIBC:
        found.append(f"glibc {version} is older than the packages of ONNX Runtime allow (2.27, newer ones 2.28)")
    if cpu.quota is not None and cpu.quota < 1:
        found.append(
            f"a cgroup grants {cpu.quota:g} of a CPU: decisions pause when it is used up, whatever the threads"
        )
    elif cpu.quota is not None and cpu.quota < cpu.physical:
        found.append(f"a cgroup grants {cpu.quota:g} CPUs of {cpu.physical}: threads beyond that would only wait")
    if cpu.logical > cpu.physical:
        found.append(f"{cpu.logical} logical CPUs are {cpu.physical} cores: hyper-threads do not add to products")
    if (os.cpu_count() or 1) > cpu.logical:
        found.append(f"this process may use {cpu.logical} of {os.cpu_count()} CPUs (affinity or cpuset)")
    if cpu.memory is not None and cpu.memory < _SMALL_MEMORY:
        found.append(
            f"{cpu.memory >> 20} MB of memory is little: the bundled model takes about 200 MB in int8, 450 in fp32"
        )
    set_here = {"JULIA1_VARIANT": settings.variant(), "JULIA1_ENGINE": settings.engine()}
    found += [f"{name} is set to {value}" for name, value in set_here.items() if value]
    if settings.threads():
        found.append(f"JULIA1_THREADS is set to {settings.threads()}")
    found += [f"{variant.name}: {variant.why}" for variant in variants if not variant.runs]
    return found


def try_variant(bundle: Path, variant: str, engine: str) -> str:
    """Load a variant in a process of its own and let it read a text; what went wrong, else ''."""
    path = os.pathsep.join(str(place) for place in sys.path if place)
    command = [sys.executable, "-c", _TRIAL, str(bundle), variant, engine]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {TRIAL_SECONDS} seconds"
    except OSError as error:
        return f"it could not be tried: {error}"
    if done.returncode < 0:
        return f"it {death(-done.returncode)}"
    if done.returncode in (128 + signal.SIGILL, 128 + signal.SIGSEGV):
        return f"it {death(done.returncode - 128)}"
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else f"it ended with {done.returncode}"
    return ""


def death(number: int) -> str:
    """How a process died that a signal ended, in words."""
    if number == signal.SIGILL:
        return "died of an illegal instruction: a package was built for a newer CPU"
    name = signal.Signals(number).name if number in {item.value for item in signal.Signals} else str(number)
    return f"died of {name}"
