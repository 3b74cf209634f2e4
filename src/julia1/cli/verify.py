"""``julia1 verify``: check every file of a bundle against its recorded size and SHA-256."""

from __future__ import annotations

import argparse

from julia1 import settings
from julia1.cli.flags import Commands, add_bundle, add_json
from julia1.cli.printing import columns, count, one_line, print_json, size
from julia1.errors import BundleError, InputError, VerificationError


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verify",
        help="check the files of a bundle",
        description="Check every file of a bundle against its recorded size and SHA-256. Exits 3 when one is wrong.",
    )
    parser.set_defaults(run=run, parser=parser)
    add_bundle(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line a file; raises ``VerificationError`` when one is wrong."""
    from julia1.bundle import find_bundle, verify_bundle

    path = arguments.bundle or find_bundle(settings.model_path())
    if not path.exists():
        raise InputError(f"there is no bundle at {path}: give the folder or zip of one")
    try:
        checks = verify_bundle(path)
    except BundleError as error:
        if arguments.json:
            print_json({"bundle": str(path), "ok": False, "problem": str(error), "files": []})
        raise VerificationError(str(error)) from None
    wrong = sum(check.status == "wrong" for check in checks)
    if arguments.json:
        files = [{**check.entry.to_dict(), "status": check.status, "problem": check.problem} for check in checks]
        print_json({"bundle": str(path), "ok": not wrong, "problem": "", "files": files})
    else:
        rows = [[c.status, one_line(c.entry.path), size(c.entry.bytes), one_line(c.problem)] for c in checks]
        print(*columns(rows, indent=""), sep="\n")
    if wrong:
        raise VerificationError(f"{path}: {wrong} of {count(len(checks), 'file')} wrong")
    return 0
