"""Writes a box's zip, the same bytes on every machine: members of wheels keep the deflated bytes that they have."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from julia1.bundle.files import path_problem
from julia1.bundle.zip import new_member, write_member
from julia1.errors import PackError

_CHUNK = 1 << 20
_LOCAL_HEADER = 30
"""Bytes of a member's own header before its name and extra field (APPNOTE.TXT 4.3.7)."""


class Archive:
    """A zip whose members all stand in one folder.

    Args:
        place: the file to write.
        top: name of the folder.
    """

    def __init__(self, place: Path, top: str) -> None:
        self._zip = zipfile.ZipFile(place, "w", zipfile.ZIP_STORED)
        self._top = top
        self._seen: set[str] = set()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    @property
    def written(self) -> int:
        """Bytes so far."""
        return self._zip.start_dir

    def add_text(self, path: str, content: str, executable: bool = False) -> None:
        """Write a text as UTF-8, with the line ends it has."""
        self._zip.writestr(new_member(self._name(path), executable), content.encode("utf-8"))

    def add_file(self, path: str, place: Path) -> None:
        """Write a file as it is, not deflated: what deflate writes depends on the zlib of the machine."""
        write_member(self._zip, place, self._name(path))

    def add_wheel(self, wheel: Path, place_of: Callable[[str], str | None]) -> None:
        """Write the members of a wheel at the places that ``place_of`` names, sorted; ``None`` leaves one out.

        Raises:
            PackError: the wheel is no zip, or a member of it is unsafe or stands in the box already.
        """
        try:
            with zipfile.ZipFile(wheel) as source, wheel.open("rb") as raw:
                for member in sorted(source.infolist(), key=lambda member: member.filename):
                    place = None if member.is_dir() else place_of(member.filename)
                    if place is not None:
                        self._copy(raw, member, place)
        except (zipfile.BadZipFile, struct.error) as error:
            raise PackError(f"{wheel} is no wheel, or is damaged: {error}; fetch it again") from None

    def _copy(self, raw: IO[bytes], member: zipfile.ZipInfo, path: str) -> None:
        """Copy a member without deflating it anew."""
        if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"its member {member.filename!r} is encrypted or compressed in an unknown way")
        copy = new_member(self._name(path))
        copy.compress_type, copy.CRC = member.compress_type, member.CRC
        copy.compress_size, copy.file_size = member.compress_size, member.file_size
        raw.seek(member.header_offset)
        *_, name, extra = struct.unpack("<4s5H3L2H", raw.read(_LOCAL_HEADER))
        raw.seek(name + extra, 1)
        # What ZipFile.open does for a member it deflates itself. ``mode="w"`` writes the directory of all in filelist.
        sink = self._zip.fp
        assert sink is not None
        copy.header_offset = self._zip.start_dir
        sink.seek(copy.header_offset)
        sink.write(copy.FileHeader())
        left = member.compress_size
        while left:
            chunk = raw.read(min(left, _CHUNK))
            if not chunk:
                raise zipfile.BadZipFile(f"it ends within {member.filename!r}")
            sink.write(chunk)
            left -= len(chunk)
        self._zip.filelist.append(copy)
        self._zip.NameToInfo[copy.filename] = copy
        self._zip.start_dir = sink.tell()

    def _name(self, path: str) -> str:
        problem = path_problem(path)
        if problem is None and path.casefold() in self._seen:
            problem = "stands in the box already"
        if problem is not None:
            raise PackError(f"cannot pack {path!r}: the path {problem}")
        self._seen.add(path.casefold())
        return f"{self._top}/{path}"
