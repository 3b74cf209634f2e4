"""One way to turn content (a string, or JSON-like data) into the text that a model reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from julia1.errors import InputError

Content = str | Mapping[str, Any] | Sequence[Any]
"""What a state, an instruction or a description may be."""

MAX_DEPTH = 32
MAX_CHARACTERS = 500_000
"""A longer state is a mistake, not a text to decide on: 1,000 times what a model reads."""


def render(content: Any, where: str = "state") -> str:
    """Return the text of ``content``.

    A string stands as it is. Objects and arrays become one ``path: value`` line for each leaf, in their own order
    (``order.items.0: socks``), which costs an encoder fewer tokens than JSON punctuation and reads like prose.

    Args:
        content: a string, mapping, sequence, or (inside those) a number, boolean or ``None``.
        where: the name of the place, for error messages.

    Raises:
        InputError: NaN or infinity, a lone surrogate, a NUL character, more than 500,000 characters, nesting deeper
            than 32, or another type.
    """
    if isinstance(content, str):
        return checked_text(content, where)
    if not isinstance(content, (Mapping, list, tuple)):
        raise InputError(f"{where} must be text, an object or a list, got {shown(content)} ({type(content).__name__})")
    lines = _Lines(where)
    _flatten(content, "", where, lines, 0)
    return checked_text("\n".join(lines.lines), where)


def checked_text(text: str, where: str) -> str:
    """Return ``text`` unchanged, or raise ``InputError`` when it is huge or no tokenizer can read it faithfully."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"{where} has {len(text):,} characters, {MAX_CHARACTERS:,} are taken at most: send the part that matters"
        )
    if "\x00" in text:
        raise InputError(f"{where} holds a NUL character at position {text.index(chr(0))}: take it out")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where} holds a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}: "
            "the text was decoded wrongly, read it as UTF-8"
        ) from None
    return text


def shown(value: object) -> str:
    """The value as an error message quotes it, cut short."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _Lines:
    """Rendered lines, up to the size of a state: an object that holds itself many times must not fill the memory."""

    def __init__(self, where: str) -> None:
        self.lines: list[str] = []
        self._where = where
        self._room = MAX_CHARACTERS

    def append(self, line: str) -> None:
        self.lines.append(line)
        self._room -= len(line) + 1
        if self._room < 0:
            raise InputError(
                f"{self._where} is longer than {MAX_CHARACTERS:,} characters as text: send the part that matters"
            )


def _flatten(value: Any, path: str, where: str, lines: _Lines, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InputError(f"{where} is nested deeper than {MAX_DEPTH} levels at {path!r}")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {shown(key)} ({type(key).__name__}): keys must be text")
            key = checked_text(key, f"a key of {where}")
            _flatten(item, f"{path}.{key}" if path else key, where, lines, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _flatten(item, f"{path}.{index}" if path else str(index), where, lines, depth + 1)
    else:
        lines.append(f"{path}: {_scalar(value, path, where)}")


def _scalar(value: Any, path: str, where: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return checked_text(value, f"{where} at {path!r}")
    if isinstance(value, int):
        if value.bit_length() > 14_000:  # Python itself refuses to write out more than 4,300 digits
            raise InputError(f"{where} holds a number of more than 4,000 digits at {path!r}: write it as text")
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where} holds {value!r} at {path!r}: numbers must be finite")
        return repr(float(value))  # plain digits for a NumPy number, too
    raise InputError(
        f"{where} holds {shown(value)} ({type(value).__name__}) at {path!r}: use text, numbers, lists or objects"
    )
