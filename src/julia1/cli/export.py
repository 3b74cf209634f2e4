"""``julia1 export``: a model as one ONNX file, an exported program or a PyTorch module. Needs the extra ``train``."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from julia1.cli.data import Extra, names
from julia1.cli.flags import Commands, add_json, bundle, positive
from julia1.cli.printing import columns, one_line, print_json, size
from julia1.errors import InputError, VerificationError

if TYPE_CHECKING:
    from julia1.bundle import Manifest
    from julia1.runtime.fixed import Given

FORMATS = ("onnx", "exported", "eager")
PRECISIONS = ("fp32", "int8")
_OF_WRITING = ("output", "format", "opset", "precision", "data", "text", "features")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "export",
        help="write a model for use outside julia1",
        description="Write the model of a bundle as one ONNX file, as an exported program (the successor of "
        "TorchScript) or as a PyTorch module, and compare it with PyTorch on real inputs. Exits 3, and leaves nothing "
        "behind, when an fp32 model departs by 1e-4 or more. With --check, say whether an encoder can be exported at "
        "all, and write nothing. Needs the extra train.",
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument(
        "bundle",
        metavar="BUNDLE",
        type=bundle,
        help="folder or zip, with its checkpoint; with --check a Hugging Face model folder too",
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="a new folder")
    parser.add_argument("--format", choices=FORMATS, help="what to write (default: onnx)")
    parser.add_argument("--opset", type=positive, metavar="N", help="operator set of the ONNX file (default: 21)")
    parser.add_argument("--precision", choices=PRECISIONS, help="of an ONNX file's linear layers (default: fp32)")
    parser.add_argument(
        "--data", metavar="FILE", type=Path, help="rows to compare on (.jsonl, .csv, .parquet; default: built-in texts)"
    )
    parser.add_argument("--text", metavar="FIELD", help="field of the rows with the text (default: text or state)")
    parser.add_argument(
        "--features",
        metavar="A,B",
        type=names,
        help="fields with structured features (default: those of the model); rows need no text then",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="look at the operators of the encoder's config, and do no more: exits 3 when there is no graph for one",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the model and print its parity; or check its operators."""
    if arguments.check:
        for flag in _OF_WRITING:
            if getattr(arguments, flag) is not None:
                raise InputError(f"--check writes nothing: leave --{flag} out")
        return _check(arguments.bundle, arguments.json)
    if arguments.output is None:
        arguments.parser.error("-o DIR is missing: the new folder to write")
    for flag in ("text", "features"):
        if getattr(arguments, flag) is not None and arguments.data is None:
            raise InputError(f"--{flag} names fields of the rows of --data: give --data FILE, or leave it out")
    from julia1.bundle import Bundle

    opened = Bundle.open(arguments.bundle)
    given = []
    if arguments.data is not None:
        given = _rows(arguments.data, arguments.text, arguments.features, opened.manifest)
    with Extra():
        from julia1.export.standalone import export_bundle, to_dict

        exported = export_bundle(
            opened,
            arguments.output,
            arguments.format or "onnx",
            opset=arguments.opset,
            precision=arguments.precision or "fp32",
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


def _rows(path: Path, text: str | None, named: tuple[str, ...] | None, manifest: Manifest) -> list[Given]:
    """Inputs of the model from a file of rows; answers in it are passed over."""
    from julia1.runtime.fixed import Given
    from julia1.train.data.files import Columns
    from julia1.train.data.rows import TEXT_FIELDS, read_rows

    features = manifest.features.names if named is None else named
    rows = read_rows([path], Columns(text=text, features=features), answered=False).rows
    if (named is None or text is not None) and not any(row.text.strip() for row in rows):
        wanted = " or ".join(map(repr, TEXT_FIELDS if text is None else (text,)))
        fields = ", ".join(map(repr, rows[0].data))
        raise InputError(
            f"{path}: no row has a text in {wanted} (the first has {fields:.200}): name its field with --text, or, "
            "where features alone decide, theirs with --features"
        )
    pairs = manifest.encoding.type == "pair"
    return [Given(row.text, row.second or None if pairs else None, row.features or None) for row in rows]


def _check(place: Path, as_json: bool) -> int:
    """Print what the config of an encoder leads to; raises ``VerificationError`` when it cannot be exported."""
    with Extra():
        from julia1.export.encoder_graph import FIXED_ENCODERS, OPTION_ENCODERS
        from julia1.export.operator_check import check_operators
        from julia1.train.recipe import FineTuning
        from julia1.train.start import find_start

        start = find_start(place)
    known: tuple[str, ...] = FIXED_ENCODERS
    most = FineTuning().max_tokens
    if start.parent:
        from julia1.bundle import Bundle

        manifest = Bundle.open(place).manifest
        known = OPTION_ENCODERS if manifest.kind == "open" else FIXED_ENCODERS
        most = manifest.encoding.state_tokens
    findings = check_operators(start.config, most, known)
    stops = [finding for finding in findings if finding.stops]
    kind = start.config["model_type"]
    if as_json:
        found = {"model": start.name, "model_type": kind, "exports": not stops}
        print_json({**found, "findings": [asdict(finding) for finding in findings]})
    else:
        print(f"{start.name}: {kind}, {'cannot' if stops else 'can'} be exported")
        for finding in findings:
            print(f"  {'error' if finding.stops else 'warning'}: {one_line(str(finding))}")
    if stops:
        raise VerificationError(f"this encoder cannot be exported: {stops[0]}")
    return 0
