"""Labelled rows from JSON lines, CSV or Parquet. Every mistake is one error that names file and line.

A row holds a text (``text`` or ``state``), answers, and optionally structured features, which may also stand alone:

    {"text": "I was charged twice", "label": "billing"}                  one label
    {"text": "...", "labels": ["billing", "complaint"]}                  several labels, perhaps none
    {"text": "...", "score": 2.5}                                        a number
    {"text": "...", "targets": {"billing": 0.8, "shipping": 0.2}}        a soft label
    {"text": "...", "spans": [{"start": 6, "end": 13, "label": "what"}]} labelled parts of the text, perhaps none
    {"text": "...", "text_b": "...", "match": true}                      whether two texts belong together
    {"text": "...", "candidates": ["...", "..."], "best": 0}             which of some texts fits, counted from 0
    {"text": "...", "answers": {"team": "billing", "urgent": true}}      several questions

Further fields that mean something: ``lang`` (a language code), ``group`` (rows with the same group stay in one split)
and ``augmented`` (true for a row that was translated or made up: it is never evaluated on).
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from julia1.content import checked_text, render, shown
from julia1.errors import InputError
from julia1.train.data.files import Columns, read_records, write_files
from julia1.train.data.pairs import Best, Match, read_best, read_candidates
from julia1.train.data.spans import Spans, read_spans

Kind = Literal["choice", "labels", "yesno", "score", "soft", "tags", "match", "rank"]
Answer = str | bool | float | tuple[str, ...] | Mapping[str, float] | Spans | Match | Best

TEXT_FIELDS = ("text", "state")
ANSWER_FIELDS = ("label", "labels", "score", "targets", "spans", "match", "best")
ORDINAL_LEVELS = 12
"""A score with at most so many distinct values has levels; with more it is a number."""
MAX_LABELS = 10_000
LARGEST = 3e38
"""What a float of 32 bits holds."""


@dataclass(frozen=True)
class DataRow:
    """One labelled row.

    Attributes:
        place: ``file:line``.
        text: the text as a model reads it; '' for a row of features alone.
        answers: by question; a missing one is not there.
        features: by name; ``None`` where the row has none.
        language: its language code, '' when it says none.
        group: rows with the same group belong together, '' for a row on its own.
        augmented: made from another row.
        data: the row as it was read.
        second: another text that the answers are about too, '' without one.
        candidates: texts of which one fits best.
    """

    place: str
    text: str
    answers: Mapping[str, Answer]
    features: Mapping[str, float | str | None]
    language: str
    group: str
    augmented: bool
    data: Mapping[str, Any]
    second: str = ""
    candidates: tuple[str, ...] = ()


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

    @property
    def features_alone(self) -> str:
        """What to tell where no row has a text, which may be meant or not; '' where one has."""
        if any(row.text.strip() for row in self.rows):
            return ""
        fields = ", ".join(map(repr, self.rows[0].data)) if self.rows else "none"
        return f"no row has a text, so features alone decide; the first row has the fields {fields}"


def read_rows(
    paths: Sequence[Path], columns: Columns | None = None, *, allow_empty: bool = False, answered: bool = True
) -> DataSet:
    """Read files of one schema.

    Args:
        paths: the files.
        columns: which fields are what.
        allow_empty: take rows whose text is blank too.
        answered: read answers, of which every row needs one; without it they are passed over.

    Raises:
        InputError: a file that cannot be read, a bad row, one without text and features or without answers, answers of
            mixed types, or a set without rows; named with file and line.
    """
    columns = columns or Columns()
    records = [record for path in paths for record in read_records(path, columns)]
    tagged = _tagged(records, columns)
    rows = [_row(place, data, columns, tagged, allow_empty, answered) for place, data in records]
    if not rows:
        raise InputError(f"{', '.join(map(str, paths))}: no rows")
    if columns.text is not None and not any(columns.text in row.data for row in rows):
        near = difflib.get_close_matches(columns.text, list(rows[0].data), 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise InputError(f"{', '.join(map(str, paths))}: no row has the field {columns.text!r}{hint}")
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
    if isinstance(answer, (Match, Best)):
        return "match" if isinstance(answer, Match) else "rank"
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
    """Write JSON lines; raises as ``write_files``."""
    write_files({path: json_lines(rows)})


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Rows as lines; dates and decimals of a Parquet file, which have no form of their own in JSON, become text.

    A number that is none (the ``nan`` of a CSV file) is left out, as nothing is what it says.
    """
    for row in rows:
        known = {name: value for name, value in row.items() if not (isinstance(value, float) and math.isnan(value))}
        line = json.dumps(known, ensure_ascii=False, default=str)
        try:
            line.encode("utf-8")
        except UnicodeEncodeError:  # half of a character, which only an escape can say
            line = json.dumps(known, default=str)
        yield line + "\n"


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


def _row(
    place: str, data: dict[str, Any], columns: Columns, tagged: Collection[str], allow_empty: bool, answered: bool
) -> DataRow:
    features = {name: _feature(place, name, data.get(name)) for name in columns.features}
    featured = any(value is not None for value in features.values())
    text_field = _text_field(place, data, columns, needed=not featured)
    given = None if text_field is None else data[text_field]
    text = "" if given is None and featured else render(given, f"{place}: the text")
    if not text.strip() and not allow_empty and not featured:
        raise InputError(f"{place}: the text is empty" + (", and there is no feature" if columns.features else ""))
    second = data.get(columns.second)
    second = "" if second is None else render(second, f"{place}: {columns.second!r}")
    second = second if second.strip() else ""
    candidates = read_candidates(place, data.get("candidates"))
    answers: dict[str, Answer] = {}
    fields = _answer_fields(place, data, columns) if answered else {}
    for name, value in fields.items():
        if name in tagged and isinstance(value, (list, tuple)):
            answers[name] = read_spans(f"{place}: {name!r}", text, value, _label)
        elif name == "match" and isinstance(value, bool):
            if not second:
                raise InputError(f"{place}: 'match' needs a second text in {columns.second!r}")
            answers[name] = Match(value)
        elif name == "best" and candidates:
            answers[name] = read_best(f"{place}: {name!r}", value, len(candidates))
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
        features=features,
        language=str(data.get(columns.language) or ""),
        group="" if group is None else f"{data.get('subset', '')}/{group}",
        augmented=augmented,
        data=data,
        second=second,
        candidates=candidates,
    )


def _text_field(place: str, data: Mapping[str, Any], columns: Columns, needed: bool) -> str | None:
    wanted = TEXT_FIELDS if columns.text is None else (columns.text,)
    for name in wanted:
        if name in data:
            return name
    if not needed:
        return None
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
