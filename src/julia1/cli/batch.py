"""Answers the rows of a JSON-lines file in chunks: streaming, and to be taken up after an interruption."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from julia1.answers import Answer
from julia1.cli.printing import count, print_json, to_json
from julia1.cli.progress import RowProgress
from julia1.cli.row_file import RowFile
from julia1.cli.rows import Row, RowReader
from julia1.errors import InputError, Julia1Error
from julia1.questions import Question

if TYPE_CHECKING:
    from julia1.runtime.decider import Decider

CHUNK_ROWS = 256
CHUNK_BYTES = 2 << 20
ERROR_KEYS = {"line", "error"}
"""What a bad row is written as."""

Outcome = dict[str, Answer] | InputError


@dataclass(frozen=True)
class Job:
    """What to answer, from where to where.

    Attributes:
        input, output: paths; ``-`` and ``None`` are standard input and output.
        questions: asked of every row; ``None`` for a model with fixed heads.
        names: of the questions, or of the heads.
        features: fields of a row that are structured features of the model.
        second: field of the second text, for a model of pairs.
        field: of the state in a row; ``text`` or ``state`` when ``None``.
        answers_field: of the answers in a written row.
        keep_going: write a bad row as its line number and error, instead of stopping there.
        resume: go on with an unfinished output.
        strict, abstain_below: as in ``Decider.decide``.
    """

    input: str
    output: str | None
    questions: Mapping[str, Question] | None
    names: tuple[str, ...]
    features: tuple[str, ...] = ()
    second: str | None = None
    field: str | None = None
    answers_field: str = "answers"
    keep_going: bool = False
    resume: bool = False
    strict: bool = False
    abstain_below: float | None = None


@dataclass
class Tally:
    """Rows so far: all of them, those with an error, those of an earlier run, and how much of the input they took."""

    rows: int = 0
    errors: int = 0
    earlier: int = 0
    bytes: int = 0


@dataclass
class Earlier:
    """What an earlier run wrote, checked against the input: the tally, and the last answered row to compare with."""

    tally: Tally = field(default_factory=Tally)
    last: tuple[Row, Mapping[str, Any]] | None = None


def decide_rows(job: Job, load: Callable[[], Decider], as_json: bool = False) -> None:
    """Answer every row, and tell at the end how many there were.

    Args:
        job: what to do.
        load: gives the model; called when the files and questions are known to be good.
        as_json: tell it as JSON.

    Raises:
        InputError: a bad row, named by its line, or an output that is in the way. Rows of earlier chunks are kept, to
            be taken up.
        Julia1Error: rows had errors and were passed over.
    """
    with ExitStack() as stack:
        file = stack.enter_context(RowFile(job.output, job.resume)) if job.output is not None else None
        reader = RowReader(job.input, job.field, job.answers_field, job.features)
        stack.callback(reader.close)
        rows = iter(reader)
        earlier = _take_up(job, reader, rows, file) if file is not None else Earlier()
        tally = earlier.tally
        decider: Decider | None = None
        with RowProgress(reader.bytes_total, lines=file is not None) as progress:
            for chunk in _chunks(rows):
                if decider is None:
                    decider = load()
                    _compare(job, decider, earlier, file)
                records = list(_records(job, reader.name, chunk, _answers(job, decider, chunk)))
                tally.rows += len(chunk)
                tally.errors += sum(record.keys() == ERROR_KEYS for record in records)
                tally.bytes = reader.bytes_read
                _write(file, records)
                progress.update(tally.rows, tally.bytes)
        if file is not None:
            file.finish()
    _tell(job, tally, as_json)


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += row.bytes
        if len(chunk) == CHUNK_ROWS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _answers(job: Job, decider: Decider, chunk: Sequence[Row]) -> Iterator[Outcome]:
    """One outcome for each row whose line could be read; raises when the questions themselves are at fault."""
    good = [row for row in chunk if not row.problem]
    try:
        yield from _decide(job, decider, good)
    except InputError:
        if job.questions is not None:
            decider.decide("a text that no question can fail on", job.questions)
        yield from _halved(job, decider, good)


def _halved(job: Job, decider: Decider, rows: Sequence[Row]) -> list[Outcome]:
    """Outcomes of rows some of which are bad: halves that fail are halved again, so that a bad row costs little."""
    try:
        return list(_decide(job, decider, rows))
    except InputError as error:
        if len(rows) == 1:
            return [error]
    middle = len(rows) // 2
    return [*_halved(job, decider, rows[:middle]), *_halved(job, decider, rows[middle:])]


def _decide(job: Job, decider: Decider, rows: Sequence[Row]) -> list[dict[str, Answer]]:
    states = [row.state for row in rows]
    if job.questions is None:
        features = [{name: row.data.get(name) for name in job.features} for row in rows]
        seconds = None if job.second is None else [row.data.get(job.second) for row in rows]
        return decider.decide_many(
            states, seconds=seconds, features=features, strict=job.strict, abstain_below=job.abstain_below
        )
    return decider.decide_many(states, job.questions, strict=job.strict, abstain_below=job.abstain_below)


def _records(job: Job, name: str, chunk: Sequence[Row], outcomes: Iterator[Outcome]) -> Iterator[dict[str, Any]]:
    """What to write for each row of a chunk, in order."""
    for row in chunk:
        outcome = InputError(row.problem) if row.problem else next(outcomes)
        if not isinstance(outcome, InputError):
            answers = {question: answer.to_dict() for question, answer in outcome.items()}
            yield {**row.data, job.answers_field: answers}
        elif job.keep_going:
            yield {"line": row.line, "error": str(outcome)}
        else:
            raise InputError(f"{name} line {row.line}: {outcome} (--keep-going passes over bad rows)")


def _write(file: RowFile | None, records: Sequence[Mapping[str, Any]]) -> None:
    if file is not None:
        file.write(records)
    else:
        sys.stdout.writelines(f"{to_json(record)}\n" for record in records)
        sys.stdout.flush()


def _take_up(job: Job, reader: RowReader, rows: Iterator[Row], file: RowFile) -> Earlier:
    """Match what an earlier run wrote with the rows of the input, one by one."""
    earlier = Earlier()
    tally = earlier.tally
    for record in file.written():
        tally.rows += 1
        row = next(rows, None)
        if row is None:
            raise InputError(f"{file.earlier} has more rows than {reader.name}: it belongs to another input")
        failed = isinstance(record, dict) and record.keys() == ERROR_KEYS
        if not (record["line"] == row.line if failed else _matches(job, record, row)):
            raise InputError(
                f"{file.earlier} line {tally.rows} does not belong to {reader.name} line {row.line} and these "
                "questions: give the input and questions that it was made with, or remove it"
            )
        tally.errors += failed
        if not failed:
            earlier.last = row, record[job.answers_field]
    tally.earlier, tally.bytes = tally.rows, reader.bytes_read
    return earlier


def _matches(job: Job, record: Any, row: Row) -> bool:
    if not isinstance(record, dict) or row.problem:
        return False
    answers = record.get(job.answers_field)
    rest = {key: value for key, value in record.items() if key != job.answers_field}
    return isinstance(answers, dict) and list(answers) == list(job.names) and rest == row.data


def _compare(job: Job, decider: Decider, earlier: Earlier, file: RowFile | None) -> None:
    """Answer the last row of the earlier run again: another model or other questions would not give the same."""
    if earlier.last is None or file is None:
        return
    row, old = earlier.last
    (again,) = _decide(job, decider, [row])
    if not _close(old, {name: answer.to_dict() for name, answer in again.items()}):
        raise InputError(
            f"{file.earlier} was answered by another model or variant, or with other questions or flags: go on with "
            "those, or remove it"
        )


def _close(old: Any, new: Any) -> bool:
    """Whether two answers are the same but for the rounding of another machine."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_close(old[key], new[key]) for key in new)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_close, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) < 0.01 * max(1.0, abs(new))
    return bool(old == new)


def _tell(job: Job, tally: Tally, as_json: bool) -> None:
    if job.output is not None:
        if as_json:
            numbers = {"rows": tally.rows, "errors": tally.errors, "resumed": tally.earlier}
            print_json({"input": job.input, "output": job.output, **numbers})
        else:
            before = f", {tally.earlier:,} of them by an earlier run" if tally.earlier else ""
            print(f"{job.output}: {count(tally.rows, 'row')}{before}")
    if tally.errors:
        where = job.output or "the output"
        raise Julia1Error(f"{count(tally.errors, 'row')} could not be answered: see the lines with an error in {where}")
