"""The packed box on CPUs that this machine is not: it decides rightly, and never meets an illegal instruction.

``JULIA1_EMULATED`` names the CPUs, ``nehalem`` without it; ``tests/emulated/run`` sets it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulators import CPUS, TOO_OLD, EmulatedCpu, emulated_python, missing, said
from pack_samples import unpack

from julia1.cli.app import main
from julia1.pack import pack

pytestmark = pytest.mark.slow

SELECTED = os.environ.get("JULIA1_EMULATED", "nehalem").split()

STATES = {
    "I was charged twice for one order and want my money back": "billing",
    "My parcel has not arrived yet, where is it?": "shipping",
    "The app crashes whenever I open it": "technical support",
}
QUESTION = (
    *("--choice", "Which team handles this?", "billing: charges and refunds", "shipping: parcels and delivery"),
    "technical support: errors and crashes",
)
# Machine code, given in hexadecimal, in executable memory of its own
_EXECUTE = """
import ctypes, mmap, sys
memory = mmap.mmap(-1, 4096, prot=7)
memory.write(bytes.fromhex(sys.argv[1]) + b"\\xc3")
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Packs the bundled model for a platform and Python, from the package index, once each; the unzipped folder."""
    done: dict[tuple[str, str], Path] = {}

    def boxes(platform: str, python: str) -> Path:
        if (platform, python) not in done:
            folder = tmp_path_factory.mktemp(platform)
            box = pack(None, folder / "box.zip", platform=platform, python=python)
            unpack(box.path, folder)
            done[platform, python] = folder / box.folder
        return done[platform, python]

    return boxes


@pytest.fixture(params=SELECTED)
def cpu(request: pytest.FixtureRequest) -> EmulatedCpu:
    found = CPUS[request.param]
    if missing(found):
        pytest.skip(missing(found))
    return found


@pytest.fixture
def run(tmp_path: Path, boxes: Callable[[str, str], Path]) -> Run:
    """Runs the start script of the box on an emulated CPU, or on this machine's own without one."""

    def run(cpu: EmulatedCpu, *arguments: str, emulate: bool = True) -> subprocess.CompletedProcess[str]:
        python = emulated_python(cpu, tmp_path / "python") if emulate else None
        box = boxes(cpu.platform, python_version(cpu, tmp_path))
        return execute([str(box / "julia1"), *arguments], python)

    return run


def execute(command: list[str], python: Path | None) -> subprocess.CompletedProcess[str]:
    # kernels that were named for the CPU of this machine would be taken on the emulated one too
    unset = ("OPENBLAS_CORETYPE", "JULIA1_MODEL", "JULIA1_VARIANT", "JULIA1_THREADS", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["OMP_NUM_THREADS"] = "1"
    if python is not None:
        environment["PYTHON"] = str(python)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def python_version(cpu: EmulatedCpu, folder: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return execute([str(emulated_python(cpu, folder / "python")), "-c", code], None).stdout.strip()


def answers(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["answers"]["choice"] for line in done.stdout.splitlines()]


@pytest.fixture
def rows(tmp_path: Path) -> str:
    place = tmp_path / "rows.jsonl"
    place.write_text("".join(f"{json.dumps(state)}\n" for state in STATES))
    return str(place)


def test_emulation_dies_of_what_the_cpu_has_not(cpu: EmulatedCpu, tmp_path: Path) -> None:
    python = str(emulated_python(cpu, tmp_path / "python"))
    for code in cpu.runs:
        assert execute([python, "-c", _EXECUTE, code], None).returncode == 0, code
    for code in cpu.dies:
        assert execute([python, "-c", _EXECUTE, code], None).returncode in (-4, 132), code


def test_box_decides_rightly_with_the_variant_of_the_cpu(cpu: EmulatedCpu, run: Run, rows: str) -> None:
    shown = json.loads(run(cpu, "models", "show", "--json").stdout)
    assert shown["here"]["variant"] == cpu.variant
    there = answers(run(cpu, "decide", "--input", rows, *QUESTION))
    assert [answer["choice"] for answer in there] == list(STATES.values())
    if cpu.platform == "linux-x86_64":  # the same box runs on this machine itself
        here = answers(run(cpu, "decide", "--input", rows, "--variant", cpu.variant, *QUESTION, emulate=False))
        for own, emulated in zip(here, there, strict=True):
            assert emulated["probabilities"] == pytest.approx(own["probabilities"], abs=1e-4)


def test_a_golden_file_of_this_machine_holds_on_the_cpu(
    cpu: EmulatedCpu, run: Run, rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = str(tmp_path / "golden.json.gz")
    assert main(["golden", "make", "-o", golden, "--data", rows, *QUESTION, "--threads", "1"]) == 0
    capsys.readouterr()
    done = run(cpu, "golden", "check", golden, "--json")
    assert done.returncode == 0, done.stderr
    status = {variant["name"]: variant["status"] for variant in json.loads(done.stdout)["variants"]}
    assert status["fp32"] == "same"
    assert status["int8"] == ("same" if cpu.variant == "int8" else "not run")


def test_int8_is_refused_in_one_line_when_the_cpu_cannot_run_it(cpu: EmulatedCpu, run: Run) -> None:
    if cpu.variant == "int8":
        pytest.skip("this CPU runs int8")
    done = run(cpu, "decide", "I was charged twice", "--yesno", "Is it a complaint?", "--variant", "int8")
    assert done.returncode == 1
    (line,) = said(done.stderr)
    assert line.startswith("julia1: error: the variant 'int8' cannot run here: the CPU has no vnni")


@pytest.mark.skipif(missing(TOO_OLD) != "", reason=missing(TOO_OLD))
def test_older_cpu_is_refused_in_one_line_before_anything_is_imported(run: Run) -> None:
    done = run(TOO_OLD, "version")
    assert done.returncode == 1
    (line,) = said(done.stderr)
    assert "this CPU has no sse4_1, sse4_2, popcnt" in line
