"""Packs a box: a bundle, the wheels that run it, julia1 itself and start scripts, in one zip."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import julia1
from julia1 import settings
from julia1.bundle import Bundle, Manifest
from julia1.bundle.files import partial_name, reason, sync
from julia1.bundle.manifest import MANIFEST_FILE
from julia1.errors import BundleError, InputError, PackError
from julia1.pack import wheels as sources
from julia1.pack.archive import Archive
from julia1.pack.contents import place_of
from julia1.pack.lock import PLATFORMS, Pin, needs, pins, this_platform, this_python

MOST_BYTES = 100_000_000
"""A box should not be larger; one that is gets a warning."""

BOX_FORMAT = 1
_PACKAGE = Path(julia1.__file__).parent
_LEGAL = ("LICENSE", "NOTICE")


@dataclass(frozen=True)
class Part:
    """What a part takes of a box.

    Attributes:
        name, version: of the package or model.
        bytes: in the zip.
    """

    name: str
    version: str
    bytes: int


@dataclass(frozen=True)
class Box:
    """A box that was packed.

    Attributes:
        path: the zip.
        bytes: its size.
        folder: name of the one folder that it unpacks to.
        manifest: of the bundle in it, with the variants that were taken.
        platform, python: what it runs on.
        needs: least versions of ``glibc`` or ``macos``.
        wheels: the packages in it.
        parts: what takes how much: the model, each package, and julia1.
    """

    path: Path
    bytes: int
    folder: str
    manifest: Manifest
    platform: str
    python: str
    needs: dict[str, str]
    wheels: tuple[Pin, ...]
    parts: tuple[Part, ...]

    def to_dict(self) -> dict[str, object]:
        """What ``box.json`` holds: all that is known before the zip is written."""
        return {
            "format_version": BOX_FORMAT,
            "name": self.manifest.name,
            "version": self.manifest.version,
            "variants": [variant.name for variant in self.manifest.variants],
            "platform": self.platform,
            "python": self.python,
            "needs": self.needs,
            "julia1": julia1.__version__,
            "wheels": [
                {"name": pin.name, "version": pin.version, "file": pin.file, "sha256": pin.sha256}
                for pin in self.wheels
            ],
        }


def pack(
    bundle: str | Path | None,
    target: str | Path,
    *,
    platform: str | None = None,
    python: str | None = None,
    variants: Sequence[str] = (),
    wheels: str | Path | None = None,
) -> Box:
    """Pack a bundle, without its checkpoint, and all that runs it into one zip. The same input gives the same bytes.

    Args:
        bundle: folder, zip or NAME@VERSION; the model that ships with julia1 when ``None``.
        target: the zip to write.
        platform: one of ``PLATFORMS``; that of this machine when ``None``.
        python: the target's Python, as ``3.11``; that of this process when ``None``.
        variants: names of those to take; all when empty.
        wheels: a folder that has the wheels; fetched from the package index when ``None``.

    Raises:
        InputError: an unknown platform, Python or variant.
        BundleError: the bundle is missing or damaged.
        PackError: ``target`` exists or cannot be written, or the wheels cannot be had.
        VerificationError: a wheel is not the one that is pinned.
    """
    target = Path(target)
    platform, python = platform or _own_platform(), python or this_python()
    pinned = pins(platform, python)
    if target.exists() or target.is_symlink():
        raise PackError(f"{target} exists: choose another place, or delete it first")
    opened = Bundle.open(bundle if bundle is not None else settings.model_path())
    manifest = _with_variants(opened, variants)
    folder = f"{manifest.name}-{manifest.version}"
    box = Box(target, 0, folder, manifest, platform, python, needs(pinned), pinned, ())
    with tempfile.TemporaryDirectory(prefix="julia1-wheels-") as fresh:
        places = _fetched(pinned, python, Path(fresh)) if wheels is None else sources.from_folder(pinned, Path(wheels))
        partial = target.with_name(partial_name(target.name))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            parts = _write(partial, box, opened, places)
            sync(partial)
            partial.replace(target)
            sync(target.parent)
        except OSError as error:
            raise PackError(f"cannot write {target}: {reason(error)}") from None
        finally:
            partial.unlink(missing_ok=True)
    return replace(box, bytes=target.stat().st_size, parts=tuple(parts))


def _own_platform() -> str:
    found = this_platform()
    if found is None:
        raise InputError(f"no box is made for this machine's platform: name one by --platform ({', '.join(PLATFORMS)})")
    return found


def _with_variants(bundle: Bundle, names: Sequence[str]) -> Manifest:
    """The manifest with the variants of these names, or as it is without any."""
    try:
        wanted = {bundle.variant(name).name for name in names}
    except BundleError as error:  # the name is at fault here, not the bundle
        raise InputError(str(error)) from None
    manifest = bundle.manifest
    if not wanted:
        return manifest
    return replace(manifest, variants=tuple(v for v in manifest.variants if v.name in wanted))


def _fetched(pinned: Sequence[Pin], python: str, folder: Path) -> list[Path]:
    try:
        return sources.from_index(pinned, python, folder)
    except OSError as error:
        raise PackError(f"cannot fetch wheels into {folder}: {reason(error)}; TMPDIR names another folder") from None


def _write(place: Path, box: Box, bundle: Bundle, wheels: Sequence[Path]) -> list[Part]:
    manifest = box.manifest
    parts: list[Part] = []
    with Archive(place, box.folder) as archive:
        archive.add_text("box.json", json.dumps(box.to_dict(), indent=2) + "\n")
        archive.add_text("README.md", _filled("readme.md", box))
        for name in _LEGAL:
            text = _legal(name)
            if text is not None:
                archive.add_text(name, text)
        archive.add_text("julia1", _filled("start.sh", box), executable=True)
        archive.add_text("julia1.cmd", _filled("start.cmd", box).replace("\n", "\r\n"))  # cmd seeks labels by line end
        start = archive.written
        if manifest == bundle.manifest:
            archive.add_file(f"model/{MANIFEST_FILE}", bundle.folder / MANIFEST_FILE)
        else:
            archive.add_text(f"model/{MANIFEST_FILE}", manifest.to_json())
        for path, entry in sorted({entry.path: entry for entry in manifest.required_files()}.items()):
            bundle.check_file(entry)
            archive.add_file(f"model/{path}", bundle.path(entry))
        parts.append(Part(manifest.name, manifest.version, archive.written - start))
        for pin, wheel in zip(box.wheels, wheels, strict=True):
            start = archive.written
            archive.add_wheel(wheel, _below_lib)
            parts.append(Part(pin.name, pin.version, archive.written - start))
        start = archive.written
        for own in _own_files():
            archive.add_file(f"lib/julia1/{own.as_posix()}", _PACKAGE / own)
        parts.append(Part("julia1", julia1.__version__, archive.written - start))
    return parts


def _below_lib(member: str) -> str | None:
    place = place_of(member)
    return None if place is None else f"lib/{place}"


def _own_files() -> Iterator[Path]:
    """The files of julia1 itself, without the models that ship with it."""
    for place in sorted(_PACKAGE.rglob("*")):
        path = place.relative_to(_PACKAGE)
        if place.is_file() and path.parts[0] != "assets" and "__pycache__" not in path.parts:
            yield path


def _filled(name: str, box: Box) -> str:
    """A text of this folder with its blanks filled in."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    required = "".join(f" ({kind} {least} or newer)" for kind, least in box.needs.items())
    blanks = {
        "@NAME@": box.manifest.name,
        "@VERSION@": box.manifest.version,
        "@PLATFORM@": box.platform,
        "@PYTHON@": box.python,
        "@NEEDS@": required,
    }
    for blank, value in blanks.items():
        text = text.replace(blank, value)
    return text


def _legal(name: str) -> str | None:
    """julia1's own licence or notice: beside the sources, or where an installer put it."""
    beside = _PACKAGE.parents[1] / name
    if beside.is_file() and (beside.parent / "pyproject.toml").is_file():
        return beside.read_text(encoding="utf-8")
    try:
        return metadata.distribution("julia1").read_text(f"licenses/{name}")
    except metadata.PackageNotFoundError:
        return None
