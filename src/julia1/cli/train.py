"""``julia1 train``: train heads on labelled rows, or a model by a recipe. Needs the extra ``train``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from julia1 import settings
from julia1.cli.data import Extra, names
from julia1.cli.flags import Commands, add_json, fraction, positive
from julia1.cli.printing import columns, one_line, print_json
from julia1.errors import InputError

if TYPE_CHECKING:
    from julia1.train.pseudo import Round
    from julia1.train.search import Run

RECIPES = (".yaml", ".yml")
_SETTINGS = (
    "epochs",
    "max_tokens",
    "seed",
    "pairing",
    "windows",
    "overlap",
    "aggregation",
    "teacher_share",
    "teacher_temperature",
)
"""Flags that set the hyper-parameter of their name."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        help="train a model on labelled rows, or by a recipe",
        description="Train heads on labelled rows, starting from a bundle's encoder; or an open-decision model by a "
        "recipe. An interrupted run is taken up again. Needs the extra train.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument(
        "sources",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="labelled rows (.jsonl, .csv, .parquet), or one recipe (.yaml)",
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="checkpoints, log and bundle")
    parser.add_argument("--bundle-version", metavar="V", help="version of the bundle (default: today's date)")
    add_json(parser)
    rows = parser.add_argument_group("labelled rows")
    rows.add_argument("--validation", metavar="FILE", type=Path, help="to stop and calibrate by (default: a tenth)")
    rows.add_argument("--test", metavar="FILE", type=Path, help="to measure once at the end (default: a tenth)")
    rows.add_argument(
        "--base",
        metavar="MODEL",
        help="whose encoder to start from: a bundle, a Hugging Face folder, or owner/model on the hub (default: the "
        "bundled model)",
    )
    rows.add_argument("--name", metavar="NAME", help="of the bundle (default: that of the output folder)")
    rows.add_argument("--text", metavar="FIELD", help="field with the text (default: text or state)")
    rows.add_argument(
        "--answers", metavar="A,B", type=names, default=(), help="fields with answers (default: all known)"
    )
    rows.add_argument("--features", metavar="A,B", type=names, default=(), help="fields with structured features")
    rows.add_argument(
        "--pairing", choices=("auto", "cross", "towers"), help="how two texts are read: in one row, or each by itself"
    )
    rows.add_argument("--epochs", type=positive, metavar="N", help="at most")
    rows.add_argument("--max-tokens", type=positive, metavar="N", help="tokens that are read of a text")
    rows.add_argument("--windows", type=positive, metavar="N", help="read a longer text in up to N parts (default: 1)")
    rows.add_argument("--overlap", type=int, metavar="N", help="tokens that two parts share (default: 32)")
    rows.add_argument(
        "--aggregation", choices=("mean", "attention"), help="how the parts become one answer (default: mean)"
    )
    rows.add_argument("--seed", type=positive, metavar="N", help="of split and training")
    rows.add_argument(
        "--teacher",
        metavar="MODEL",
        help="learn from its probabilities too: a bundle, or a Hugging Face classifier (folder or hub)",
    )
    rows.add_argument("--teacher-share", type=fraction, metavar="X", help="what it counts beside the labels (0.5)")
    rows.add_argument("--teacher-temperature", type=float, metavar="T", help="how soft its probabilities are (2)")
    rows.add_argument(
        "--unlabelled", metavar="FILE", type=Path, help="rows for the model to label and learn from (pseudo-labels)"
    )
    rows.add_argument("--pseudo-threshold", type=fraction, metavar="X", help="how sure it must be (0.95)")
    rows.add_argument(
        "--pseudo-quota", type=positive, metavar="N", help="rows of a label at most (as many as labelled)"
    )
    rows.add_argument("--pseudo-rounds", type=positive, metavar="N", help="how often it labels and learns (1)")
    rows.add_argument(
        "--search",
        metavar="NAME=A,B",
        action="append",
        default=[],
        help="train with each value of a hyper-parameter and keep the best; give several for a grid",
    )
    recipe = parser.add_argument_group("a recipe")
    recipe.add_argument("--data", metavar="DIR", type=Path, help="one folder a data set")
    recipe.add_argument("--backbone", metavar="DIR", type=Path, help="a Hugging Face model folder")
    recipe.add_argument("--steps", type=positive, metavar="N", help="steps to train, instead of the recipe's")


def run(arguments: argparse.Namespace) -> int:
    """Check the paths, then train."""
    if arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"--output {arguments.output} is not a folder")
    version = arguments.bundle_version or f"{date.today():%Y.%m.%d}"
    if arguments.sources[0].suffix.lower() in RECIPES:
        return _run_recipe(arguments, version)
    return _run_rows(arguments, version)


def _run_rows(arguments: argparse.Namespace, version: str) -> int:
    for flag in ("data", "backbone", "steps"):
        if getattr(arguments, flag) is not None:
            raise InputError(f"--{flag} is for a recipe, and {arguments.sources[0]} is none: a recipe ends in .yaml")
    from julia1.runtime.cpu import probe
    from julia1.train.data.files import Columns
    from julia1.train.data.rows import read_rows

    chosen = Columns(text=arguments.text, answers=arguments.answers, features=arguments.features)
    data = read_rows(arguments.sources, chosen)
    others = [
        read_rows([path], chosen) if path is not None else None for path in (arguments.validation, arguments.test)
    ]
    with Extra():
        from julia1.export.operator_check import check_operators
        from julia1.train.fit import fit
        from julia1.train.parts import make_parts
        from julia1.train.pseudo import PseudoLabels, self_train
        from julia1.train.recipe import FineTuning
        from julia1.train.search import parse_space, search
        from julia1.train.start import find_start
        from julia1.train.teaching import find_teacher

        space = parse_space(arguments.search)
        start = find_start(arguments.base or settings.model_path())
        teacher = find_teacher(arguments.teacher) if arguments.teacher else None
        given = {name: getattr(arguments, name) for name in _SETTINGS}
        cpu = probe()
        # bfloat16 that the CPU has to imitate is several times slower than fp32
        tuning = FineTuning(threads=cpu.cores, bf16=bool(cpu.features & {"avx512_bf16", "amx_bf16", "bf16"}))
        tuning = replace(tuning, **{name: value for name, value in given.items() if value is not None})
        for finding in check_operators(start.config, tuning.max_tokens):
            if not finding.stops:  # the others are errors when training begins
                print(f"julia1: warning: {one_line(str(finding))}", file=sys.stderr)
        parts = make_parts(data, others[0], others[1], tuning.seed)
        name = arguments.name or arguments.output.resolve().name
        runs: list[Run] = []
        rounds: list[Round] = []
        unlabelled = arguments.unlabelled
        if unlabelled is not None:
            if space:
                raise InputError("--search has no place beside --unlabelled: search first, then label")
            given = {name: getattr(arguments, f"pseudo_{name}") for name in ("threshold", "quota", "rounds")}
            how = PseudoLabels(**{name: value for name, value in given.items() if value is not None})
            rows = read_rows([unlabelled], chosen, answered=False).rows
            fitted, rounds = self_train(
                parts, rows, start, arguments.output, tuning, how,
                name=name, version=version, report=_report_epoch, teacher=teacher,
            )  # fmt: skip
        elif space:
            fitted, runs = search(
                parts,
                start,
                arguments.output,
                tuning,
                space,
                name=name,
                version=version,
                report=_report_run,
                teacher=teacher,
            )
        else:
            fitted = fit(
                parts,
                start,
                arguments.output,
                tuning,
                name=name,
                version=version,
                report=_report_epoch,
                teacher=teacher,
            )
    if arguments.json:
        found = {"validation": fitted.validation, "test": fitted.test, "parity": fitted.parity.largest}
        found.update({"rounds": [asdict(one) for one in rounds]} if rounds else {})
        found.update({"runs": [run.to_dict() for run in runs]} if runs else {})
        print_json({"bundle": str(fitted.bundle.folder), **found})
        return 0
    print(f"{fitted.bundle.folder}: {name} {version}")
    if parts.left_out:
        print(f"{parts.left_out:,} training rows left out: they stand in the validation or test rows too")
    for one in rounds:
        print(f"round {one.number}: {one.added:,} rows labelled by the model, validation {one.score:.4f}")
    if runs:
        print("runs, best first", *columns(_table_of(runs)), sep="\n")
    for part, figures in (("validation", fitted.validation), ("test", fitted.test)):
        lines = [[head, ", ".join(f"{key} {value:.3f}" for key, value in own.items())] for head, own in figures.items()]
        print(f"{part} rows", *columns(lines), sep="\n")
    return 0


def _run_recipe(arguments: argparse.Namespace, version: str) -> int:
    for flag in ("validation", "test", "base", "name", "text", "teacher", "unlabelled", *_SETTINGS):
        if getattr(arguments, flag) is not None:
            raise InputError(f"--{flag.replace('_', '-')} is for labelled rows, and {arguments.sources[0]} is a recipe")
    if arguments.search:
        raise InputError(f"--search is for labelled rows, and {arguments.sources[0]} is a recipe")
    if len(arguments.sources) > 1:
        raise InputError(f"a recipe stands alone, without {arguments.sources[1]}")
    (path,) = arguments.sources
    if not path.is_file():
        raise InputError(f"there is no recipe {path}")
    for flag, folder in (("--data", arguments.data), ("--backbone", arguments.backbone)):
        if folder is None:
            raise InputError(f"a recipe needs {flag} DIR")
        if not folder.is_dir():
            raise InputError(f"{flag} {folder} is not a folder")
    from julia1.train.recipe import load_recipe

    recipe = load_recipe(path)
    with Extra():
        from julia1.train.release import train_and_release

        if arguments.steps is not None:
            recipe = replace(recipe, training=replace(recipe.training, steps=arguments.steps))
        released = train_and_release(
            recipe, arguments.data, arguments.backbone, arguments.output, version, _report_step
        )
    figures = {name: parity.largest for name, parity in released.parity.items()}
    if arguments.json:
        print_json({"bundle": str(released.bundle.folder), "steps": recipe.training.steps, "parity": figures})
    else:
        print(
            f"{released.bundle.folder}: {recipe.name} {version}, departs from PyTorch by {figures['fp32']:.1e} at most"
        )
    return 0


def _table_of(runs: Sequence[Run]) -> list[list[str]]:
    """Runs as a table, the best first."""
    names = list(runs[0].chosen)
    ordered = sorted(runs, key=lambda run: -1.0 if run.score is None else run.score, reverse=True)
    lines = [["run", *names, "validation", "seconds"]]
    for run in ordered:
        score = run.problem if run.score is None else f"{run.score:.4f}"
        lines.append([str(run.number), *(str(run.chosen[name]) for name in names), score, f"{run.seconds:.0f}"])
    return lines


def _report_run(run: Run) -> None:
    chosen = "  ".join(f"{name} {value}" for name, value in run.chosen.items())
    score = run.problem if run.score is None else f"{run.score:.4f}"
    print(f"run {run.number}  {chosen}  validation {score}", file=sys.stderr, flush=True)


def _report_epoch(record: dict[str, Any]) -> None:
    figures = "  ".join(f"{key} {value:,.4g}" for key, value in record.items() if key != "epoch")
    print(f"epoch {record['epoch']}  {figures}", file=sys.stderr, flush=True)


def _report_step(record: dict[str, Any]) -> None:
    """A plain line every ten steps, and whenever the development sets were looked at."""
    if record["step"] % 10 == 0 or "development" in record:
        looked = "".join(f"  {name} {value:.3f}" for name, value in record.get("development", {}).items())
        print(
            f"step {record['step']:,}  loss {record['loss']:.3f}  {record['tokens_per_second']:,} tokens/s  "
            f"{record['minutes_left']:.0f} min left{looked}",
            file=sys.stderr,
            flush=True,
        )
