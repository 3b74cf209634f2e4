"""The start scripts: a box unzipped and run, and one that was packed for something else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pack_samples import PLATFORM, installed_wheel, unpack, write_lock

from julia1.pack import Box, lock, pack, start, this_platform

BOX = {"platform": "linux-x86_64", "python": "3.11", "needs": {"glibc": "2.28"}}
HERE = {
    "platform": "linux-x86_64",
    "python": "3.11",
    "implementation": "cpython",
    "bits": 64,
    "glibc": "2.36",
    "macos": "",
}
needs_shell = pytest.mark.skipif(
    os.name != "posix" or this_platform() is None, reason="no box runs here by a sh script"
)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({}, ""),
        ({"glibc": "2.28"}, ""),
        ({"platform": "linux-aarch64"}, "packed for linux-x86_64 and this is linux-aarch64"),
        ({"python": "3.9"}, "packed for Python 3.11 and .* is 3.9: name another by  PYTHON=/path/to/python3.11"),
        ({"python": "3.9"}, "julia1 pack --python 3.9"),
        ({"bits": 32}, "needs a 64-bit Python"),
        ({"implementation": "pypy"}, "needs the usual CPython and .* is pypy"),
        ({"implementation": "cpythont"}, "is free-threaded"),
        ({"glibc": "2.17"}, "needs glibc 2.28 or newer and this system has 2.17"),
        ({"glibc": ""}, "needs glibc 2.28 or newer and this system has another C library"),
    ],
)
def test_box_for_another_machine_is_refused_in_one_line(found: dict[str, Any], says: str) -> None:
    problem = start.problem(BOX, {**HERE, **found})
    assert re.search(says, problem) and "\n" not in problem
    assert bool(problem) == bool(says)


def test_macos_is_looked_at_by_its_version() -> None:
    box = {**BOX, "platform": "macos-arm64", "needs": {"macos": "14.0"}}
    here = {**HERE, "platform": "macos-arm64", "macos": "13.6"}
    assert "needs macos 14.0 or newer and this system has 13.6" in start.problem(box, here)
    assert not start.problem(box, {**here, "macos": "14"}) and not start.problem(box, {**here, "macos": "26.1.2"})


def test_this_machine_is_what_boxes_are_packed_for() -> None:
    if this_platform() is None:
        pytest.skip("no box is made for this machine")
    assert start.here()["platform"] == this_platform()


def test_cpu_of_this_machine_suffices() -> None:
    assert start.cpu_problem(Path(start.__file__).parents[2]) == ""


def test_cpu_without_sse4_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "julia1/runtime/instructions.py"
    place.parent.mkdir(parents=True)
    place.write_text("def features(architecture): return {'pni', 'ssse3', 'sse4_1'}\n")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert start.cpu_problem(tmp_path).startswith("this CPU has no sse4_2, popcnt, which NumPy needs")
    place.write_text("def features(architecture): return set()\n")
    assert start.cpu_problem(tmp_path) == ""  # nothing tells, so nothing is refused
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert start.cpu_problem(tmp_path) == ""


@pytest.fixture
def toy(bundle: Path, wheels: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the start script of a box of toy wheels, whose ``box.json`` may be changed."""
    box = pack(bundle, tmp_path / "box.zip", platform=this_platform() or PLATFORM, wheels=wheels)
    unpack(box.path, tmp_path / "un zipped")
    folder = tmp_path / "un zipped" / box.folder

    def toy(*arguments: str, box: dict[str, Any] | None = None, **settings: Any) -> subprocess.CompletedProcess[str]:
        if box:
            said = json.loads((folder / "box.json").read_text())
            (folder / "box.json").write_text(json.dumps({**said, **box}))
        script = settings.pop("script", folder / "julia1")
        environment = {**os.environ, "PYTHON": sys.executable, **settings.pop("env", {})}
        return subprocess.run(
            [str(script), *arguments], env=environment, capture_output=True, text=True, timeout=60, **settings
        )

    return toy


@needs_shell
@pytest.mark.parametrize(
    ("box", "says"),
    [
        ({"python": "3.2"}, "packed for Python 3.2"),
        ({"platform": "win-amd64"}, "packed for win-amd64"),
        ({"needs": {"glibc": "9.9"}}, "needs glibc 9.9"),
    ],
)
def test_start_script_refuses_before_anything_is_imported(
    toy: Callable[..., subprocess.CompletedProcess[str]], box: dict[str, Any], says: str
) -> None:
    if "needs" in box and not start.here()["glibc"]:
        pytest.skip("no glibc here")
    done = toy("version", box=box)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("julia1: error: this box") and says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_shell
def test_start_script_names_a_python_that_is_not_there(
    toy: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = toy("version", env={"PYTHON": "/nowhere/python"})
    assert done.returncode == 1
    assert done.stderr.startswith("julia1: error: no program /nowhere/python is here: install Python")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """An unzipped box of the tiny model and of the packages that are installed here."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "wheels").mkdir()
    for package in ("numpy", "onnxruntime", "pyyaml", "rich", "tokenizers"):
        installed_wheel(package, folder / "wheels")
    write_lock(folder / "lock.json", folder / "wheels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "LOCK_FILE", folder / "lock.json")
        box: Box = pack(request.getfixturevalue("tiny_bundle"), folder / "box.zip", wheels=folder / "wheels")
    unpack(box.path, folder)
    return folder / box.folder


def offline() -> list[str]:
    """What puts a process where there is no network; empty where this user may not."""
    command = ["unshare", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        return []
    return command


@needs_shell
@pytest.mark.slow
def test_box_decides_without_network_packages_or_the_current_folder(real: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('the current folder came first')")
    link = tmp_path / "link"
    link.symlink_to(real / "julia1")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('"my package is late"\n"the charge is wrong"\n')
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHON": str(Path(sys.executable).resolve()),  # not the environment with all the packages
        "PYTHONPATH": str(tmp_path),
        "HOME": str(tmp_path),
        "JULIA1_THREADS": "1",
    }
    questions = tmp_path / "questions.yaml"
    questions.write_text("q:\n  type: yesno\n  instructions: Is it late?\n")
    command = [*offline(), str(link), "decide", "--input", str(rows), "-q", str(questions), "--variant", "fp32"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    answers = [json.loads(line)["answers"]["q"] for line in done.stdout.splitlines()]
    assert len(answers) == 2 and all(0 < answer["probability"] < 1 for answer in answers)
    shown = subprocess.run([str(link), "version", "--json"], env=environment, capture_output=True, text=True)
    assert "not installed" not in shown.stdout


@needs_shell
@pytest.mark.slow
def test_box_imports_nothing_that_it_has_not(real: Path) -> None:
    # what tokenizers, onnxruntime and rich declare, and the box leaves out
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import julia1, numpy, onnxruntime, rich.console, rich.progress, rich.table, tokenizers, yaml\n"
        "julia1.load(sys.argv[2], variant='fp32')\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    python = str(Path(sys.executable).resolve())
    command = [python, "-I", "-S", "-c", code, str(real / "lib"), str(real / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    brought = set(done.stdout.split())
    assert brought >= {"julia1", "numpy", "onnxruntime", "rich", "tokenizers", "yaml"}
    assert not brought & {"flatbuffers", "google", "huggingface_hub", "markdown_it", "packaging", "pygments"}
