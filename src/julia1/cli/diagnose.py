"""``julia1 diagnose``: where two forms of a model depart from one another. Needs the extra ``train``."""

from __future__ import annotations

import argparse
from pathlib import Path

from julia1.cli.data import Extra
from julia1.cli.flags import Commands, add_json
from julia1.cli.printing import columns, count, one_line, print_json
from julia1.errors import InputError, VerificationError

_ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_SIDES = """what A and B may be:
  BUNDLE             the variant that this machine would run; a folder, a zip, or NAME@VERSION of the registry
  BUNDLE#VARIANT     that variant; BUNDLE#torch is the checkpoint in PyTorch
  FOLDER             a Hugging Face encoder, or what julia1 export wrote
  FILE.onnx, .pt2    a file of julia1 export, where it was written
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "diagnose",
        help="find where two forms of a model differ",
        description="Compare two models stage by stage (tokenizer, dtypes, padding, layers) and name the first layer "
        "that departs. Exits 3 when something does. Needs the extra train.",
        epilog=_SIDES,
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("a", metavar="A", help="the side that is taken as right")
    parser.add_argument("b", metavar="B", help="the side that is compared with it")
    parser.add_argument(
        "--texts", metavar="FILE", type=Path, help="texts to read: one a line, or rows (default: built-in texts)"
    )
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        metavar="X",
        help="largest difference of a layer (default: 1e-4; with int8 on a side, 15 dB of signal over the difference)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; raises ``VerificationError`` when something departs."""
    from julia1.runtime.cpu import probe

    texts = [] if arguments.texts is None else _texts(arguments.texts)
    with Extra():
        from julia1.export.diagnosis import diagnose, table
        from julia1.export.sides import open_side

        threads = probe().cores
        sides = [open_side(place, threads) for place in (arguments.a, arguments.b)]
        found = diagnose(sides[0], sides[1], texts, arguments.tolerance)
        lines = table(found.layers)
    if arguments.json:
        print_json(found.to_dict())
    else:
        print(f"A: {one_line(found.a)}", f"B: {one_line(found.b)}", sep="\n")
        print(f"{count(found.texts, 'text')}, {count(found.tokens, 'token')}")
        rows = [[stage.name, "DEPARTS" if stage.departs else "same", one_line(stage.message)] for stage in found.stages]
        print(*columns(rows), sep="\n")
        if found.layers:
            print(*columns(lines), sep="\n")
    if found.departs:
        stage = next(stage for stage in found.stages if stage.departs)
        also = f"; the first layer is {found.first}" if found.first and stage.name != "layers" else ""
        raise VerificationError(f"A and B depart at {stage.name}: {stage.message}{also}")
    return 0


def _texts(path: Path) -> list[str]:
    """The texts of a file: of rows, or one a line."""
    if path.suffix.lower() in _ROWS:
        from julia1.train.data.rows import read_rows

        return [row.text for row in read_rows([path], answered=False).rows]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 at byte {error.start:,}") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError(f"{path} holds no texts: write one a line")
    return texts


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value
