"""Imports point one way, and what runs a bundle never needs what trains one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SOURCE / "julia1"

HEAVY = ("fastapi", "matplotlib", "onnx", "openvino", "pandas", "ray", "sklearn", "torch", "transformers")

LIGHT_ROOMS = ("bench", "bundle", "cli", "pack", "runtime", "text")
"""Rooms whose every module must import without anything heavy."""

_TRAINING = frozenset({"export", "model", "optimize", "train"})
_CALLERS = frozenset({"bench", "cli", "scale", "serve"})
FORBIDDEN = {
    "answers": _TRAINING | _CALLERS | {"bundle", "runtime"},
    "bench": {"cli", "optimize", "scale", "serve"},
    "bundle": _TRAINING | _CALLERS | {"runtime"},
    "errors": _TRAINING | _CALLERS | {"bundle", "runtime", "text"},
    "pack": _TRAINING | (_CALLERS - {"cli"}) | {"runtime", "text"},  # pack.start starts the command line in a box
    "questions": _TRAINING | _CALLERS | {"bundle", "runtime"},
    "runtime": _TRAINING | _CALLERS,
    "settings": _TRAINING | _CALLERS | {"bundle", "runtime", "text"},
    "text": _TRAINING | _CALLERS | {"bundle", "runtime"},
}
"""Room to the rooms it must never import, not even inside a function."""

ALLOWED = {"julia1.runtime.engines.pytorch": {"model"}}
"""Modules that may import what their room may not, each for a reason:

The PyTorch engine computes with the model that was trained; a second copy of it below ``runtime`` could depart from it.
It imports that model when an engine is made, so who runs another needs no PyTorch.
"""


def modules(room: str) -> list[Path]:
    """The files of a room: a folder of ``src/julia1``, or one module."""
    return [*sorted((PACKAGE / room).rglob("*.py")), *PACKAGE.glob(f"{room}.py")]


def module_name(path: Path) -> str:
    """``src/julia1/text/__init__.py`` to ``julia1.text``."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_rooms(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and room of every import of a julia1 room in ``source``, lazy and relative ones included."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "julia1" and len(parts) > 1:
                yield node.lineno, parts[1]


@pytest.mark.parametrize("room", FORBIDDEN)
def test_room_imports_nothing_above_it(room: str) -> None:
    wrong = []
    for path in modules(room):
        name = module_name(path)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for line, imported in imported_rooms(path.read_text(encoding="utf-8"), package):
            if imported in FORBIDDEN[room] - ALLOWED.get(name, set()):
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports julia1.{imported}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_is_needed(name: str) -> None:
    source = SOURCE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    assert ALLOWED[name] <= {room for _, room in imported_rooms(source, name.rpartition(".")[0])}


@pytest.mark.parametrize(
    ("source", "room"),
    [
        ("def f():\n    import julia1.train", "train"),
        ("from julia1 import model", "model"),
        ("from julia1.export.onnx import export", "export"),
        ("from ..train import views", "train"),
        ("from .. import optimize", "optimize"),
        ("import importlib\nimportlib.import_module('julia1.train.mix')", "train"),
    ],
)
def test_every_form_of_import_is_seen(source: str, room: str) -> None:
    assert [found for _, found in imported_rooms(source, "julia1.runtime")] == [room]


@pytest.mark.parametrize("room", ["", *LIGHT_ROOMS])
def test_import_brings_nothing_heavy(room: str) -> None:
    names = [module_name(path) for path in modules(room)] if room else ["julia1"]
    if not names:
        pytest.skip(f"julia1.{room} has no modules")
    names = [name for name in names if not name.endswith("__main__")]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(*sorted({{name.partition('.')[0] for name in sys.modules}} & set({HEAVY!r})))"
    )
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
