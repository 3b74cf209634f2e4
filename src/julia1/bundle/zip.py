"""A bundle as one zip file: written the same every time, unpacked once and with care."""

from __future__ import annotations

import errno
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

from julia1.bundle.files import (
    check_contents,
    hash_stream,
    inside,
    is_lfs_pointer,
    partial_name,
    path_problem,
    present,
    reason,
    sync,
)
from julia1.bundle.manifest import MANIFEST_FILE, read_manifest
from julia1.errors import BundleError
from julia1.settings import cache_folder

MAX_UNPACKED_BYTES = 4 << 30
MAX_MEMBERS = 10_000

_CHUNK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
# What zipfile raises on a damaged file, depending on where the damage is.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError)


def zip_bundle(folder: str | Path, target: str | Path, *, checkpoint: bool = True, replace: bool = False) -> Path:
    """Write a bundle's folder as one zip and return its path. The same bundle gives the same bytes on every machine.

    Args:
        folder: the bundle; every file is checked against its hash, and files that it does not name are left out.
        target: the zip file to write.
        checkpoint: whether to take the checkpoint along, where there is one.
        replace: whether a bundle's zip at ``target`` may be replaced.

    Raises:
        BundleError: the bundle is damaged or larger than a zip may unpack to, or ``target`` is in the way.
    """
    folder, target = Path(folder), Path(target)
    manifest = read_manifest(folder)
    if target.exists() and not (replace and _is_bundle_zip(target)):
        why = (
            "it is no bundle's zip, so it is not replaced" if replace else "choose another place, or ask to replace it"
        )
        raise BundleError(f"{target} exists: {why}")
    entries = {entry.path: entry for entry in manifest.required_files()}
    for entry in manifest.checkpoint or () if checkpoint else ():
        if present(folder, entry.path):
            entries[entry.path] = entry
    total = sum(entry.bytes for entry in entries.values()) + (folder / MANIFEST_FILE).stat().st_size
    if total > MAX_UNPACKED_BYTES:
        raise BundleError(
            f"{folder} holds {total:,} bytes: a bundle's zip may hold {MAX_UNPACKED_BYTES:,}, keep the folder"
        )
    for entry in entries.values():
        check_contents(inside(folder, entry.path), entry.bytes, entry.sha256, "write the bundle again")
    partial = target.with_name(partial_name(target.name))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
            # Stored, not deflated: what deflate writes depends on the zlib of the machine, and weights hardly shrink.
            for path in [MANIFEST_FILE, *sorted(entries)]:
                write_member(archive, folder / path, path)
        sync(partial)
        partial.replace(target)
        sync(target.parent)
    except OSError as error:
        raise BundleError(f"cannot write {target}: {reason(error)}") from None
    finally:
        partial.unlink(missing_ok=True)
    return target


def unzip_bundle(path: Path) -> Path:
    """Unpack a bundle's zip into the cache, once for each content, and return the folder.

    Safe when several processes or threads do it at once, and when one is stopped half-way.

    Raises:
        BundleError: it is not a zip, damaged, unsafe, too large or no bundle, or the cache cannot be written.
    """
    cache = cache_folder() / "bundles"
    try:
        with path.open("rb") as file:
            target = cache / hash_stream(file)
            if not target.is_dir():
                if is_lfs_pointer(path):
                    raise BundleError(
                        f"{path} is a git-LFS pointer, not the file itself: run  git lfs pull  where it came from"
                    )
                file.seek(0)
                _unpack(file, path, target)
    except OSError as error:
        raise BundleError(
            f"cannot unpack {path} into {cache}: {reason(error)}; JULIA1_CACHE names another folder"
        ) from None
    for place in (target / MANIFEST_FILE, *target.glob(f"*/{MANIFEST_FILE}")):
        if place.is_file():
            return place.parent
    raise BundleError(f"{target} has lost its {MANIFEST_FILE}: delete the folder and open {path} again")


def _unpack(file: IO[bytes], path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(partial_name(target.name))
    try:
        try:
            with zipfile.ZipFile(file) as archive:
                members = _checked_members(archive, path)
                partial.mkdir()
                for member in members:
                    _unpack_member(archive, member, partial)
        except _DAMAGE as error:
            raise _damaged(path, error) from None
        except OSError as error:
            if error.errno == errno.EINVAL:  # a seek to a place that a damaged directory made up
                raise _damaged(path, error) from None
            raise
        sync(partial)
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster, and wrote the same
                raise
        sync(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _damaged(path: Path, error: Exception) -> BundleError:
    said = str(error)[:100] or type(error).__name__  # zipfile quotes whole stretches of the file
    return BundleError(f"{path} is not a zip file, or is damaged: {said}; copy or download it again")


def _checked_members(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    """The files to unpack, after everything that the zip's directory says was found safe."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise BundleError(f"{path} has {len(members):,} members: a bundle has at most {MAX_MEMBERS:,}")
    total = sum(member.file_size for member in members)
    if total > MAX_UNPACKED_BYTES:
        raise BundleError(f"{path} unpacks to {total:,} bytes: a bundle's zip may hold {MAX_UNPACKED_BYTES:,}")
    seen: set[str] = set()
    for member in members:
        name = member.orig_filename  # as it stands in the zip: zipfile cuts and rewrites ``filename``
        problem = path_problem(name[:-1] if name.endswith("/") else name)
        kind = stat.S_IFMT(member.external_attr >> 16)
        if problem is None and kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            problem = "is a symbolic link or a device"
        if problem is None and member.flag_bits & 1:
            problem = "is encrypted"
        if problem is None and member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            problem = "is compressed in a way other than deflate"
        if problem is None and name.casefold() in seen:
            problem = "stands twice"
        if problem is not None:
            raise BundleError(f"{path} is refused: its member {name!r} {problem}")
        seen.add(name.casefold())
    manifests = [name for name in archive.namelist() if name.split("/")[-1] == MANIFEST_FILE and name.count("/") < 2]
    if MANIFEST_FILE not in manifests and len(manifests) != 1:
        raise BundleError(f"{path} is not a bundle: it has no {MANIFEST_FILE}, at its top or in one folder")
    return [member for member in members if not member.orig_filename.endswith("/")]


def _unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    place = inside(folder, member.orig_filename)
    place.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(member) as source, place.open("xb") as sink:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > member.file_size:
                break
            sink.write(chunk)
    if written != member.file_size:
        raise BundleError(f"{member.orig_filename!r} in the zip is not of the {member.file_size:,} bytes it declares")
    sync(place)


def new_member(name: str, executable: bool = False) -> zipfile.ZipInfo:
    """A member that looks the same on whatever machine and day it is written."""
    member = zipfile.ZipInfo(name, _EPOCH)
    member.create_system = 3  # Unix, wherever it is written
    member.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    return member


def write_member(archive: zipfile.ZipFile, place: Path, name: str) -> None:
    """Write a file into a zip as ``name``, as it is."""
    member = new_member(name)
    member.file_size = place.stat().st_size
    with place.open("rb") as source, archive.open(member, "w") as sink:
        shutil.copyfileobj(source, sink, _CHUNK)


def _is_bundle_zip(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST_FILE in archive.namelist()
    except (OSError, *_DAMAGE):
        return False
