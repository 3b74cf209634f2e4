"""Reads text, JSON and YAML that people wrote: strictly, and with the place in every error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO

from julia1.errors import InputError
from julia1.strict_json import strict_json

MOST_BYTES = 16 << 20
"""More in one text or line is a mistake: a state may have 500,000 characters."""


def place(path: str) -> str:
    """How errors call a file."""
    return "standard input" if path == "-" else path


def standard_input() -> BinaryIO:
    """Standard input as bytes."""
    if sys.stdin is None:
        raise InputError("there is no standard input to read")
    return sys.stdin.buffer


def read_text(path: str) -> str:
    """A file, or standard input for ``-``, as text, without a byte order mark; raises ``InputError``."""
    try:
        if path == "-":
            content = standard_input().read(MOST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{place(path)} has more than {MOST_BYTES >> 20} MiB: give the part that matters")
    return decode(content, place(path))


def decode(content: bytes, where: str) -> str:
    """UTF-8 to text, without a byte order mark; raises ``InputError``."""
    try:
        return content.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 at byte {error.start:,}: save it as UTF-8") from None


def parse_json(text: str, where: str) -> Any:
    """JSON as the standard has it: no NaN, no key twice; raises ``InputError``."""
    try:
        return strict_json(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.strip() else ""
        raise InputError(f"{where} is not JSON: {error.msg} at {line}column {error.colno}") from None
    except ValueError as error:
        raise InputError(f"{where} is not JSON to rely on: {error}") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply to read") from None


def parse_yaml(text: str, where: str) -> Any:
    """Plain YAML. Keys are text as written, no key stands twice, and ``yes``, ``on`` or ``10:30`` are text.

    Raises:
        InputError: naming the line.
    """
    import yaml

    from julia1.cli.plain_yaml import PlainLoader

    try:
        return yaml.load(text, Loader=PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{where}{line}: not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        number, character = text.count("\n", 0, error.position) + 1, ord(text[error.position])
        raise InputError(f"{where} line {number}: not YAML: the character U+{character:04X} is not allowed") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where} is not YAML to rely on: {error}") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply to read") from None
