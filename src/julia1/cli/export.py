"""``julia1 export``: a model as one ONNX file, an exported program or a PyTorch module. Needs the extra ``train``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from julia1.cli.data import Extra
from julia1.cli.flags import Commands, add_json, bundle, positive
from julia1.cli.printing import columns, print_json, size

if TYPE_CHECKING:
    from julia1.bundle import Manifest
    from julia1.runtime.fixed import Given

FORMATS = ("onnx", "exported", "eager")
PRECISIONS = ("fp32", "int8")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "export",
        help="write a model for use outside julia1",
        description="Write the model of a bundle as one ONNX file, as an exported program (the successor of "
        "TorchScript) or as a PyTorch module, and compare it with PyTorch on real inputs. Exits 3, and leaves nothing "
        "behind, when an fp32 model departs by 1e-4 or more. Needs the extra train.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("bundle", metavar="BUNDLE", type=bundle, help="folder or zip, with its checkpoint")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="a new folder")
    parser.add_argument("--format", choices=FORMATS, default="onnx", help="what to write (default: onnx)")
    parser.add_argument("--opset", type=positive, metavar="N", help="operator set of the ONNX file (default: 21)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="of an ONNX file's linear layers (default: fp32)"
    )
    parser.add_argument(
        "--data", metavar="FILE", type=Path, help="rows to compare on (.jsonl, .csv, .parquet; default: built-in texts)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the model and print its parity."""
    from julia1.bundle import Bundle

    opened = Bundle.open(arguments.bundle)
    given = [] if arguments.data is None else _rows(arguments.data, opened.manifest)
    with Extra():
        from julia1.export.standalone import export_bundle, to_dict

        exported = export_bundle(
            opened,
            arguments.output,
            arguments.format,
            opset=arguments.opset,
            precision=arguments.precision,
            given=given,
        )
    if arguments.json:
        print_json(to_dict(exported))
        return 0
    parity = exported.parity
    limit = "under the limit of 1e-04" if exported.precision == "fp32" else "int8 rounds: no limit is held"
    print(f"{exported.folder}: {exported.format}, {exported.precision}")
    print(*columns([[name, size((exported.folder / name).stat().st_size)] for name in exported.files]), sep="\n")
    print(
        f"departs from PyTorch by {parity.largest:.1e} at most, {parity.mean:.1e} on average, over "
        f"{parity.options:,} outputs ({limit})"
    )
    return 0


def _rows(path: Path, manifest: Manifest) -> list[Given]:
    """Inputs of the model from a file of rows; answers in it are passed over."""
    from julia1.runtime.fixed import Given
    from julia1.train.data.files import Columns
    from julia1.train.data.rows import read_rows

    features = (*manifest.features.numbers, *manifest.features.categories)
    rows = read_rows([path], Columns(features=features), answered=False).rows
    pairs = manifest.encoding.type == "pair"
    return [Given(row.text, row.second or None if pairs else None, row.features or None) for row in rows]
