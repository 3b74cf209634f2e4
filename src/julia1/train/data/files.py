"""Records of data files: JSON lines, CSV, Parquet; and files that are written whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from julia1.errors import InputError, Julia1Error, MissingExtraError
from julia1.train.sources import placed_json_lines, read_utf8

LIST_SEPARATOR = "|"
"""Between the labels of one cell in a CSV file."""


@dataclass(frozen=True)
class Columns:
    """Which fields of a row are what.

    Attributes:
        text: the field with the text; ``text`` or ``state`` when ``None``.
        answers: fields that hold answers; ``label``, ``labels``, ``score``, ``targets``, ``spans`` and the object
            ``answers`` when empty.
        features: fields with structured features: numbers, or text for a category; may be missing in a row.
        second: the field with a second text; ``candidates`` holds several.
        language, group, augmented: names of these fields.
    """

    text: str | None = None
    answers: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    second: str = "text_b"
    language: str = "lang"
    group: str = "group"
    augmented: str = "augmented"


def read_records(path: Path, columns: Columns) -> Iterator[tuple[str, dict[str, Any]]]:
    """``file:line`` and the fields of each record of a JSON-lines, CSV or Parquet file.

    Raises:
        InputError: a file that cannot be read, or a bad record, named by its line.
    """
    if not path.is_file():
        raise InputError(f"there is no data file {path}")
    kind = path.suffix.lower()
    if kind in (".jsonl", ".ndjson", ".json"):
        yield from placed_json_lines(path)
    elif kind in (".csv", ".tsv"):
        yield from _csv_records(path, columns, "\t" if kind == ".tsv" else ",")
    elif kind == ".parquet":
        yield from _parquet_records(path)
    else:
        raise InputError(f"{path}: a data file ends in .jsonl, .csv, .tsv or .parquet, not {kind or 'nothing'!r}")


def _csv_records(path: Path, columns: Columns, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(read_utf8(path), newline=""), delimiter=delimiter, strict=True)
    start = 2
    records: list[tuple[str, dict[str, str]]] = []
    try:
        for record in reader:
            place, start = f"{path}:{start}", reader.line_num + 1
            if None in record or None in record.values():
                raise InputError(f"{place}: the row has another number of cells than the header")
            records.append((place, record))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from None
    readers = {name: _cell_reader(name, [row[name] for _, row in records], columns) for name in reader.fieldnames or ()}
    for place, cells in records:
        values = {name: readers[name](cell) for name, cell in cells.items()}
        yield place, {name: value for name, value in values.items() if value is not None}


def _cell_reader(name: str, cells: Sequence[str], columns: Columns) -> Callable[[str], Any]:
    """What the cells of a CSV column mean. Empty ones are missing (in ``labels``: no label).

    ``labels``, and a column named as an answer that has a ``|`` somewhere, hold lists. ``score``, and a column named as
    an answer or a feature whose cells are all numbers, hold numbers.
    """
    filled = [cell for cell in cells if cell.strip()]
    if name in (columns.augmented, "match"):
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        return lambda cell: words.get(cell.strip().lower(), cell) if cell.strip() else None
    if name == "labels" or (name in columns.answers and any(LIST_SEPARATOR in cell for cell in filled)):
        missing: list[str] | None = [] if name == "labels" else None
        return lambda cell: [part.strip() for part in cell.split(LIST_SEPARATOR)] if cell.strip() else missing
    numeric = name == "score" or name in columns.features or name in columns.answers
    if numeric and filled and all(_parses(cell) for cell in filled):
        return lambda cell: float(cell) if cell.strip() else None
    return lambda cell: cell if cell.strip() else None


def _parses(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parquet_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtraError("pyarrow", "train") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} is not a Parquet file: {error}") from None
    for number, record in enumerate(table.to_pylist(), start=1):
        yield f"{path}:{number}", {name: value for name, value in record.items() if value is not None}


def write_files(contents: Mapping[Path, Iterable[str]]) -> None:
    """Write UTF-8 text files under temporary names, then give all of them their own.

    Raises:
        Julia1Error: one of them cannot be written; then none is, and what stood there is as it was.
    """
    temporaries = {path: path.with_name(f"{path.name}.tmp") for path in contents}
    under_way = Path()
    try:
        for path, pieces in contents.items():
            under_way = path
            with temporaries[path].open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(pieces)
        for path, temporary in temporaries.items():
            under_way = path
            temporary.replace(path)
    except OSError as error:
        raise Julia1Error(f"cannot write {under_way}: {error.strerror}") from None
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
