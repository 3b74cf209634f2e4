"""Labelled rows from JSON lines, CSV or Parquet. Every mistake is one error that names file and line.

A row holds a text (``text`` or ``state``), answers, and optionally structured features:

    {"text": "I was charged twice", "label": "billing"}                  one label
    {"text": "...", "labels": ["billing", "complaint"]}                  several labels, perhaps none
    {"text": "...", "score": 2.5}                                        a number
    {"text": "...", "targets": {"billing": 0.8, "shipping": 0.2}}        a soft label
    {"text": "...", "spans": [{"start": 6, "end": 13, "label": "what"}]} labelled parts of the text, perhaps none
    {"text": "...", "answers": {"team": "billing", "urgent": true}}      several questions

Further fields that mean something: ``lang`` (a language code), ``group`` (rows with the same group stay in one split)
and ``augmented`` (true for a row that was translated or made up: it is never evaluated on).
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from julia1.content import checked_text, render, shown
from julia1.errors import InputError, MissingExtraError
from julia1.train.data.spans import Spans, read_spans
from julia1.train.sources import placed_json_lines, read_utf8

Kind = Literal["choice", "labels", "yesno", "score", "soft", "tags"]
Answer = str | bool | float | tuple[str, ...] | Mapping[str, float] | Spans

TEXT_FIELDS = ("text", "state")
ANSWER_FIELDS = ("label", "labels", "score", "targets", "spans")
LIST_SEPARATOR = "|"
"""Between the labels of one cell in a CSV file."""
ORDINAL_LEVELS = 12
"""A score with at most so many distinct values has levels; with more it is a number."""
MAX_LABELS = 10_000
LARGEST = 3e38
"""What a float of 32 bits holds."""


@dataclass(frozen=True)
class Columns:
    """Which fields of a row are what.

    Attributes:
        text: the field with the text; ``text`` or ``state`` when ``None``.
        answers: fields that hold answers; ``label``, ``labels``, ``score``, ``targets``, ``spans`` and the object
            ``answers`` when empty.
        features: fields with structured features: numbers, or text for a category; may be missing in a row.
        language, group, augmented: names of these fields.
    """

    text: str | None = None
    answers: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    language: str = "lang"
    group: str = "group"
    augmented: str = "augmented"


@dataclass(frozen=True)
class DataRow:
    """One labelled row.

    Attributes:
        place: ``file:line``.
        text: the text as a model reads it.
        answers: by question; a missing one is not there.
        features: by name; ``None`` where the row has none.
        language: its language code, '' when it says none.
        group: rows with the same group belong together, '' for a row on its own.
        augmented: made from another row.
        data: the row as it was read.
    """

    place: str
    text: str
    answers: Mapping[str, Answer]
    features: Mapping[str, float | str | None]
    language: str
    group: str
    augmented: bool
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """What is asked of every row under one name.

    Attributes:
        name: the question's name.
        kind: how it is answered.
        labels: every label seen, sorted; empty for a score and a yes/no question.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]


@dataclass
class DataSet:
    """Rows with what is asked of them."""

    rows: list[DataRow] = field(default_factory=list)
    heads: dict[str, Head] = field(default_factory=dict)


def read_rows(paths: Sequence[Path], columns: Columns | None = None, *, allow_empty: bool = False) -> DataSet:
    """Read files of one schema.

    Args:
        paths: the files.
        columns: which fields are what.
        allow_empty: take rows whose text is blank too.

    Raises:
        InputError: a file that cannot be read, a bad row, a row without text or answers, answers of mixed types, or a
            set without rows; named with file and line.
    """
    columns = columns or Columns()
    records = [record for path in paths for record in _records(path, columns)]
    tagged = _tagged(records, columns)
    rows = [_row(place, data, columns, tagged, allow_empty) for place, data in records]
    if not rows:
        raise InputError(f"{', '.join(map(str, paths))}: no rows")
    for name in columns.features:
        if all(row.features[name] is None for row in rows):
            raise InputError(f"{', '.join(map(str, paths))}: no row has the feature {name!r}")
    return DataSet(rows, find_heads(rows))


def find_heads(rows: Iterable[DataRow]) -> dict[str, Head]:
    """The questions of the rows, each with its kind and labels.

    Raises:
        InputError: a question that is answered with values of different types, or has too many labels.
    """
    first: dict[str, tuple[Kind, DataRow]] = {}
    labels: dict[str, set[str]] = {}
    for row in rows:
        for name, answer in row.answers.items():
            kind = kind_of(answer)
            known, example = first.setdefault(name, (kind, row))
            if kind != known:
                raise InputError(
                    f"{name!r} is answered with mixed types: {shown(example.answers[name])} at {example.place}, "
                    f"{shown(answer)} at {row.place}: give every row the same type"
                )
            labels.setdefault(name, set()).update(labels_of(answer))
    for name, found in labels.items():
        if len(found) > MAX_LABELS:
            raise InputError(
                f"{name!r} has {len(found):,} labels, {MAX_LABELS:,} are taken at most: is this a label, or a text?"
            )
    return {name: Head(name, kind, tuple(sorted(labels[name]))) for name, (kind, _) in first.items()}


def is_number(head: str, rows: Iterable[DataRow]) -> bool:
    """Whether a question is answered with more different numbers than a scale has levels."""
    values = {row.answers[head] for row in rows if head in row.answers and kind_of(row.answers[head]) == "score"}
    return len(values) > ORDINAL_LEVELS


def kind_of(answer: Answer) -> Kind:
    """How an answer of this type is asked for."""
    if isinstance(answer, bool):
        return "yesno"
    if isinstance(answer, str):
        return "choice"
    if isinstance(answer, (int, float)):
        return "score"
    if isinstance(answer, Spans):
        return "tags"
    return "labels" if isinstance(answer, tuple) else "soft"


def labels_of(answer: Answer) -> tuple[str, ...]:
    """The labels that an answer names."""
    if isinstance(answer, str):
        return (answer,)
    if isinstance(answer, tuple):
        return answer
    if isinstance(answer, Spans):
        return answer.labels
    return tuple(answer) if isinstance(answer, Mapping) else ()


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines under a temporary name, then give the file its own."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            for row in rows:
                # dates and decimals of a Parquet file have no form of their own in JSON
                file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _records(path: Path, columns: Columns) -> Iterator[tuple[str, dict[str, Any]]]:
    """``file:line`` and the fields of each record."""
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
    if name == columns.augmented:
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


def _tagged(records: Sequence[tuple[str, dict[str, Any]]], columns: Columns) -> set[str]:
    """Questions answered with spans: ``spans``, and those where some list holds objects; an empty list does not say."""
    found = {"spans"}
    for _, data in records:
        several = data.get("answers") if not columns.answers else None
        for fields in (data, several if isinstance(several, dict) else {}):
            found.update(
                str(name)
                for name, value in fields.items()
                if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict)
            )
    return found


def _row(place: str, data: dict[str, Any], columns: Columns, tagged: Collection[str], allow_empty: bool) -> DataRow:
    text = render(data[_text_field(place, data, columns)], f"{place}: the text")
    if not text.strip() and not allow_empty and not columns.features:
        raise InputError(f"{place}: the text is empty")
    answers: dict[str, Answer] = {}
    for name, value in _answer_fields(place, data, columns).items():
        if name in tagged and isinstance(value, (list, tuple)):
            answers[name] = read_spans(f"{place}: {name!r}", text, value, _label)
        else:
            answers[name] = _answer(place, name, value)
    augmented = data.get(columns.augmented, False)
    if not isinstance(augmented, bool):
        raise InputError(f"{place}: {columns.augmented!r} is {shown(augmented)}: give true or false")
    group = data.get(columns.group)
    return DataRow(
        place=place,
        text=text,
        answers=answers,
        features={name: _feature(place, name, data.get(name)) for name in columns.features},
        language=str(data.get(columns.language) or ""),
        group="" if group is None else f"{data.get('subset', '')}/{group}",
        augmented=augmented,
        data=data,
    )


def _text_field(place: str, data: Mapping[str, Any], columns: Columns) -> str:
    wanted = TEXT_FIELDS if columns.text is None else (columns.text,)
    for name in wanted:
        if name in data:
            return name
    near = difflib.get_close_matches(wanted[0], list(data), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, data)) or 'nothing'}"
    raise InputError(f"{place}: no field {' or '.join(map(repr, wanted))}; {hint:.200}")


def _answer_fields(place: str, data: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Question to its answer as it stands in the row."""
    found = {name: data[name] for name in columns.answers or ANSWER_FIELDS if data.get(name) is not None}
    several = data.get("answers") if not columns.answers else None
    if several is not None:
        if not isinstance(several, dict):
            raise InputError(f"{place}: 'answers' must map questions to answers, it is {shown(several)}")
        found.update((str(name), value) for name, value in several.items() if value is not None)
    if not found:
        wanted = ", ".join(map(repr, columns.answers or (*ANSWER_FIELDS, "answers")))
        raise InputError(f"{place}: no answer: the row has none of {wanted}")
    return found


def _answer(place: str, name: str, value: Any) -> Answer:
    where = f"{place}: {name!r}"
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _label(where, value)
    if isinstance(value, (int, float)):
        return _finite(f"{where} is {{}}: a score must be a finite number", value)
    if isinstance(value, (list, tuple)):
        labels = tuple(_label(where, label) for label in value)
        if len(set(labels)) < len(labels):
            raise InputError(f"{where} names a label twice: {list(labels)}")
        return labels
    if isinstance(value, dict) and value:
        shares = {_label(where, label): _share(where, label, share) for label, share in value.items()}
        if not sum(shares.values()):
            raise InputError(f"{where} gives every label the probability 0")
        return {label: share for label, share in shares.items() if share}
    raise InputError(f"{where} is {shown(value)}: an answer is a label, a list of labels, a number, or true or false")


def _label(where: str, label: Any) -> str:
    if not isinstance(label, str):
        raise InputError(f"{where} has a label that is no text: {shown(label)}")
    cleaned = " ".join(checked_text(label, f"{where}: the label").split())
    if not cleaned:
        raise InputError(f"{where} has a blank label")
    return cleaned


def _share(where: str, label: str, share: Any) -> float:
    problem = f"{where} gives {label!r} the probability {{}}: it must be a number of at least 0"
    if isinstance(share, bool) or not isinstance(share, (int, float)) or share < 0:
        raise InputError(problem.format(shown(share)))
    return _finite(problem, share)


def _feature(place: str, name: str, value: Any) -> float | str | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    problem = f"{place}: the feature {name!r} is {{}}: give a finite number or a text"
    if isinstance(value, (bool, int, float)):
        return _finite(problem, value)
    raise InputError(problem.format(shown(value)))


def _finite(problem: str, value: float) -> float:
    """The value as a float that 32 bits can hold, or an ``InputError`` with the value in ``problem``."""
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not abs(found) < LARGEST:
        raise InputError(problem.format(shown(value)))
    return found
