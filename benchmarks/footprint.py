"""What julia1 costs on a machine: installed size, memory, import and load times, files of the bundle.

Makes a new virtual environment in a temporary folder, installs this repository in it without extras, and measures
there, each time in a fresh process:

  installed size   what the installation added to the environment, pip apart; and the largest packages
  peak memory      VmHWM of ``julia1 decide`` with three questions, by variant (Linux)
  import time      of julia1, of its whole decision path, and of onnxruntime alone
  load time        of ``julia1.load()``, warm-up included and imports apart, by variant
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _common import ROOT, Progress, bundle_path, parser, print_table, run, write_json
from julia1 import InputError
from julia1.bundle import Bundle
from julia1.bundle.manifest import MANIFEST_FILE

MB = 1e6
TEXT = "I was charged twice for one order and nobody answers."
ASKED = [
    *("--choice", "Which team handles this?", "billing: charges and refunds", "shipping", "technical support"),
    *("--yesno", "Is the writer complaining?"),
    *("--score", "How upset is the writer?", "calm", "annoyed", "furious"),
]
PACKAGES = """
import json, os
from importlib.metadata import distributions
sizes = {}
for found in distributions():
    paths = [found.locate_file(file) for file in found.files or ()]
    sizes[found.metadata["Name"]] = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
print(json.dumps(sizes))
"""
# VmHWM is of this process alone; the peak that a parent is told also counts the parent before it became another program
DECIDE = """
import sys
from pathlib import Path
from julia1.cli import main
try:
    code = main()
except SystemExit as stop:
    code = stop.code
status = Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0], file=sys.stderr)
sys.exit(code)
"""
IMPORTS = {
    "onnxruntime": "import onnxruntime",
    "julia1": "import julia1",
    "julia1, decision path": "import julia1, julia1.runtime.decider, onnxruntime",
}
TIMED = "import time; began = time.perf_counter(); {work}; print(time.perf_counter() - began)"
LOAD = "import sys, julia1, julia1.runtime.decider, onnxruntime; " + TIMED.format(
    work="julia1.load(sys.argv[1], variant=sys.argv[2])"
)


def main() -> None:
    made = parser(__doc__, data=False)
    made.add_argument("--processes", type=int, default=10, help="fresh processes a time (default: %(default)s)")
    made.add_argument("--python", type=Path, help="interpreter of an environment that exists: no installation, no size")
    args = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="julia1-footprint-") as folder:
        figures: dict[str, Any] = {}
        if args.python is None:
            python, figures["installed"] = install(Path(folder) / "venv")
        else:
            python = args.python.absolute()
        measure(python, args, figures)
    write_json(args, figures)


def install(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Install into a new environment; returns its interpreter and what the installation added."""
    os.environ.pop("PYTHONPATH", None)  # else a source tree would be measured in place of the installation
    print("making an environment and installing ...", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    before, known = size(folder), set(json.loads(output(python, [PACKAGES])))
    output(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)], code=False)
    packages = {name: count for name, count in json.loads(output(python, [PACKAGES])).items() if name not in known}
    total = size(folder) - before
    largest = sorted(packages.items(), key=lambda item: -item[1])
    rows = [[name, f"{count / MB:.1f}"] for name, count in largest[:10]]
    others = [count for _, count in largest[10:]]
    rows += [[f"{len(others)} others", f"{sum(others) / MB:.1f}"], ["all, pip apart", f"{total / MB:.1f}"]]
    print_table(["installed", "MB"], rows)
    return python, {"bytes": total, "packages": dict(largest)}


def measure(python: Path, args: Namespace, figures: dict[str, Any]) -> None:
    """Everything but the size of the environment."""
    bundle = Bundle.open(installed_model(python) if args.model is None and args.python is None else bundle_path(args))
    variants = [variant.name for variant in bundle.manifest.variants]
    peaks = {name: peak_memory(python, bundle.source, name) for name in variants}
    print_table(["julia1 decide", "peak MB"], [[name, f"{peak / MB:.1f}"] for name, peak in peaks.items()])
    commands = {f"import {name}": [TIMED.format(work=work)] for name, work in IMPORTS.items()}
    commands |= {f"load {name}": [LOAD, str(bundle.source), name] for name in variants}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    progress = Progress("processes", args.processes)
    for _ in range(args.processes):  # in turn, so that all meet the same machine
        for name, command in commands.items():
            seconds[name].append(float(output(python, command)))
        progress.step()
    times = {name: np.percentile(values, (50, 10, 90)).tolist() for name, values in seconds.items()}
    rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in times.items()]
    for name in list(IMPORTS)[1:]:
        more = times[f"import {name}"][0] - times["import onnxruntime"][0]
        rows.append([f"import {name}, minus onnxruntime", f"{more:.3f}", "", ""])
    print_table(["seconds", "median", "p10", "p90"], rows)
    files = {entry.path: entry.bytes for entry in bundle.manifest.all_files()}
    files[MANIFEST_FILE] = (bundle.folder / MANIFEST_FILE).stat().st_size
    rows = [[path, f"{count / MB:.2f}"] for path, count in files.items()]
    print_table(["file of the bundle", "MB"], [*rows, ["all", f"{sum(files.values()) / MB:.2f}"]])
    figures |= {"peak_bytes": peaks, "seconds_median_p10_p90": times, "bundle_bytes": files}


def installed_model(python: Path) -> Path:
    """The bundled model, as it was installed."""
    return Path(output(python, ["from julia1 import settings; print(settings.model_path())"]).strip())


def peak_memory(python: Path, bundle: Path, variant: str) -> int:
    """Bytes of memory that ``julia1 decide`` held at most."""
    words = ["-c", DECIDE, "decide", TEXT, *ASKED, "--model", str(bundle), "--variant", variant]
    done = subprocess.run([python, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"julia1 decide failed in {python}:\n{done.stderr}")
    return int(done.stderr.split()[-1]) * 1024


def output(python: Path, words: Sequence[str], code: bool = True) -> str:
    """What an interpreter prints for a program (``code``) or for command-line words."""
    command = [str(python), "-c", *words] if code else [str(python), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"{' '.join(command)[:200]} failed:\n{done.stderr}")
    return done.stdout


def size(folder: Path) -> int:
    """Bytes of all files below a folder; a link counts as itself."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_symlink() or path.is_file())


if __name__ == "__main__":
    run(main)
