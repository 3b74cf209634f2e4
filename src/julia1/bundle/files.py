"""The files of a bundle: safe paths, hashes, and the check of a file against what is written about it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from julia1.errors import BundleError

LOCK_FILE = ".lock"
_CHUNK = 1 << 20
_NO_NAME = {*map(chr, range(32)), "\x7f", *'<>"|?*'}
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_LFS_HEAD = b"version https://git-lfs"
_LFS_MOST_BYTES = 1024  # git-lfs itself takes a file for a pointer only below this size


def path_problem(path: str) -> str | None:
    """Why ``path`` may not name a file inside a bundle; None when it may.

    A safe path is relative, written with ``/``, and means the same file on every system.
    """
    if not path:
        return "is empty"
    if "\\" in path:
        return "has a backslash: write '/' between folders"
    if path.startswith("/"):
        return "is absolute: write it relative to the bundle"
    if ":" in path:
        return "has a colon, which names a drive or a stream on Windows"
    if any(character in _NO_NAME or "\ud800" <= character <= "\udfff" for character in path):
        return "has a character that cannot stand in a file name"
    for part in path.split("/"):
        if part == "..":
            return "leaves the bundle by '..'"
        if part in ("", "."):
            return "has an empty step: write it the short way"
        if part[-1] in ". ":
            return "has a step that ends in a dot or a space, which Windows drops"
        if _DEVICE.fullmatch(part):
            return "names a device on Windows"
    return None


def inside(folder: Path, path: str) -> Path:
    """The place of a bundle's file, whether or not it exists.

    Raises:
        BundleError: the path is unsafe, or leads out of ``folder`` through a symbolic link.
    """
    problem = path_problem(path)
    if problem:
        raise BundleError(f"{folder}: the path {path!r} {problem}")
    place = folder / path
    try:
        within = place.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # a loop of links, or a name too long for this system
        raise BundleError(f"{folder}: cannot follow the path {path!r}: {error}") from None
    if not within:
        raise BundleError(
            f"{folder}: {path!r} is a symbolic link to a file outside the bundle: put the file itself in its place "
            "(from a Hugging Face cache, download with a local folder)"
        )
    return place


def present(folder: Path, path: str) -> bool:
    """Whether anything stands at ``path``; True when the system will not say, so that reading it tells why."""
    try:
        return (folder / path).exists()
    except (OSError, RuntimeError):
        return True


def check_contents(place: Path, size: int, sha256: str | None, remedy: str) -> None:
    """Check one file against its recorded size in bytes and, unless it is None, its SHA-256.

    Raises:
        BundleError: it is missing, no regular file, a git-LFS pointer, or of another size or hash; ``remedy`` says
            what to do.
    """
    try:
        found = place.stat()
        if not stat.S_ISREG(found.st_mode):
            raise BundleError(f"{place} is not a file: {remedy}")
        if is_lfs_pointer(place):
            raise BundleError(
                f"{place} is a git-LFS pointer, not the file itself: run  git lfs pull  where it came from"
            )
        if found.st_size != size:
            kind = "truncated" if found.st_size < size else "changed"
            raise BundleError(f"{place} is {kind}: it has {found.st_size:,} bytes instead of {size:,}; {remedy}")
        if sha256 is not None and hash_file(place) != sha256:
            raise BundleError(f"{place} is changed: its SHA-256 is not {sha256}; {remedy}")
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(f"{place} is missing: {remedy}") from None
    except OSError as error:
        raise BundleError(f"cannot read {place}: {reason(error)}") from None


def is_lfs_pointer(place: Path) -> bool:
    """Whether a file is the few lines that git leaves in place of a large file when LFS is not installed."""
    if place.stat().st_size > _LFS_MOST_BYTES:
        return False
    with place.open("rb") as file:
        return file.read(len(_LFS_HEAD)) == _LFS_HEAD


def hash_file(place: Path) -> str:
    """SHA-256 of a file, in lower-case hexadecimal."""
    with place.open("rb") as file:
        return hash_stream(file)


def hash_stream(file: IO[bytes]) -> str:
    """SHA-256 of what is left to read of a stream, in lower-case hexadecimal."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def sync(place: Path) -> None:
    """Have the disk hold a file or folder for good, so that a rename after it never shows half of it."""
    mode = os.O_RDONLY  # it may be a file that is not to be written any more
    if os.name == "nt":
        if place.is_dir():  # Windows cannot sync a folder
            return
        mode = os.O_RDWR | getattr(os, "O_BINARY", 0)  # nor what was opened to be read
    handle = os.open(place, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def partial_name(name: str) -> str:
    """A new hidden name for something that will be renamed to ``name`` when it is whole."""
    return f".{name}.{os.urandom(4).hex()}.partial"


def write_whole(place: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, so that whoever reads sees the old one or the new one, never half of it."""
    partial = place.with_name(partial_name(place.name))
    try:
        # bytes: no other line ends on Windows
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        sync(partial)
        partial.replace(place)
        sync(place.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process or thread holds the folder, then hold it. A process that ends lets go of it."""
    handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)  # umask says whether a group may lock it too
    try:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
                    break
                except OSError as error:
                    if error.errno != errno.EDEADLK:  # Windows gives up after ten seconds
                        raise
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def reason(error: OSError) -> str:
    """What the system said, without the number and the path."""
    return error.strerror or str(error)
