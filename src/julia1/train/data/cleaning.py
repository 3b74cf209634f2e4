"""Clean a text without losing what carries meaning: markup goes, signs, emoji and line structure stay."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--.*?-->", re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Soft hyphens, zero-width spaces and control characters. Joiners stay: they hold emoji and some scripts together."""
_BLANKS = re.compile("[ \t\u00a0\u2000-\u200a\u202f\u205f\u3000]+")
_LINES = re.compile(r"\s*\n\s*")
_BREAKING = {"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "blockquote"}
_SILENT = {"script", "style", "head", "template"}


def clean_text(text: str) -> str:
    """The text without HTML, invisible characters and repeated blanks.

    Entities are resolved (``&amp;`` is ``&``). A ``<`` that opens no tag stays, as in ``price < 5`` or ``<3``; so do
    placeholders such as ``<email>`` and ``<number>``, which no HTML element is named like.
    """
    if _looks_like_html(text):
        text = _without_markup(text)
    elif "&" in text:
        text = html.unescape(text)
    text = _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _LINES.sub("\n", _BLANKS.sub(" ", text)).strip()


def _looks_like_html(text: str) -> bool:
    return any(
        _element(match.group()) in _ELEMENTS or match.group().startswith("<!--") for match in _TAG.finditer(text)
    )


def _element(tag: str) -> str:
    return re.split(r"[\s/>]", tag.lstrip("</"), maxsplit=1)[0].lower()


def _without_markup(text: str) -> str:
    reader = _TextOf()
    reader.feed(text)
    reader.close()
    return "".join(reader.parts)


class _TextOf(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _SILENT:
            self._silent += 1
        elif tag in _BREAKING:
            self.parts.append("\n")
        elif tag not in _ELEMENTS:
            self.handle_data(self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag in _BREAKING:
            self.parts.append("\n")
        elif tag not in _ELEMENTS:
            self.handle_data(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
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
