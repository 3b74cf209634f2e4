"""Pages that need nothing but themselves: their style, lists, tables, and files that are whole or not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from julia1.bundle import files
from julia1.errors import TrainingError

MOST_ITEMS = 200
"""Items of a list that a page shows; JSON has all."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; width: 100% }
td, th { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #e3e3e3; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.bar { background: #3b6fb6; height: .8rem; border-radius: 2px }
.bad { color: #a32020 } .good { color: #20702f } .small { color: #666; font-size: 13px }
img, svg { max-width: 100% } summary { cursor: pointer }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A page from its title and the HTML below it."""
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
    return "\n".join([head, f"<h1>{escape(title)}</h1>", *parts]) + "</html>\n"


def html_list(items: Sequence[str]) -> str:
    """Texts as a list."""
    more = f"<li>and {len(items) - MOST_ITEMS:,} more" if len(items) > MOST_ITEMS else ""
    return "<ul>" + "".join(f"<li>{escape(item)}" for item in items[:MOST_ITEMS]) + more + "</ul>"


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table: whole numbers and fractions to the right, ``None`` as a dash, all else as text."""
    head = "".join(f"<th>{escape(name)}" for name in header)
    body = "".join("<tr>" + "".join(map(_cell, row)) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        return f"<td>{escape(str(value))}"
    if value is None:
        return "<td class=n>–"
    return f"<td class=n>{value:,}" if isinstance(value, int) else f"<td class=n>{value:.4g}"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file of a run: it is whole or not there.

    Raises:
        TrainingError: it cannot be written.
    """
    try:
        files.write_whole(path, content)
    except OSError as error:
        raise TrainingError(f"cannot write {path}: {error.strerror}") from None
