"""What all commands print with: JSON, aligned columns, text that is safe on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def to_json(data: Any) -> str:
    """One line of JSON."""
    line = json.dumps(data, ensure_ascii=False, allow_nan=False)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate: only an escape can carry it
        return json.dumps(data, allow_nan=False)
    return line


def print_json(data: Any) -> None:
    """Print one line of JSON."""
    print(to_json(data))


def one_line(text: str) -> str:
    """Text on one line, without characters that would steer a terminal."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows as lines with aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [f"{indent}{line}".rstrip() for line in lines]


def size(number: int) -> str:
    """A number of bytes in decimal units."""
    return f"{number / 1e6:,.1f} MB" if number >= 100_000 else f"{number / 1e3:,.1f} kB"


def count(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
