"""``julia1 soak``: keep a model busy for a while, and see whether memory grows or latency drifts."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from julia1.cli.decide import SECOND_FIELD, model_fields
from julia1.cli.flags import Commands, add_bundle, add_json, add_run_flags
from julia1.cli.printing import count
from julia1.cli.questions import add_question_flags, collect_questions
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
    asked = arguments.questions is not None or arguments.asked
    questions = collect_questions(arguments.questions, arguments.asked) if asked else None
    if arguments.field is not None and arguments.data is None:
        raise InputError("--field names a field of the rows of --data: give --data FILE, or leave it out")
    decider = runtime.load(
        arguments.bundle, variant=arguments.variant, engine=arguments.engine, threads=arguments.threads
    )
    manifest = decider.manifest
    if questions is not None and manifest.kind == "fixed":
        raise InputError(f"{manifest.name} answers what it was trained to: leave the questions out")
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

    from julia1.cli.rows import RowReader
    from julia1.runtime.fixed import Given
    from julia1.text.states import render_states

    features = (*manifest.features.numbers, *manifest.features.categories)
    reader = RowReader(path, field, "", features)
    given = []
    try:
        for row in islice(reader, MOST_ROWS):
            where = f"{reader.name} line {row.line}"
            if row.problem:
                raise InputError(f"{where}: {row.problem}")
            own = {name: row.data.get(name) for name in features}
            featured = any(value is not None for value in own.values())
            second = row.data.get(SECOND_FIELD) if manifest.compares() else None
            if manifest.compares() and second is None:
                raise InputError(f"{where}: the model compares two texts, and the row has no {SECOND_FIELD!r}")
            try:
                render_states([row.state], [featured])
                if second is not None:
                    render_states([second])
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
            given.append(Given(row.state, second, own or None))
    finally:
        reader.close()
    if not given:
        raise InputError(f"{reader.name} holds no rows: write one a line")
    return given
