"""Clean a text without losing what carries meaning: markup goes, signs, emoji and line structure stay."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--.*?-->", re.DOTALL)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Soft hyphens, zero-width spaces and control characters. Joiners stay: they hold emoji and some scripts together."""
_BLANKS = re.compile("[ \t\u00a0\u2000-\u200a\u202f\u205f\u3000]+")
_LINES = re.compile(r"\s*\n\s*")
_BREAKING = {"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "blockquote"}
_FLAGS = {"disabled", "checked", "hidden", "required", "selected", "readonly", "async", "defer", "controls", "nowrap"}
"""Attributes that HTML writes without a value; other bare words in a tag say that it is none."""
_SILENT = {"script", "style", "head", "template"}


def clean_text(text: str) -> str:
    """The text without HTML, invisible characters and repeated blanks.

    Entities that end in a semicolon are resolved (``&amp;`` is ``&``). A ``<`` that opens no element stays, as in
    ``price < 5`` or ``<3``; so do placeholders such as ``<email>`` and ``<number>``, which are no HTML elements.
    """
    if _looks_like_html(text):
        text = _without_markup(text)
    text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    text = _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _LINES.sub("\n", _BLANKS.sub(" ", text)).strip()


def _looks_like_html(text: str) -> bool:
    return any(
        _element(match.group()) in _ELEMENTS or match.group().startswith("<!--") for match in _TAG.finditer(text)
    )


def _element(tag: str) -> str:
    return re.split(r"[\s/>]", tag.lstrip("</"), maxsplit=1)[0].lower()


def _without_markup(text: str) -> str:
    reader = _TextOf({tag for tag in _SILENT if f"</{tag}" in text.lower()})
    reader.feed(text.replace("&", "&amp;"))  # entities are resolved later, and only those that end as they should
    reader.close()
    return "".join(reader.parts)


class _TextOf(HTMLParser):
    """Collects text; what looks like a tag but is no HTML element stays as it is written."""

    def __init__(self, silent: set[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent_tags = silent
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        words = any(value is None and name not in _FLAGS for name, value in attrs)
        if tag in self._silent_tags:
            self._silent += 1
        elif tag not in _ELEMENTS or tag in _SILENT or words:
            self.handle_data(self.get_starttag_text() or "")
        elif tag in _BREAKING:
            self.parts.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self._silent_tags:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent_tags:
            self._silent = max(0, self._silent - 1)
        elif tag in _BREAKING:
            self.parts.append("\n")
        elif tag not in _ELEMENTS:
            self.handle_data(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)


_INLINE = """
a abbr article aside b body button center code col dd del dl dt em font footer form header hr html i iframe img input
ins label link main mark meta nav option pre q s section select small span strike strong sub sup svg tbody td tfoot th
thead time title tt u video
"""
_ELEMENTS = _BREAKING | _SILENT | set(_INLINE.split())
