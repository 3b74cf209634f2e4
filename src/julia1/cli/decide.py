"""``julia1 decide``: answer questions about one text, or about every row of a JSON-lines file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from julia1 import settings
from julia1.cli.data_text import parse_json, place, read_text
from julia1.cli.drawing import draw
from julia1.cli.flags import Commands, add_json, add_run_flags, bundle, fraction
from julia1.cli.printing import one_line, print_json
from julia1.cli.questions import add_question_flags, collect_questions
from julia1.cli.rows import SECOND_FIELD
from julia1.content import Content
from julia1.errors import InputError

if TYPE_CHECKING:
    from julia1.bundle import Manifest
    from julia1.runtime.decider import Decider

_EXAMPLES = """examples:
  julia1 decide "I was charged twice" --choice "Which team?" "billing: charges and refunds" shipping
  julia1 decide --yesno "Is it urgent?" --score "How upset?" calm annoyed furious --json < ticket.txt
  julia1 decide -q questions.yaml --input tickets.jsonl --output answers.jsonl
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "decide",
        help="answer questions about a text",
        description="Answer questions about one text, or about every row of a JSON-lines file.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the text; '-' or none reads standard input")
    parser.add_argument("-f", "--file", metavar="PATH", help="read the text from a file")
    parser.add_argument("--state-json", action="store_true", help="the text is JSON: an object, list or string")
    add_question_flags(parser)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        type=bundle,
        metavar="BUNDLE",
        help="folder, zip or NAME@VERSION of the registry (or JULIA1_MODEL); the bundled one without it",
    )
    add_run_flags(model)
    parser.add_argument(
        "--feature", action="append", metavar="NAME=VALUE", help="a structured feature, for a model trained with it"
    )
    parser.add_argument("--second", metavar="TEXT", help="a second text, for a model trained on pairs")
    parser.add_argument(
        "--candidate", action="append", metavar="TEXT", help="rank these by how well they fit the text; give several"
    )
    how = parser.add_argument_group("answers")
    how.add_argument("--strict", action="store_true", help="an error instead of reading only the start of a long text")
    how.add_argument(
        "--abstain-below",
        type=fraction,
        metavar="X",
        help="mark answers with a confidence under X (default: what a trained model says, else none)",
    )
    add_json(how)
    batch = parser.add_argument_group("JSON lines")
    batch.add_argument("--input", metavar="JSONL", help="answer every row of a file; '-' is standard input")
    batch.add_argument("--output", metavar="JSONL", help="where rows go with their answers; standard output without it")
    batch.add_argument("--field", metavar="NAME", help="field with the text or state; 'text' or 'state' without it")
    batch.add_argument("--answers-field", metavar="NAME", help="field to put the answers in; 'answers' without it")
    batch.add_argument("--keep-going", action="store_true", help="write bad rows as {line, error} and go on")
    batch.add_argument("--resume", action="store_true", help="go on with an unfinished --output")


def run(arguments: argparse.Namespace) -> int:
    """Answer, and print or write the answers."""
    _check_flags(arguments)
    fixed = _fixed(arguments)
    questions = None if fixed else collect_questions(arguments.questions, arguments.asked)
    features = _features(arguments.feature, fixed)
    for flag, given in (("feature", features), ("second", arguments.second), ("candidate", arguments.candidate)):
        if given and not fixed:
            raise InputError(f"--{flag} is for models with fixed heads, asked without questions")
    if arguments.input is not None:
        if features:
            raise InputError("--feature has no place beside --input: features are fields of the rows")
        from julia1.cli.batch import Job, decide_rows

        job = Job(
            input=arguments.input,
            output=None if arguments.output == "-" else arguments.output,
            questions=questions,
            names=tuple(head.name for head in fixed.heads) if fixed else tuple(questions or ()),
            features=fixed.features.names if fixed else (),
            second=SECOND_FIELD if fixed and fixed.compares() else None,
            field=arguments.field,
            answers_field=arguments.answers_field or "answers",
            keep_going=arguments.keep_going,
            resume=arguments.resume,
            strict=arguments.strict,
            abstain_below=arguments.abstain_below,
        )
        decide_rows(job, lambda: _load(arguments), arguments.json)
        return 0
    state = _state(arguments, bool(features))
    decider = _load(arguments)
    if arguments.candidate:
        return _rank(decider, state, arguments)
    how = {"strict": arguments.strict, "abstain_below": arguments.abstain_below}
    if fixed:
        answers = decider.decide(state, second=arguments.second, features=features, **how)
    else:
        answers = decider.decide(state, questions, **how)
    if arguments.json:
        print_json({"model": model_fields(decider), "answers": {name: a.to_dict() for name, a in answers.items()}})
    else:
        draw(questions or {}, answers, sys.stdout)
    return 0


def _rank(decider: Decider, state: Content, arguments: argparse.Namespace) -> int:
    ranked = decider.rank(state, arguments.candidate, strict=arguments.strict)
    if arguments.json:
        print_json({"model": model_fields(decider), "ranking": ranked.to_dict()})
        return 0
    for rank, number in enumerate(ranked.order, start=1):
        print(f"{rank:>3}  {ranked.scores[number]:7.2f}  {one_line(arguments.candidate[number])}")
    return 0


def _fixed(arguments: argparse.Namespace) -> Manifest | None:
    """The manifest of a model with fixed heads that is asked without questions, else ``None``."""
    if arguments.questions is not None or arguments.asked:
        return None
    from julia1.bundle import Bundle

    manifest = Bundle.open(arguments.model or settings.model_path()).manifest
    return manifest if manifest.kind == "fixed" else None


def _features(given: Sequence[str] | None, fixed: Manifest | None) -> dict[str, float | str]:
    """Features from ``NAME=VALUE``, each of the type that the model has it in."""
    features: dict[str, float | str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(f"--feature {text!r}: write NAME=VALUE")
        features[name] = value
        if fixed is not None and name in fixed.features.numbers:
            try:
                features[name] = float(value)
            except ValueError:
                raise InputError(f"--feature {text!r}: {name} is a number") from None
    return features


def model_fields(decider: Decider) -> dict[str, Any]:
    """Which model answered."""
    manifest, plan = decider.manifest, decider.plan
    return {"name": manifest.name, "version": manifest.version, "variant": plan.variant.name, "engine": plan.engine}


def _check_flags(arguments: argparse.Namespace) -> None:
    batch = ("output", "field", "answers_field", "keep_going", "resume")
    one = ("text", "file", "state_json", "second", "candidate")
    for name in one if arguments.input is not None else batch:
        if getattr(arguments, name):
            flag = "TEXT" if name == "text" else f"--{name.replace('_', '-')}"
            other = "has no place beside --input" if arguments.input is not None else "needs --input"
            raise InputError(f"{flag} {other}")
    if arguments.resume and arguments.output in (None, "-"):
        raise InputError("--resume needs --output FILE: what went to standard output cannot be taken up")
    if arguments.text is not None and arguments.file is not None:
        raise InputError(f"give either a text or --file {arguments.file}, not both")
    if arguments.questions == "-" and "-" in (arguments.input, arguments.file, arguments.text):
        raise InputError("standard input cannot be both the questions and the text")


def _state(arguments: argparse.Namespace, featured: bool) -> Content:
    """The state, from the argument, a file or standard input; where there are features, it may be blank or left out."""
    if arguments.text not in (None, "-"):
        text, where = str(arguments.text), "the text"
    else:
        path = arguments.file or "-"
        if path == "-" and (arguments.questions == "-" or (arguments.text is None and _no_input(arguments))):
            if featured:
                return ""
            raise InputError("no text: give it as an argument, with --file, or on standard input")
        text, where = read_text(path), place(path)
        if not text.strip():
            if featured:
                return ""
            raise InputError(f"{where} is empty: nothing to decide on")
        text = text.rstrip("\r\n")  # the end of the last line is not part of the text
    if not arguments.state_json:
        return text
    state: Content = parse_json(text, where)
    return state


def _no_input(arguments: argparse.Namespace) -> bool:
    return arguments.file is None and (sys.stdin is None or sys.stdin.isatty())


def _load(arguments: argparse.Namespace) -> Decider:
    from julia1.runtime import decider

    how = {"variant": arguments.variant, "engine": arguments.engine, "threads": arguments.threads}
    return decider.load(arguments.model, **how, warm_up=False)
