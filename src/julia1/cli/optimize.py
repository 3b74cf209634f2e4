"""``julia1 optimize``: a smaller, faster model that kept its accuracy, and what a model is made of."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from julia1.cli.data import Extra
from julia1.cli.data_text import parse_yaml, read_text
from julia1.cli.flags import Commands, add_json, positive
from julia1.cli.printing import columns, count, print_json, size
from julia1.errors import InputError
from julia1.optimize.presets import GOALS, preset

if TYPE_CHECKING:
    from julia1.optimize.analysis import Analysis

_MOST_KINDS = 12
"""Operators in the table; JSON and the page have all."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "optimize",
        help="make an ONNX classifier smaller and faster, and prove that it kept its accuracy",
        description="Make an ONNX classifier smaller and faster by the steps of a file, under a guard that keeps its "
        "accuracy; or look into a model. 'julia1 optimize FILE.yaml' is short for 'julia1 optimize run FILE.yaml'. "
        "Needs the extra optimize.",
    )
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    running = parts.add_parser(
        "run",
        help="take the steps of a file",
        description="Take the steps of a YAML file one by one. Each is judged on labelled rows beside the model as it "
        "was; what lost too much is taken in a safer way or rolled back. Writes a folder with the model and a report. "
        "Exits 3 when a step was rolled back.",
    )
    running.set_defaults(run=run, parser=running)
    running.add_argument(
        "config", metavar="FILE", type=Path, help="YAML, see docs/optimize.md; an ONNX file with --for"
    )
    running.add_argument(
        "--for", dest="goal", choices=GOALS, help="write FILE.GOAL.yaml for this goal and take its steps"
    )
    running.add_argument("--data", metavar="FILE", type=Path, help="labelled rows, with --for")
    running.add_argument(
        "-o", "--output", metavar="DIR", type=Path, help="a new folder, with --for (default: MODEL-GOAL)"
    )
    running.add_argument(
        "--dry-run", action="store_true", help="check the file, the model and the rows, say what would be done"
    )
    add_json(running)
    sensitivity = parts.add_parser(
        "sensitivity",
        help="which layers a quantization moves",
        description="Quantize a model and compare the output of every linear layer with fp32 on rows: the cosine of "
        "all values, and the signal over the noise in decibels. The most moved layers come first.",
    )
    sensitivity.set_defaults(run=sensitive, parser=sensitivity)
    sensitivity.add_argument("model", metavar="MODEL", help="an ONNX file")
    sensitivity.add_argument(
        "--data", metavar="FILE", required=True, help="rows: texts as 'julia1 data' reads them, or .npz with the inputs"
    )
    sensitivity.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json (default: the one beside the model)")
    sensitivity.add_argument(
        "--scheme",
        choices=("dynamic", "static", "weight_only"),
        default="dynamic",
        help="of the quantization (default: %(default)s)",
    )
    sensitivity.add_argument(
        "--bits", type=int, choices=(8, 4), default=8, help="of the weights (default: %(default)s; 4 with weight_only)"
    )
    sensitivity.add_argument(
        "--rows", metavar="N", type=positive, default=32, help="to compare on, at most (default: %(default)s)"
    )
    add_json(sensitivity)
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


def spelled_out(arguments: Sequence[str]) -> Sequence[str]:
    """``optimize FILE`` as ``optimize run FILE``."""
    if list(arguments[:1]) == ["optimize"] and any(one.endswith((".yaml", ".yml", ".onnx")) for one in arguments[1:2]):
        return ["optimize", "run", *arguments[1:]]
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Optimize, or say what would be done; raises ``VerificationError`` when a step was rolled back."""
    place = arguments.config if arguments.goal is None else _written_preset(arguments)
    data = parse_yaml(read_text(str(place)), str(place))
    with Extra("optimize"):
        from julia1.optimize.config import read_config
        from julia1.optimize.running import optimize, planned, require_kept

        config = read_config(data, str(place), place.absolute().parent)
        if arguments.dry_run:
            lines = planned(config)
            if arguments.json:
                print_json({"plan": lines})
            else:
                print(*lines, sep="\n")
            return 0
        result = optimize(
            config, lambda line: print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)
        )
    if arguments.json:
        print_json(result.to_dict())
    else:
        print(f"{result.output}: {', '.join(result.files)}")
    require_kept(result)
    return 0


def _written_preset(arguments: argparse.Namespace) -> Path:
    """The file for a goal, written beside the model."""
    model: Path = arguments.config
    goal: str = arguments.goal
    if arguments.data is None:
        arguments.parser.error("--data FILE is missing: labelled rows that the model is judged on")
    if model.suffix != ".onnx" or not model.is_file():
        raise InputError(f"{model} is no ONNX file: --for takes one")
    from julia1.cli.plain_yaml import plain_yaml

    place = model.with_name(f"{model.stem}.{goal}.yaml")
    output = arguments.output or model.with_name(f"{model.stem}-{goal}")
    _write(place, plain_yaml(preset(goal, model, arguments.data, output)))
    return place


def sensitive(arguments: argparse.Namespace) -> int:
    """Print how far each layer departs."""
    if arguments.bits == 4 and arguments.scheme != "weight_only":
        arguments.parser.error(f"--bits 4 goes with --scheme weight_only, not with {arguments.scheme}")
    with Extra("optimize"):
        from julia1.optimize.config import Calibration, ModelFiles, Quantize
        from julia1.optimize.models import open_model
        from julia1.optimize.rows import read_unlabelled
        from julia1.optimize.steps import Quantizer

        graph = open_model(arguments.model).graph
        files = ModelFiles(arguments.model, "", arguments.tokenizer)
        rows = read_unlabelled(files, graph.inputs, Path(arguments.data), arguments.rows, 0)
        step = Quantize("quantize", arguments.scheme, arguments.bits)
        quantizer = Quantizer(step, graph, rows, Calibration())
        quantizer.check()
        moved = sorted(quantizer.movements(step), key=lambda one: one.decibels)
    if arguments.json:
        print_json({"rows": len(rows), "layers": [asdict(one) for one in moved]})
        return 0
    table = [["output of", "cosine", "dB", "largest"]]
    table += [[one.name, f"{one.cosine:.5f}", f"{one.decibels:.1f}", f"{one.largest:.3g}"] for one in moved]
    print(*columns(table), sep="\n")
    return 0


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
    from julia1.bundle.files import write_whole

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
