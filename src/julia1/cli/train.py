"""``julia1 train``: train a model by a recipe. An interrupted run is taken up again. Needs the extra ``train``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

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
    try:
        from julia1.train.open_decisions import train_open_decisions
        from julia1.train.recipe import load_recipe
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "julia1":
            raise
        raise MissingExtraError(package, "train") from None
    recipe = load_recipe(arguments.recipe)
    if arguments.steps is not None:
        recipe = replace(recipe, training=replace(recipe.training, steps=arguments.steps))
    train_open_decisions(recipe, arguments.data, arguments.backbone, arguments.output)
    if arguments.json:
        print_json({"recipe": str(arguments.recipe), "output": str(arguments.output), "steps": recipe.training.steps})
    else:
        print(f"{arguments.output}: trained {recipe.name} for {recipe.training.steps:,} steps")
    return 0
