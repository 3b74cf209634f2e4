"""Reads the rows of a JSON-lines file one at a time, however long the file is."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from julia1.cli.data_text import MOST_BYTES, decode, parse_json, place, standard_input
from julia1.content import Content, shown
from julia1.errors import InputError

if TYPE_CHECKING:
    from julia1.bundle import Manifest
    from julia1.runtime.fixed import Given

FIELDS = ("text", "state")
SECOND_FIELD = "text_b"
"""Of the second text, as in training."""


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        line: its number in the file, from 1.
        data: what goes to the output beside the answers.
        state: what to decide on.
        problem: why there is no state, else empty.
        bytes: length of its line.
    """

    line: int
    data: Mapping[str, Any]
    state: Content
    problem: str = ""
    bytes: int = 0


def given_of(row: Row, manifest: Manifest) -> Given:
    """What a model is given of a row: its state, the second text where the model compares two, and its features."""
    from julia1.runtime.fixed import Given

    second = row.data.get(SECOND_FIELD) if manifest.compares() else None
    features = {name: row.data[name] for name in manifest.features.names if name in row.data}
    return Given(row.state, second, features or None)


class RowReader:
    """Iterates over the rows of a file, bad ones included; lines that are blank are passed over.

    Attributes:
        name: how errors call the file.
        bytes_read: how far the reading is.
        bytes_total: size of the file, 0 when it cannot be told.

    Args:
        path: of the file; ``-`` is standard input.
        field: of the text or state; ``text`` or ``state`` when ``None``.
        taken: a field that a row must not have.
        features: fields of which one is enough, where a row has no text.

    Raises:
        InputError: the file cannot be read.
    """

    def __init__(self, path: str, field: str | None, taken: str, features: Sequence[str] = ()) -> None:
        self.name = place(path)
        self.bytes_read = 0
        self._field, self._taken, self._features = field, taken, features
        try:
            self._stream: BinaryIO = standard_input() if path == "-" else open(path, "rb")  # noqa: SIM115, PTH123
            status = os.fstat(self._stream.fileno())
            self.bytes_total = status.st_size if stat.S_ISREG(status.st_mode) else 0
        except (OSError, ValueError) as error:
            if path != "-":
                raise InputError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from None
            self.bytes_total = 0

    def __iter__(self) -> Iterator[Row]:
        for line, content in self._lines():
            if content is None:
                yield Row(line, {}, "", f"the line is longer than {MOST_BYTES >> 20} MiB")
            elif content.strip():
                try:
                    yield self._row(line, content)
                except InputError as error:
                    yield Row(line, {}, "", str(error), len(content))

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _lines(self) -> Iterator[tuple[int, bytes | None]]:
        """Number and content of each line that ends in a line feed; None for one that is too long to keep."""
        line = 0
        while content := self._read():
            line += 1
            kept: bytes | None = content.removeprefix(b"\xef\xbb\xbf") if line == 1 else content
            while len(content) == MOST_BYTES and not content.endswith(b"\n"):
                kept, content = None, self._read()
            yield line, kept

    def _read(self) -> bytes:
        try:
            content = self._stream.readline(MOST_BYTES)
        except OSError as error:
            raise InputError(f"cannot read {self.name}: {error.strerror}") from None
        self.bytes_read += len(content)
        return content

    def _row(self, line: int, content: bytes) -> Row:
        data = parse_json(decode(content.rstrip(b"\r\n"), "the line"), "the line")
        if isinstance(data, str):
            return Row(line, {"text": data}, data, bytes=len(content))
        if not isinstance(data, dict):
            raise InputError(f"the line must be an object or a text, it is {shown(data)}")
        if self._taken in data:
            raise InputError(f"the row has a field {self._taken!r} of its own: choose another with --answers-field")
        name = self._state_field(data)
        state: Any = None if name is None else data[name]
        if state is None and self._featured(data):
            state = ""
        return Row(line, data, state, bytes=len(content))

    def _featured(self, data: Mapping[str, Any]) -> bool:
        return any(data.get(name) is not None for name in self._features)

    def _state_field(self, data: Mapping[str, Any]) -> str | None:
        wanted = FIELDS if self._field is None else (self._field,)
        found = [name for name in wanted if name in data]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError("the row has both 'text' and 'state': choose one with --field")
        if self._featured(data):
            return None
        near = difflib.get_close_matches(wanted[0], list(data), 1)
        hint = f"did you mean --field {near[0]}?" if near else f"it has: {', '.join(map(repr, data)) or 'nothing'}"
        raise InputError(f"the row has no field {' or '.join(map(repr, wanted))}; {hint:.200}")
