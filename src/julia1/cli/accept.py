"""``julia1 accept``: the acceptance table of a bundle on this machine."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from julia1 import settings
from julia1.cli.data import names
from julia1.cli.decide import model_fields
from julia1.cli.flags import Commands
from julia1.cli.printing import count, one_line
from julia1.cli.questions import add_question_flags, collect_questions, questions_for
from julia1.cli.soak import add_model_flags, add_output
from julia1.errors import InputError, VerificationError

if TYPE_CHECKING:
    from julia1.bench.labelled import Labelled
    from julia1.bundle import Bundle
    from julia1.questions import Question

DEFAULT_SOAK_MINUTES = 2.0
_EXAMPLES = """examples:
  julia1 accept tickets@production --data test.jsonl
  julia1 accept --data test.jsonl -q questions.yaml --soak-minutes 1440 --output acceptance.json
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "accept",
        help="check a model against the acceptance table",
        description="Measure export error, quantization loss, F1 beside PyTorch, the time of a single decision and a "
        "soak, on this machine and your own labelled rows. Exits 3 when a criterion fails.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, parser=parser)
    add_model_flags(parser)
    rows = parser.add_argument_group("rows")
    rows.add_argument(
        "--data", metavar="FILE", type=Path, required=True, help="rows with the right answers, as for julia1 train"
    )
    rows.add_argument("--text", metavar="FIELD", help="field with the text (default: text or state)")
    rows.add_argument(
        "--answers", metavar="A,B", type=names, default=(), help="fields with answers (default: all known)"
    )
    rows.add_argument(
        "--features", metavar="A,B", type=names, help="fields with structured features (default: those of the model)"
    )
    add_question_flags(parser)
    parser.add_argument(
        "--soak-minutes",
        type=_minutes,
        default=DEFAULT_SOAK_MINUTES,
        metavar="N",
        help="how long to soak; 0 leaves it out (default: 2; the mission's figure is 1440, a day)",
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; raises ``VerificationError`` when a criterion fails."""
    from julia1.bench.acceptance import accept
    from julia1.bench.verdicts import failed
    from julia1.bundle import Bundle
    from julia1.cli.progress import SoakProgress
    from julia1.cli.verdicts import require_writable, tell
    from julia1.runtime import decider as runtime

    require_writable(arguments.output)
    opened = Bundle.open(arguments.bundle or settings.model_path())
    questions = _questions(arguments, opened)
    labelled = _labelled(arguments, opened, questions)
    decider = runtime.load(opened.folder, variant=arguments.variant, engine=arguments.engine, threads=arguments.threads)
    with SoakProgress() as progress:
        found = accept(
            opened,
            decider,
            labelled,
            questions,
            soak_minutes=arguments.soak_minutes,
            progress=lambda line: print(f"julia1: {one_line(line)}", file=sys.stderr, flush=True),
            report=progress,
        )
    data = {"model": model_fields(decider), "threads": decider.plan.threads, **found.to_dict()}
    tell(data, found.verdicts, arguments.output, arguments.json)
    wrong = failed(found.verdicts)
    if wrong:
        raise VerificationError(
            f"{count(len(wrong), 'criterion') if len(wrong) == 1 else f'{len(wrong)} criteria'} not met: "
            + ", ".join(f"{one.name} {one.figure} (limit {one.limit})" for one in wrong)
        )
    return 0


def _questions(arguments: argparse.Namespace, opened: Bundle) -> dict[str, Question] | None:
    if opened.manifest.kind == "open":  # which must be asked something
        return collect_questions(arguments.questions, arguments.asked)
    return questions_for(opened.manifest, arguments)


def _labelled(arguments: argparse.Namespace, opened: Bundle, questions: dict[str, Question] | None) -> Labelled:
    from julia1.bench.labelled import label, one_question
    from julia1.train.data.files import Columns
    from julia1.train.data.rows import read_rows

    own = opened.manifest.features
    features = own.names if arguments.features is None else arguments.features
    unknown = [name for name in features if name not in own.numbers and name not in own.categories]
    if unknown:
        raise InputError(f"--features {unknown[0]}: the model has no such feature")
    columns = Columns(text=arguments.text, answers=arguments.answers, features=features)
    rows = read_rows([arguments.data], columns).rows
    return label(opened, rows if questions is None else one_question(rows, questions), questions)


def _minutes(text: str) -> float:
    """A number of minutes, or 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes of at least 0")
    return value
