"""``julia1 optimize``: what a model is made of, and what stands in the way of a faster one. Needs ``optimize``."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from julia1.bundle.files import write_whole
from julia1.cli.data import Extra
from julia1.cli.flags import Commands, add_json, positive
from julia1.cli.printing import columns, count, print_json, size
from julia1.errors import InputError

if TYPE_CHECKING:
    from julia1.optimize.analysis import Analysis

_MOST_KINDS = 12
"""Operators in the table; JSON and the page have all."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "optimize",
        help="look into an ONNX model",
        description="Look into an ONNX model: what it is made of, and what stands in an engine's way. Needs the extra "
        "optimize.",
    )
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    analysis = parts.add_parser(
        "analyze",
        help="operators, shapes, bytes, work, blocks, what can be fused",
        description="Run a model once and say what it is made of: operators with their shares of bytes and work, "
        "blocks, what an engine can run as one and what blocks it, and what the graph can do without.",
    )
    analysis.set_defaults(run=analyze, parser=analysis)
    analysis.add_argument("model", metavar="MODEL", help="an ONNX file, a folder with one, a bundle, or NAME@VERSION")
    analysis.add_argument("--variant", metavar="NAME", help="of a bundle (default: the one that suits this CPU)")
    analysis.add_argument(
        "--inputs", metavar="FILE", type=Path, help=".npz with a value for each input (default: made up by their names)"
    )
    analysis.add_argument(
        "--tokens", metavar="N", type=positive, default=64, help="of the made-up input (default: %(default)s)"
    )
    analysis.add_argument(
        "--clean",
        metavar="FILE",
        type=Path,
        help="write the model without what it can do without, after both gave the same; a new .onnx file",
    )
    analysis.add_argument("--html", metavar="FILE", type=Path, help="write the analysis as a page")
    add_json(analysis)


def analyze(arguments: argparse.Namespace) -> int:
    """Print what was found; write the clean model and the page where they are asked for."""
    for target in (arguments.clean, arguments.html):
        if target is not None and not target.absolute().parent.is_dir():
            raise InputError(f"there is no folder {target.parent} to write {target.name} in: make it first")
    if arguments.clean is not None and arguments.clean.exists():
        raise InputError(f"{arguments.clean} exists: name a new file, nothing is overwritten")
    with Extra("optimize"):
        from julia1.optimize.analysis import analyse
        from julia1.optimize.analysis_page import analysis_page
        from julia1.optimize.cleaning import cleaned
        from julia1.optimize.models import open_model

        opened = open_model(
            arguments.model, variant=arguments.variant, inputs=arguments.inputs, tokens=arguments.tokens
        )
        found = analyse(opened.graph)
        written = []
        if arguments.clean is not None:
            model = cleaned(opened.graph, opened.feeds)
            content = model.SerializeToString()
            _write(arguments.clean, content)
            kept = count(len(model.graph.node), "operator")
            written.append(f"{arguments.clean}: {kept}, {size(len(content))}, the same outputs")
        if arguments.html is not None:
            _write(arguments.html, analysis_page(opened.label, found))
            written.append(f"{arguments.html}: the analysis as a page")
    if arguments.json:
        print_json({"model": opened.label, **found.to_dict()})
        return 0
    print(*_lines(opened.label, found), *written, sep="\n")
    return 0


def _write(place: Path, content: str | bytes) -> None:
    try:
        write_whole(place, content)
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror}") from None


def _lines(label: str, found: Analysis) -> list[str]:
    """The analysis as text."""
    operators = sum(share.count for share in found.kinds)
    opsets = ", ".join(f"{name} {version}" for name, version in found.opsets.items())
    lines = [
        f"{label}: {count(operators, 'operator')} ({opsets}), {size(found.stored_bytes)} stored, "
        f"{found.multiplications / 1e6:,.1f} M multiply-adds for",
        *columns([[name, described] for name, described in found.inputs.items()]),
        "",
    ]
    work, stored = found.multiplications or 1, found.stored_bytes or 1
    rows = [["operator", "count", "stored", "work"]]
    rows += [
        [share.kind, f"{share.count:,}", f"{share.stored_bytes / stored:.0%}", f"{share.multiplications / work:.0%}"]
        for share in found.kinds[:_MOST_KINDS]
    ]
    if len(found.kinds) > _MOST_KINDS:
        rest = found.kinds[_MOST_KINDS:]
        rows.append([f"{len(rest)} others", f"{sum(share.count for share in rest):,}", "", ""])
    lines += [*columns(rows), ""]
    rows = [["block", "operators", "stored", "work"]]
    rows += [
        [
            f"{block.name} × {block.count}" if block.count > 1 else block.name,
            f"{block.operators:,}",
            f"{block.stored_bytes / stored:.0%}",
            f"{block.multiplications / work:.0%}",
        ]
        for block in found.blocks
    ]
    lines += [*columns(rows), ""]
    groups = Counter((group.pattern, bool(group.blocked)) for group in found.groups)
    if groups:
        rows = [["can run as one", "groups", "kept apart"]]
        rows += [
            [kind, f"{groups[kind, False] + groups[kind, True]:,}", f"{groups[kind, True]:,}"]
            for kind in dict.fromkeys(kind for kind, _ in groups)
        ]
        lines += [*columns(rows), ""]
    return [*lines, *(f"- {problem}" for problem in found.problems or ["nothing stands in the way"])]
