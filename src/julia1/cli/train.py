"""``julia1 train``: train a model by a recipe. An interrupted run is taken up again. Needs the extra ``train``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from julia1.cli.flags import Commands, add_json, positive
from julia1.cli.printing import print_json
from julia1.errors import InputError, MissingExtraError


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        help="train a model by a recipe",
        description="Train a model by a recipe. An interrupted run is taken up again. Needs the extra train.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("recipe", metavar="RECIPE", type=Path, help="a recipe in YAML, such as recipes/bundled.yaml")
    parser.add_argument("--data", metavar="DIR", type=Path, required=True, help="one folder a data set")
    parser.add_argument("--backbone", metavar="DIR", type=Path, required=True, help="a Hugging Face model folder")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="checkpoints and results")
    parser.add_argument("--bundle-version", metavar="V", help="version of the bundle (default: today's date)")
    parser.add_argument("--steps", type=positive, metavar="N", help="steps to train, instead of the recipe's")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check the paths, then train."""
    if not arguments.recipe.is_file():
        raise InputError(f"there is no recipe {arguments.recipe}")
    for flag, folder in (("--data", arguments.data), ("--backbone", arguments.backbone)):
        if not folder.is_dir():
            raise InputError(f"{flag} {folder} is not a folder")
    if arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"--output {arguments.output} is not a folder")
    from julia1.train.recipe import load_recipe

    recipe = load_recipe(arguments.recipe)
    try:
        from julia1.train.release import train_and_release
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "julia1":
            raise
        raise MissingExtraError(package, "train") from None
    if arguments.steps is not None:
        recipe = replace(recipe, training=replace(recipe.training, steps=arguments.steps))
    version = arguments.bundle_version or f"{date.today():%Y.%m.%d}"
    released = train_and_release(recipe, arguments.data, arguments.backbone, arguments.output, version, _report)
    figures = {name: parity.largest for name, parity in released.parity.items()}
    if arguments.json:
        print_json({"bundle": str(released.bundle.folder), "steps": recipe.training.steps, "parity": figures})
    else:
        print(
            f"{released.bundle.folder}: {recipe.name} {version}, departs from PyTorch by {figures['fp32']:.1e} at most"
        )
    return 0


def _report(record: dict[str, Any]) -> None:
    """A plain line every ten steps, and whenever the development sets were looked at."""
    if record["step"] % 10 == 0 or "development" in record:
        looked = "".join(f"  {name} {value:.3f}" for name, value in record.get("development", {}).items())
        print(
            f"step {record['step']:,}  loss {record['loss']:.3f}  {record['tokens_per_second']:,} tokens/s  "
            f"{record['minutes_left']:.0f} min left{looked}",
            file=sys.stderr,
            flush=True,
        )
