"""Compiled graphs, kept in the cache between processes: compiling one takes several times as long as reading it back.

A file is named by all that it was made of, and written under another name first. A bundle's folder is never written to.
No more than ``KEPT`` files stay; the oldest go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from julia1 import __version__, settings
from julia1.bundle.files import write_whole
from julia1.errors import InputError

KEPT = 4
"""Files at most; one is as large as the weights in fp32 (107 MB for the bundled model)."""

_HEADER = struct.Struct("<QI")
"""Bytes that follow, and their CRC."""


def compiled_file(engine: str, about: Sequence[str], contents: Iterable[bytes | memoryview]) -> Path | None:
    """Where a compiled graph is kept; ``None`` where there is no folder for a cache.

    Args:
        engine: whose it is.
        about: what it depends on beside the graph: the library's version, the CPU, settings.
        contents: the graph, its weights included.
    """
    digest = hashlib.sha256("\0".join([__version__, *about]).encode())
    for part in contents:
        digest.update(part)
    try:
        return settings.cache_folder() / "compiled" / f"{engine}-{digest.hexdigest()[:40]}.bin"
    except InputError:
        return None


def read_compiled(path: Path | None) -> npt.NDArray[np.uint8] | None:
    """A compiled graph, uint8 ``[bytes]``; ``None`` where it is not there, cut off or changed."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            size, checksum = _HEADER.unpack(file.read(_HEADER.size))
            found = np.fromfile(file, np.uint8)
        os.utime(path)  # used last, so it goes last
    except (OSError, struct.error):
        return None
    return found if len(found) == size and zlib.crc32(found.data) == checksum else None


def keep_compiled(path: Path | None, blob: bytes) -> None:
    """Keep a compiled graph. A disk that is full or read-only costs the next process its time and is no error."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _HEADER.pack(len(blob), zlib.crc32(blob)) + blob)
        by_age = sorted(path.parent.glob("*.bin"), key=lambda kept: kept.stat().st_mtime, reverse=True)
        for old in by_age[KEPT:]:
            old.unlink(missing_ok=True)
