"""``julia1 pack``: a model and all that runs it in one zip, to be unzipped and used where nothing can be installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from julia1.cli.flags import Commands, add_bundle, add_json
from julia1.cli.printing import columns, one_line, print_json, size

if TYPE_CHECKING:
    from julia1.pack import Box

_EXAMPLES = """examples:
  julia1 pack -o box.zip
  julia1 pack model/bundle -o box.zip --platform linux-aarch64 --python 3.11
  julia1 pack tickets@production -o box.zip --variant int8 --wheels wheels
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "pack",
        help="pack a model and all that runs it into one zip",
        description="Write one zip with a bundle (without its checkpoint), the packages that run it, julia1 and start "
        "scripts. Unzipped, it runs with the target's own Python: no network, no pip, nothing is installed. The "
        "packages are fetched for the target by pip, as wheels whose SHA-256 julia1 pins.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run, parser=parser)
    add_bundle(parser)
    parser.add_argument("-o", "--output", metavar="ZIP", type=Path, required=True, help="the zip to write")
    parser.add_argument(
        "--platform",
        metavar="NAME",
        help="linux-aarch64, linux-x86_64, macos-arm64 or win-amd64 (default: this machine's)",
    )
    parser.add_argument("--python", metavar="X.Y", help="the target's Python (default: the one that runs this)")
    parser.add_argument("--variant", action="append", metavar="NAME", help="take this variant only; may be repeated")
    parser.add_argument("--wheels", metavar="FOLDER", type=Path, help="take the wheels from here, without a network")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Pack, and print what takes how much."""
    from julia1.pack import pack
    from julia1.pack.box import MOST_BYTES

    box = pack(
        arguments.bundle,
        arguments.output,
        platform=arguments.platform,
        python=arguments.python,
        variants=arguments.variant or (),
        wheels=arguments.wheels,
    )
    if arguments.json:
        parts = [{"name": part.name, "version": part.version, "bytes": part.bytes} for part in box.parts]
        print_json({**box.to_dict(), "path": str(box.path), "bytes": box.bytes, "folder": box.folder, "parts": parts})
    else:
        print(*_lines(box), sep="\n")
    if box.bytes > MOST_BYTES:
        print(
            f"julia1: warning: {one_line(str(box.path))} has {size(box.bytes)}, more than {size(MOST_BYTES)}: a "
            "smaller model, or --variant, makes it smaller",
            file=sys.stderr,
        )
    return 0


def _lines(box: Box) -> list[str]:
    needs = "".join(f", {name} {least}" for name, least in box.needs.items())
    variants = ", ".join(variant.name for variant in box.manifest.variants)
    rows = [[part.name, one_line(part.version), size(part.bytes)] for part in box.parts]
    target = f"{box.platform}, Python {box.python}{needs}"
    return [f"{one_line(str(box.path))}: {size(box.bytes)} for {target}; variants: {variants}", *columns(rows)]
