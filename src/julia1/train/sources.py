"""Read normalised labelled sets (a folder of JSON lines with a ``meta.json``) and keep evaluation rows out of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from julia1.errors import InputError

GroupKey = tuple[str | None, str | None]
_NOT_WORD = re.compile(r"[\W_]+")


@dataclass
class LabelledSet:
    """Rows of one set with what its ``meta.json`` says about it.

    Attributes:
        name: folder name.
        meta: the parsed ``meta.json``.
        rows: the rows as read.
    """

    name: str
    meta: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def labels(self) -> dict[str, str]:
        """Label name to its short description."""
        return dict(self.meta.get("labels") or {})

    @property
    def labels_zh(self) -> dict[str, str]:
        """Label name to its Chinese name; empty when the set has none."""
        return dict(self.meta.get("labels_zh") or {})


def read_set(folder: Path, splits: Sequence[str], languages_out: Iterable[str] = ()) -> LabelledSet:
    """Read the splits of a set, without the rows of the languages named in ``languages_out``.

    Raises:
        InputError: a missing file, or a line that is not a JSON object (named by file and line).
    """
    meta_file = folder / "meta.json"
    if not meta_file.is_file():
        raise InputError(f"{folder} is not a labelled set: it has no meta.json")
    result = LabelledSet(folder.name, json.loads(meta_file.read_text(encoding="utf-8")))
    out = frozenset(languages_out)
    for split in splits:
        result.rows += [row for row in read_json_lines(folder / f"{split}.jsonl") if row.get("lang") not in out]
    return result


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSONL file; raises ``InputError`` naming file and line of the first bad one."""
    return [row for _, row in placed_json_lines(path)]


def placed_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """``file:line`` and the object of each line that is not blank; raises as ``read_json_lines``."""
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    # split("\n") and not splitlines(): U+2028 inside a JSON string is no line end
    for number, line in enumerate(read_utf8(path).split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}: not JSON that can be read: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{place}: a row must be a JSON object, got {type(row).__name__}")
        yield place, row


def read_utf8(path: Path) -> str:
    """The text of a file; raises ``InputError`` naming the line that is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}: not UTF-8: save the file as UTF-8") from None


def text_key(text: str) -> str:
    """The text without case, blanks and punctuation: equal keys mean the same text."""
    return _NOT_WORD.sub("", text).casefold()


def group_key(row: dict[str, Any]) -> GroupKey:
    """What a row shares with its translations; only rows with a ``group`` have any."""
    return row.get("subset"), row.get("group")


def without_held_out(labelled: LabelledSet, held_out: frozenset[str]) -> LabelledSet:
    """Drop rows whose text is held out, and every row of their group (its translations)."""
    groups = {group_key(row) for row in labelled.rows if "group" in row and text_key(row["text"]) in held_out}
    rows = [row for row in labelled.rows if text_key(row["text"]) not in held_out and group_key(row) not in groups]
    return LabelledSet(labelled.name, labelled.meta, rows)
