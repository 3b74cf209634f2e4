"""``julia1 doctor``: what this machine can run, what not, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from julia1 import settings
from julia1.cli.flags import Commands, add_bundle, add_json
from julia1.cli.printing import columns, count, one_line, print_json, size
from julia1.errors import VerificationError

if TYPE_CHECKING:
    from julia1.runtime.machine import Report


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="say what this machine can run",
        description="Say what this machine's CPU, cores, memory and engines are, which variants of a model run on it "
        "and why others do not. Each variant is loaded and tried in a process of its own. Exits 3 when none runs.",
    )
    parser.set_defaults(run=run, parser=parser)
    add_bundle(parser)
    parser.add_argument("--quick", action="store_true", help="do not load and try the variants")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; raises ``VerificationError`` when nothing runs here."""
    from julia1.bundle import Bundle
    from julia1.runtime.cpu import probe
    from julia1.runtime.machine import examine

    opened = Bundle.open(arguments.bundle or settings.model_path())
    report = examine(opened, probe(), trial=not arguments.quick)
    if arguments.json:
        print_json({"path": str(opened.source), **report.to_dict()})
    else:
        print(*_lines(report), sep="\n")
    if not report.runs:
        raise VerificationError(f"no variant of {report.bundle} runs on this machine")
    return 0


def _lines(report: Report) -> list[str]:
    has = [name for name, there in report.instructions.items() if there]
    lacks = [name for name, there in report.instructions.items() if not there]
    cores = report.cores
    quota = "no quota" if cores["quota"] is None else f"a quota of {cores['quota']:g}"
    engines = [
        f"{name} {engine['version']}" if not engine["problem"] else f"{name}: {engine['problem']}"
        for name, engine in report.engines.items()
    ]
    facts = [
        ["machine", ", ".join(one_line(value) for value in report.machine.values())],
        ["it has", ", ".join(has) or "nothing that is known of"],
        ["it lacks", ", ".join(lacks) or "nothing that matters"],
        ["cores", f"{cores['usable']} usable: {cores['physical']} physical, {cores['logical']} logical, {quota}"],
        [
            "threads",
            f"{cores['threads'] or 'none'}, or {cores['shared']} where the machine is shared (--threads share)",
        ],
        ["memory", "unknown" if report.memory is None else size(report.memory)],
        *([["engines" if place == 0 else "", engine] for place, engine in enumerate(engines)]),
    ]
    lines = columns(facts, indent="")
    lines += ["", f"{one_line(report.bundle)}, {count(len(report.variants), 'variant')}"]
    rows = [
        ["*" if v.chosen else "", v.name, v.engine, "runs" if v.runs else "does not run", one_line(v.why)]
        for v in report.variants
    ]
    lines += columns(rows)
    return [*lines, "", *(f"- {one_line(note)}" for note in report.notes)]
