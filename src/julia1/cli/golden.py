"""``julia1 golden``: keep what a model computes on this machine, and check on another that it computes the same."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from julia1 import settings
from julia1.cli.flags import Commands, add_bundle, add_json, add_run_flags
from julia1.cli.printing import columns, count, one_line, print_json, size
from julia1.cli.questions import add_question_flags, collect_questions, questions_for
from julia1.cli.rows import RowReader, given_of
from julia1.errors import InputError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from julia1.bundle import Bundle
    from julia1.runtime.golden import Request

_TOLD = ("cpu", "architecture", "features", "system", "julia1")
_EXAMPLES = """examples:
  julia1 golden make -o golden.json.gz                    # here, for every variant that runs here
  julia1 golden check golden.json.gz                      # on another machine
  julia1 golden make model/bundle -o golden.json.gz --data rows.jsonl --yesno "Is it urgent?"
"""


def add_to(commands: Commands) -> None:
    """Add the command and its two subcommands."""
    parser = commands.add_parser(
        "golden",
        help="check that a model computes the same on another machine",
        description="Keep what a model computes on this machine, and check on another that it computes the same.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(parser=parser)
    nested = parser.add_subparsers(metavar="COMMAND", dest="golden_command", required=True)
    make = nested.add_parser(
        "make",
        help="make a golden file",
        description="Ask a model and keep token ids, tensors on the way, logits, probabilities and answers.",
    )
    make.set_defaults(run=run_make, parser=make)
    _add_model(make, "only this variant; every one that runs here without it")
    make.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to, as golden.json.gz")
    make.add_argument(
        "--data", metavar="JSONL", help="ask about these rows, kept in the file; built-in ones without it"
    )
    make.add_argument("--field", metavar="NAME", help="field with the text or state; 'text' or 'state' without it")
    add_question_flags(make)
    add_json(make)
    check = nested.add_parser(
        "check",
        help="check against a golden file",
        description="Ask a model what a golden file asked. An fp32 variant must give every logit and probability "
        "within 1e-4, any other the same answers to 99 %. Exits 3 when one departs, and names the first tensor that "
        "does.",
    )
    check.set_defaults(run=run_check, parser=check)
    check.add_argument("file", type=Path, metavar="FILE", help="what golden make wrote")
    _add_model(check, "only this variant; every one of the file without it")
    add_json(check)


def _add_model(parser: argparse.ArgumentParser, variant: str) -> None:
    add_bundle(parser)
    add_run_flags(parser, variant)


def run_make(arguments: argparse.Namespace) -> int:
    """Write the file and say what is in it."""
    from julia1.bundle import Bundle
    from julia1.runtime.golden import make_golden, write_golden

    if arguments.output.is_dir():
        raise InputError(f"{arguments.output} is a folder: name a file, such as {arguments.output / 'golden.json.gz'}")
    opened = Bundle.open(arguments.bundle or settings.model_path())
    golden = make_golden(
        opened,
        arguments.variant,
        engine=arguments.engine,
        threads=arguments.threads,
        requests=_requests(arguments, opened),
    )
    write_golden(golden, arguments.output)
    bytes_written = arguments.output.stat().st_size
    left_out = [one.name for one in opened.manifest.variants if one.name not in golden.variants]
    if arguments.json:
        print_json(
            {
                "path": str(arguments.output),
                "bytes": bytes_written,
                "bundle": str(golden.bundle),
                "requests": len(golden.requests),
                "variants": list(golden.variants),
                "left_out": left_out,
                "environment": dict(golden.environment),
            }
        )
    else:
        told = f"{', '.join(golden.variants)}" + (f"; left out: {', '.join(left_out)}" if left_out else "")
        print(f"{arguments.output}: {golden.bundle}, {count(len(golden.requests), 'request')}, {told}")
        print(f"{size(bytes_written)}, made on {_machine(golden.environment)}")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Print a line a variant; raises ``VerificationError`` when one departs or none could be checked."""
    from julia1.bundle import Bundle
    from julia1.runtime.golden import check_golden, read_golden

    golden = read_golden(arguments.file)
    opened = Bundle.open(arguments.bundle or settings.model_path())
    found = check_golden(golden, opened, arguments.variant, engine=arguments.engine, threads=arguments.threads)
    if arguments.json:
        print_json({"file": str(arguments.file), **found.to_dict()})
    else:
        print(f"{found.bundle}, {count(found.requests, 'request')}")
        print(*columns([["made on", _machine(found.made)], ["checked on", _machine(found.here)]]), sep="\n")
        rows = [
            [one.name, one.engine, one.status.replace("departs", "DEPARTS"), one_line(one.message)]
            for one in found.variants
        ]
        print(*columns(rows), sep="\n")
    departed = [f"{one.name} {one.message}" for one in found.variants if one.status == "departs"]
    if departed:
        raise VerificationError("; ".join(departed))
    if not found.ok:
        raise VerificationError(f"no variant of {found.bundle} could be checked here")
    return 0


def _machine(environment: Mapping[str, str]) -> str:
    return one_line(", ".join(environment[key] for key in _TOLD if key in environment))


def _requests(arguments: argparse.Namespace, opened: Bundle) -> list[Request] | None:
    """What the user's rows ask; ``None`` for what is built in."""
    from julia1.runtime.golden import Request

    if arguments.data is None:
        if arguments.questions is not None or arguments.asked or arguments.field:
            raise InputError("questions and --field need --data: built-in texts come with questions of their own")
        return None
    manifest = opened.manifest
    if manifest.kind == "open":  # which must be asked something
        questions = collect_questions(arguments.questions, arguments.asked)
    else:
        questions = questions_for(manifest, arguments) or {}
    reader = RowReader(arguments.data, arguments.field, "", manifest.features.names)
    found = []
    try:
        for row in reader:
            if row.problem:
                raise InputError(f"{reader.name} line {row.line}: {row.problem}")
            given = given_of(row, manifest)
            found.append(Request(f"line {row.line}", given.state, questions, given.second, given.features))
    finally:
        reader.close()
    return found
