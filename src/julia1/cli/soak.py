"""``julia1 soak``: keep a model busy for a while, and see whether memory grows or latency drifts."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from julia1.cli.decide import model_fields
from julia1.cli.flags import Commands, add_bundle, add_json, add_run_flags
from julia1.cli.printing import count
from julia1.cli.questions import add_question_flags, questions_for
from julia1.errors import InputError, VerificationError

if TYPE_CHECKING:
    from julia1.bundle import Manifest
    from julia1.runtime.fixed import Given

DEFAULT_MINUTES = 10.0
MOST_ROWS = 10_000
"""Rows of a file that are kept in memory to draw from."""
_EXAMPLES = """examples:
  julia1 soak --minutes 10
  julia1 soak tickets@production --minutes 1440 --output soak.json
  julia1 soak --data tickets.jsonl -q questions.yaml --minutes 0.5
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "soak",
        help="look for growing memory and drifting latency",
        description="Keep a model busy with random lengths, batches and languages; watch memory, descriptors, threads "
        "and the latency of one request that never changes. Exits 3 when something shows a trend after the warm-up. "
        "Ctrl-C ends it early, with a report on the time so far.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, parser=parser)
    add_model_flags(parser)
    parser.add_argument(
        "--minutes",
        type=minutes,
        default=DEFAULT_MINUTES,
        metavar="N",
        help="for how long; may be a fraction (default: 10)",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="JSON lines with your own texts, as 'julia1 decide --input' reads them"
    )
    parser.add_argument("--field", metavar="NAME", help="field with the text or state; 'text' or 'state' without it")
    add_question_flags(parser)
    add_output(parser)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """BUNDLE, ``--variant`` and ``--threads``."""
    add_bundle(parser)
    add_run_flags(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    """``--output`` and ``--json``."""
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the whole report there, as JSON")
    add_json(parser)


def minutes(text: str) -> float:
    """A number of minutes above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Soak and print the verdicts; raises ``VerificationError`` when one fails."""
    from julia1.bench import Workload, judge, soak
    from julia1.bench.verdicts import failed
    from julia1.cli.progress import SoakProgress
    from julia1.cli.verdicts import require_writable, tell
    from julia1.runtime import decider as runtime

    require_writable(arguments.output)
    if arguments.field is not None and arguments.data is None:
        raise InputError("--field names a field of the rows of --data: give --data FILE, or leave it out")
    decider = runtime.load(
        arguments.bundle, variant=arguments.variant, engine=arguments.engine, threads=arguments.threads
    )
    manifest = decider.manifest
    questions = questions_for(manifest, arguments)
    rows = [] if arguments.data is None else _rows(arguments.data, arguments.field, manifest)
    workload = Workload(manifest, rows, questions)
    with SoakProgress() as progress:
        recording = soak(decider, workload, arguments.minutes * 60, progress)
    report = judge(recording)
    data = {"model": model_fields(decider), "threads": decider.plan.threads, **report.to_dict()}
    tell(data, report.verdicts, arguments.output, arguments.json)
    wrong = failed(report.verdicts)
    if wrong:
        raise VerificationError(
            f"{count(len(wrong), 'trend')} in {recording.seconds / 60:.1f} min: "
            + ", ".join(f"{one.name} {one.note or one.figure}" for one in wrong)
        )
    if recording.interrupted:
        print(
            f"julia1: interrupted after {recording.seconds / 60:.1f} of {arguments.minutes:g} min: the report is on "
            "the time so far",
            file=sys.stderr,
        )
        return 130
    return 0


def _rows(path: str, field: str | None, manifest: Manifest) -> list[Given]:
    """Inputs of the model from the first rows of a file."""
    from itertools import islice

    from julia1.cli.rows import SECOND_FIELD, RowReader, given_of
    from julia1.runtime.fixed import featured
    from julia1.text.states import render_states

    reader = RowReader(path, field, "", manifest.features.names)
    given = []
    try:
        for row in islice(reader, MOST_ROWS):
            where = f"{reader.name} line {row.line}"
            if row.problem:
                raise InputError(f"{where}: {row.problem}")
            one = given_of(row, manifest)
            if manifest.compares() and one.second is None:
                raise InputError(f"{where}: the model compares two texts, and the row has no {SECOND_FIELD!r}")
            try:
                render_states([one.state], [featured(one.features)])
                if one.second is not None:
                    render_states([one.second])
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
            given.append(one)
    finally:
        reader.close()
    if not given:
        raise InputError(f"{reader.name} holds no rows: write one a line")
    return given
