"""Writes rows to a file that has its name only when it is complete, and takes up one that is not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from julia1.cli.data_text import decode, parse_json
from julia1.cli.printing import to_json
from julia1.errors import InputError


class RowFile:
    """Rows go to ``NAME.partial``, which becomes ``NAME`` at the end. Nothing is made before the first row.

    Args:
        path: where the rows go.
        resume: take up what an earlier run wrote: the partial file, or a complete one whose input has grown.

    Attributes:
        partial: the unfinished file.
        earlier: the file of the earlier run, ``None`` without one.

    Raises:
        InputError: there is something at ``path`` already, or an unfinished run, and ``resume`` is not set.
    """

    def __init__(self, path: str, resume: bool) -> None:
        self.path = Path(path)
        self.partial = Path(f"{path}.partial")
        if not self.path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {self.path.parent}")
        present = [place for place in (self.partial, self.path) if os.path.lexists(place)]
        if len(present) == 2:
            raise InputError(f"both {self.path} and {self.partial} exist: remove the one that is not wanted")
        if self.partial in present and not resume:
            raise InputError(f"{self.partial} is an unfinished run: go on with --resume, or remove it")
        if self.path in present and not resume:
            raise InputError(f"{self.path} exists: remove it or choose another --output (--resume goes on with it)")
        self.earlier = present[0] if present else None
        if self.earlier is not None and not self.earlier.is_file():
            raise InputError(f"{self.earlier} is not a file: choose another --output")
        self._whole = 0
        self._stream: BinaryIO | None = None

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def written(self) -> Iterator[Any]:
        """The rows of the earlier run; a last line that was torn is left out, and overwritten later."""
        if self.earlier is None:
            return
        try:
            with self.earlier.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    if not line.endswith(b"\n"):
                        return
                    where = f"{self.earlier} line {number}"
                    yield parse_json(decode(line, where), where)
                    self._whole += len(line)
        except OSError as error:
            raise InputError(f"cannot read {self.earlier}: {error.strerror}") from None

    def write(self, rows: Sequence[Any]) -> None:
        """Append rows; they are on their way to the disk when this returns."""
        stream = self._stream or self._open()
        stream.write("".join(f"{to_json(row)}\n" for row in rows).encode("utf-8"))
        stream.flush()

    def finish(self) -> None:
        """Give the file its name."""
        stream = self._stream or self._open()
        os.fsync(stream.fileno())
        stream.close()
        self.partial.replace(self.path)

    def _open(self) -> BinaryIO:
        try:
            if self.earlier == self.path:
                self.path.replace(self.partial)
            stream: BinaryIO = self.partial.open("xb" if self.earlier is None else "r+b")
        except OSError as error:
            raise InputError(f"cannot write {self.partial}: {error.strerror}") from None
        stream.seek(self._whole)
        stream.truncate()
        self._stream = stream
        return stream
