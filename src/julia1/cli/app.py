"""The parser of every command, and the one place where errors become lines and exit codes.

0    done
1    an error that is none of those below; rows that could not be answered, with --keep-going
2    bad usage or bad input
3    a verification ran and failed
130  interrupted
141  who read the output went away
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from julia1 import __version__
from julia1.cli import (
    accept,
    completion,
    data,
    decide,
    diagnose,
    doctor,
    export,
    golden,
    models,
    optimize,
    pack,
    registry,
    soak,
    train,
    tune,
    verify,
    version,
)
from julia1.cli.printing import one_line
from julia1.content import shown
from julia1.errors import InputError, Julia1Error, VerificationError

COMMANDS = (
    decide,
    models,
    verify,
    doctor,
    tune,
    golden,
    soak,
    accept,
    pack,
    data,
    train,
    registry,
    export,
    diagnose,
    optimize,
    completion,
    version,
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ``InputError`` and whose flags are never guessed from a beginning."""

    def __init__(self, *args: object, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print with a page of usage."""
        raise InputError(f"{message}; see  {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """The whole tree of commands."""
    parser = Parser(
        prog="julia1",
        description="Decision models on almost any CPU: text in; a class, a yes/no probability or a score out.",
        epilog="julia1 COMMAND --help tells more. Exit codes: 0 done, 2 bad usage or input, 3 verification failed, "
        "1 anything else.",
    )
    parser.add_argument("--version", action="version", version=f"julia1 {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``argv`` is the program's own without one."""
    _write_utf8()
    try:
        try:
            code = _run(argv)
        except SystemExit as stop:  # argparse, after --help or --version
            code = stop.code if isinstance(stop.code, int) else 0
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 141
    except Julia1Error as error:
        _report(error)
        return _exit_code(error)
    except OSError as error:
        _report(error)
        return 1
    except KeyboardInterrupt:
        print("julia1: interrupted", file=sys.stderr)
        return 130
    return code


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments, extra = parser.parse_known_args(optimize.spelled_out(sys.argv[1:] if argv is None else argv))
    if extra:
        own: Parser = arguments.parser
        own.error(_not_known(extra[0], own))
    code: int = arguments.run(arguments)
    return code


def _not_known(extra: str, parser: argparse.ArgumentParser) -> str:
    if not extra.startswith("-"):
        return f"one argument too many: {shown(extra)} (a text of several words stands in quotes)"
    flags = [name for flag in completion.describe(parser).flags for name in flag.names]
    near = difflib.get_close_matches(extra.partition("=")[0], flags, 1)
    return f"unknown flag {shown(extra)}" + (f", did you mean {near[0]}?" if near else "")


def _exit_code(error: Julia1Error) -> int:
    if isinstance(error, VerificationError):
        return 3
    return 2 if isinstance(error, InputError) else 1


def _report(error: Exception) -> None:
    """One line, whatever the error quotes."""
    with contextlib.suppress(BrokenPipeError):
        print(f"julia1: error: {one_line(str(error))}", file=sys.stderr)


def _write_utf8() -> None:
    """JSON lines are UTF-8 wherever they are written, also where the locale says otherwise."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower().replace("-", "") != "utf8":
            reconfigure(encoding="utf-8")


def _drop_output() -> None:
    """Let the interpreter flush what nobody reads into nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
