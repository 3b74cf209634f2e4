"""Prints verdicts, and writes the report that they are of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from julia1.cli.printing import columns, one_line, print_json
from julia1.errors import InputError, Julia1Error

if TYPE_CHECKING:
    from julia1.bench import Verdict


def require_writable(output: Path | None) -> None:
    """Raise ``InputError`` where a report cannot be written: better before a long run than after it."""
    if output is None:
        return
    if not output.absolute().parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}")
    if output.is_dir():
        raise InputError(f"--output {output} is a folder: name a file")


def tell(report: Mapping[str, Any], verdicts: Sequence[Verdict], output: Path | None, as_json: bool) -> None:
    """Print the table, or all as JSON, and write the JSON to ``output``: whole, or not at all.

    Raises:
        Julia1Error: it cannot be written.
    """
    if as_json:
        print_json(report)
    else:
        rows = [["", "", "found", "limit", ""]]
        rows += [[v.status, v.name, one_line(v.figure), v.limit, one_line(v.note)] for v in verdicts]
        print(*columns(rows, indent=""), sep="\n")
    if output is not None:
        from julia1.bundle.files import reason, write_whole

        try:
            write_whole(output, json.dumps(report, ensure_ascii=False, allow_nan=False, indent=2) + "\n")
        except OSError as error:
            raise Julia1Error(f"cannot write {output}: {reason(error)}") from None
