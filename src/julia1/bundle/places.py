"""Where a bundle is: at a path, or in the version registry under NAME@VERSION or NAME@ALIAS.

The registry is a folder: ``NAME/VERSION/`` is a bundle, and ``NAME/aliases.json`` maps alias to version.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from julia1 import settings
from julia1.bundle.files import path_problem, present, reason
from julia1.bundle.manifest import MANIFEST_FILE, NAME
from julia1.content import shown
from julia1.errors import BundleError, InputError

ALIASES_FILE = "aliases.json"
PRODUCTION = "production"
_REFERENCE = re.compile(rf"{NAME.pattern}@{NAME.pattern}")


@dataclass(frozen=True)
class Located:
    """A version in the registry.

    Attributes:
        name, version: of the model.
        folder: of its bundle.
    """

    name: str
    version: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def find_bundle(place: str | Path, registry: Path | None = None) -> Path:
    """The path of a bundle: ``place`` itself, unless it has the form NAME@WHAT and no file or bundle stands there.

    Args:
        place: a path, NAME@VERSION or NAME@ALIAS.
        registry: the registry's folder; that of JULIA1_REGISTRY, or its default, when ``None``.

    Raises:
        InputError: the registry has nothing of that name, version or alias.
        BundleError: the registry's ``aliases.json`` is broken.
    """
    path = Path(place)
    if not _REFERENCE.fullmatch(str(place)) or path.is_file() or (path.is_dir() and present(path, MANIFEST_FILE)):
        return path
    try:
        return resolve(settings.registry_folder() if registry is None else registry, str(place)).folder
    except InputError as error:
        if not path.exists():
            raise
        raise InputError(f"the folder {place} holds no bundle (it has no {MANIFEST_FILE}), and {error}") from None


def resolve(root: Path, reference: str) -> Located:
    """What NAME@VERSION, NAME@ALIAS or NAME means; NAME alone is its production version, or the only one.

    A version is found without ``aliases.json``, so that a broken one does not hide it.

    Args:
        root: the registry's folder.
        reference: what is looked for.

    Raises:
        InputError: no such name, version or alias, or a name alone that has several versions and none in production.
        BundleError: ``aliases.json`` is broken.
    """
    name, at, what = reference.partition("@")
    home = root / require_name("name", name)
    versions = versions_of(home)
    if not versions:
        raise InputError(f"the registry {root} has no model {name!r}; {nearest(name, names_of(root))}")
    if at and what in versions:
        return Located(name, what, home / what)
    aliases = read_aliases(home)
    if at:
        require_name("version", what)
    elif PRODUCTION in aliases or len(versions) == 1:
        what = PRODUCTION if PRODUCTION in aliases else versions[0]
    else:
        raise InputError(f"{name} has several versions and none in production: name one of {_listed(name, versions)}")
    version = aliases.get(what, what)
    if version not in versions:
        if what in aliases:
            raise BundleError(
                f"{home / ALIASES_FILE}: {what!r} names version {version!r}, which is not there: promote another one"
            )
        raise InputError(
            f"in the registry {root}, {name} has no version or alias {what!r}; {nearest(what, [*versions, *aliases])}"
        )
    return Located(name, version, home / version)


def names_of(root: Path) -> list[str]:
    """Every name that has a version, sorted; none where there is no registry yet."""
    return sorted(name for name in _folders(root) if versions_of(root / name))


def versions_of(home: Path) -> list[str]:
    """Every version in the folder of a name, in the order that people count: 1.9 before 1.10."""
    return sorted((name for name in _folders(home) if (home / name / MANIFEST_FILE).is_file()), key=version_key)


def version_key(version: str) -> list[tuple[int, int, str]]:
    """Sorts versions as people count."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version)
    return [(0, int(part), part) if part.isdigit() else (1, 0, part) for part in parts]


def read_aliases(home: Path) -> dict[str, str]:
    """Alias to version, of the folder of a name; raises ``BundleError`` when ``aliases.json`` is broken."""
    place = home / ALIASES_FILE
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise BundleError(f"cannot read {place}: {reason(error)}") from None
    except (ValueError, RecursionError) as error:
        raise _broken(place, f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _broken(place, f"expected an object of alias and version, got {shown(found)}")
    for alias, version in found.items():
        if not NAME.fullmatch(alias) or not isinstance(version, str) or not NAME.fullmatch(version):
            raise _broken(place, f"{shown(alias)}: {shown(version)} is not an alias and a version")
    return found


def require_name(what: str, value: str) -> str:
    """A name, version or alias that may stand in the registry.

    Raises:
        InputError: it is something else, such as a path; ``what`` says in the message which of the three it is.
    """
    problem = path_problem(value)
    if not NAME.fullmatch(value):
        problem = "may have up to 100 letters, digits, '.', '_' and '-', the first a letter or digit"
    elif value.casefold() == ALIASES_FILE:
        problem = "is what the registry calls a file of its own: choose another"
    if problem:
        raise InputError(f"the {what} {shown(value)} cannot stand in the registry: it {problem}")
    return value


def _folders(place: Path) -> list[str]:
    try:
        return [child.name for child in place.iterdir() if NAME.fullmatch(child.name) and child.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BundleError(f"cannot read {place}: {reason(error)}") from None


def nearest(given: str, known: Sequence[str]) -> str:
    """What to say of a name that is not known."""
    near = difflib.get_close_matches(given, known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"it has: {', '.join(known[:20])}" if known else "it is empty"


def _listed(name: str, versions: Sequence[str]) -> str:
    return ", ".join(f"{name}@{version}" for version in versions[-10:])


def _broken(place: Path, problem: str) -> BundleError:
    return BundleError(f"{place} is broken: {problem}; correct it by hand, or delete it and promote again")
