"""The public surface is what the sorted ``__all__`` of each package lists."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGES = sorted((SOURCE / "julia1").rglob("__init__.py"))
NEED_TORCH = frozenset({"export", "model", "optimize", "train"})


def package_name(init: Path) -> str:
    return ".".join(init.parent.relative_to(SOURCE).parts)


def declared_names(init: Path) -> list[str] | None:
    """The literal ``__all__`` of a package, or ``None`` when it has none."""
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = getattr(node, "value", None)
            return None if value is None else list(ast.literal_eval(value))
    return None


def sort_key(name: str) -> tuple[int, str]:
    """The linter's order: constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in (SOURCE / "julia1").rglob("*.py")}
    assert sorted(folders) == sorted(init.parent for init in PACKAGES)


@pytest.mark.parametrize("init", PACKAGES, ids=package_name)
def test_package_declares_sorted_names(init: Path) -> None:
    names = declared_names(init)
    assert names is not None, f"{package_name(init)} has no __all__"
    assert names == sorted(set(names), key=sort_key)


@pytest.mark.parametrize("init", PACKAGES, ids=package_name)
def test_declared_names_resolve(init: Path) -> None:
    name = package_name(init)
    if NEED_TORCH.intersection(name.split(".")) and importlib.util.find_spec("torch") is None:
        pytest.skip(f"{name} needs torch")
    package = importlib.import_module(name)
    missing = [item for item in declared_names(init) or () if not hasattr(package, item)]
    assert not missing, f"{name}.__all__ names what is not there: {missing}"


def test_private_names_are_not_listed() -> None:
    listed = {package_name(init): declared_names(init) or [] for init in PACKAGES}
    private = [f"{p}.{n}" for p, names in listed.items() for n in names if n.startswith("_") and not n.startswith("__")]
    assert not private
