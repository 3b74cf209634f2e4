"""Flags that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from julia1.errors import InputError

Commands = Any
"""What ``add_subparsers`` returns; argparse keeps the class to itself."""


def add_json(parser: argparse._ActionsContainer) -> None:
    """``--json``, which every command takes."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_bundle(parser: argparse._ActionsContainer) -> None:
    """The bundle that a command is about."""
    parser.add_argument(
        "bundle",
        nargs="?",
        type=bundle,
        metavar="BUNDLE",
        help="folder, zip or NAME@VERSION; the default model without it",
    )


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def thread_count(text: str) -> int | str:
    """A whole number of at least 1, or ``share``."""
    return text if text == "share" else positive(text)


def add_run_flags(
    parser: argparse._ActionsContainer,
    variant: str = "variant to run (or JULIA1_VARIANT); chosen by the CPU without it",
) -> None:
    """``--variant``, which ``variant`` explains, ``--engine`` and ``--threads``: how a model is run."""
    parser.add_argument("--variant", metavar="NAME", help=variant)
    parser.add_argument(
        "--engine", metavar="NAME", help="engine to run it on (or JULIA1_ENGINE); the variant's own without it"
    )
    parser.add_argument(
        "--threads",
        type=thread_count,
        metavar="N|share",
        help="threads (or JULIA1_THREADS), 'share' for 75 %% of the cores; the cores without it, 8 at most",
    )


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def bundle(text: str) -> Path:
    """The path of a bundle, which must be there; NAME@VERSION is looked up in the default registry."""
    try:
        return bundle_path(text)
    except InputError as error:  # argparse would drop its message
        raise argparse.ArgumentTypeError(str(error)) from None


def bundle_path(text: str, registry: Path | None = None) -> Path:
    """The path of a bundle; NAME@VERSION is looked up in the registry in this folder, or in the default one.

    Raises:
        InputError: there is none.
        BundleError: ``aliases.json`` of the name is broken.
    """
    from julia1.bundle.places import find_bundle

    path = find_bundle(text, registry)
    if not path.exists():
        raise InputError(
            f"there is no bundle at {text!r}: give the folder or zip of one, or NAME@VERSION of the registry"
        )
    return path
