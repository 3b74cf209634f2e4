"""``julia1 train``: train heads on labelled rows, or a model by a recipe. Needs the extra ``train``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from julia1.cli.data import Extra
from julia1.cli.data_text import parse_yaml, read_text
from julia1.cli.flags import Commands, add_json, positive
from julia1.cli.printing import print_json
from julia1.cli.train_rows import (
    FLAGS,
    add_flags,
    configuration,
    machine_settings,
    run_rows,
    warn_of_operators,
)
from julia1.errors import InputError

if TYPE_CHECKING:
    from julia1.train.recipe import Recipe

YAML = (".yaml", ".yml")
_RECIPE_FLAGS = ("data", "backbone", "steps")


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
        help="labelled rows (.jsonl, .csv, .parquet); or one .yaml: a file that says all of a training, or a recipe",
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="checkpoints, log and bundle")
    parser.add_argument("--bundle-version", metavar="V", help="version of the bundle (default: today's date)")
    parser.add_argument(
        "--print-config", action="store_true", help="print all that would hold, as YAML to train by, and do no more"
    )
    add_json(parser)
    add_flags(parser)
    recipe = parser.add_argument_group("a recipe")
    recipe.add_argument("--data", metavar="DIR", type=Path, help="one folder a data set")
    recipe.add_argument("--backbone", metavar="DIR", type=Path, help="a Hugging Face model folder")
    recipe.add_argument("--steps", type=positive, metavar="N", help="steps to train, instead of the recipe's")


def run(arguments: argparse.Namespace) -> int:
    """Find out what is to be trained, then train it or tell it."""
    if arguments.output is None and not arguments.print_config:
        arguments.parser.error("-o DIR is missing: where checkpoints, log and bundle go")
    if arguments.output is not None and arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"--output {arguments.output} is not a folder")
    source = arguments.sources[0]
    data = None
    if source.suffix.lower() in YAML:
        if len(arguments.sources) > 1:
            raise InputError(f"{source} stands alone, without {arguments.sources[1]}")
        from julia1.train.config import is_recipe

        data = parse_yaml(read_text(str(source)), str(source))
        if is_recipe(data, str(source)):
            return _run_recipe(arguments)
    for flag in _RECIPE_FLAGS:
        if getattr(arguments, flag) is not None:
            raise InputError(f"--{flag} is for a recipe, and {source} is none")
    from julia1.train.config import portable

    config = configuration(arguments, data)
    if arguments.print_config:
        return _print_config(portable(config, machine_settings()), arguments.json)
    return run_rows(arguments, config, config.version or today())


def today() -> str:
    """The version of a bundle that nobody gave one."""
    return f"{date.today():%Y.%m.%d}"


def _print_config(data: dict[str, Any], as_json: bool) -> int:
    from julia1.cli.plain_yaml import plain_yaml

    if as_json:
        print_json(data)
    else:
        print(plain_yaml(data), end="")
    return 0


def _run_recipe(arguments: argparse.Namespace) -> int:
    (path,) = arguments.sources
    for flag in FLAGS:
        if getattr(arguments, flag) not in (None, [], False):
            raise InputError(f"--{flag.replace('_', '-')} is for labelled rows, and {path} is a recipe")
    from julia1.train.recipe import load_recipe

    recipe = load_recipe(path)
    if arguments.steps is not None:
        recipe = replace(recipe, training=replace(recipe.training, steps=arguments.steps))
    if arguments.print_config:
        return _print_config(asdict(recipe), arguments.json)
    for flag, folder in (("--data", arguments.data), ("--backbone", arguments.backbone)):
        if folder is None:
            raise InputError(f"a recipe needs {flag} DIR")
        if not folder.is_dir():
            raise InputError(f"{flag} {folder} is not a folder")
    return _train_by(recipe, arguments, arguments.bundle_version or today())


def _train_by(recipe: Recipe, arguments: argparse.Namespace, version: str) -> int:
    with Extra():
        from julia1.export.encoder_graph import OPTION_ENCODERS
        from julia1.export.operator_check import check_operators
        from julia1.train.release import train_and_release, trimmed_config

        config = trimmed_config(recipe, arguments.backbone)
        warn_of_operators(check_operators(config, recipe.limits.state_tokens, OPTION_ENCODERS))
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
