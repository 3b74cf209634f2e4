"""``julia1 version``: the versions that matter in a report."""

from __future__ import annotations

import argparse
import platform

from julia1 import __version__
from julia1.cli.flags import Commands, add_json
from julia1.cli.printing import columns, print_json

_PACKAGES = ("onnxruntime", "tokenizers", "numpy")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "version", help="print versions", description="Print the versions that matter in a report."
    )
    parser.set_defaults(run=run, parser=parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the versions."""
    versions = {"julia1": __version__, "python": platform.python_version()}
    versions |= {package: _installed(package) for package in _PACKAGES}
    versions["system"] = f"{platform.system()} {platform.machine()}"
    if arguments.json:
        print_json(versions)
    else:
        print(*columns([list(pair) for pair in versions.items()], indent=""), sep="\n")
    return 0


def _installed(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
