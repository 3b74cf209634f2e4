"""Questions from flags and from YAML or JSON files."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from julia1.cli.data_text import parse_json, parse_yaml, place, read_text
from julia1.content import shown
from julia1.errors import InputError
from julia1.questions import Choice, Question, Score, YesNo

_DESCRIBED = re.compile(r"(?s)(\S.*?):\s+(\S.*)")
"""``billing: charges and refunds``; a colon without a space after it is part of the name."""


class AskAction(argparse.Action):
    """Keeps question flags in the order they were written, whatever their types."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        """Append the type of the question and its words."""
        asked = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*asked, ((option_string or "").lstrip("-"), values)])


def add_question_flags(parser: argparse.ArgumentParser) -> None:
    """``--choice``, ``--yesno``, ``--score`` and ``--questions``."""
    group = parser.add_argument_group("questions")
    for name, nargs, metavar, text in (
        ("choice", "+", ("INSTRUCTIONS", "OPTION"), "pick one of the options; an option may be 'name: description'"),
        ("yesno", 1, "INSTRUCTIONS", "the probability of yes"),
        ("score", "+", ("INSTRUCTIONS", "LEVEL"), "place the text on a scale, lowest level first"),
    ):
        group.add_argument(
            f"--{name}", dest="asked", action=AskAction, nargs=nargs, metavar=metavar, help=f"{text}; may be repeated"
        )
    group.add_argument("-q", "--questions", metavar="FILE", help="questions in a YAML or JSON file (.json)")


def collect_questions(file: str | None, asked: Sequence[tuple[str, Sequence[str]]] | None) -> dict[str, Question]:
    """The questions of a file, then those of flags, which are named for their type: choice, choice2 …

    Raises:
        InputError: naming the file and question, or the flag, that is wrong; or that there are no questions.
    """
    questions = read_questions(file) if file is not None else {}
    for kind, words in asked or ():
        name, number = kind, 1
        while name in questions:
            number += 1
            name = f"{kind}{number}"
        with _located(f"--{kind} {shown(words[0])}"):
            questions[name] = _from_words(kind, words)
    if not questions:
        raise InputError("no questions: ask with --choice, --yesno, --score or --questions FILE")
    return questions


def read_questions(path: str) -> dict[str, Question]:
    """Read a file (``-`` is standard input) that maps names to questions; raises ``InputError``."""
    text, where = read_text(path), place(path)
    data = parse_json(text, where) if path.lower().endswith(".json") else parse_yaml(text, where)
    if not isinstance(data, Mapping) or not data:
        found = "nothing" if not data else f"a {type(data).__name__}"
        raise InputError(f"{where} must map names to questions (team: {{type: choice, ...}}), it holds {found}")
    return {name: _from_data(fields, f"{where}: question {shown(name)}") for name, fields in data.items()}


def _from_words(kind: str, words: Sequence[str]) -> Question:
    instructions, criteria = words[0], words[1:]
    if kind == "yesno":
        return YesNo(instructions)
    if kind == "score":
        return Score(instructions, criteria)
    pairs = [match.groups() if (match := _DESCRIBED.fullmatch(word)) else (word, None) for word in criteria]
    options: dict[str, str | None] = {}
    for name, description in pairs:
        if name in options:
            raise InputError(f"the option {shown(name)} stands twice: every option must be distinct")
        options[name] = description
    return Choice(instructions, options)


def _from_data(fields: Any, where: str) -> Question:
    if not isinstance(fields, Mapping):
        raise InputError(f"{where} must be an object with a type, not {shown(fields)}")
    if "type" not in fields:
        raise InputError(f"{where}: missing key 'type': choice, yesno or score")
    kind = fields["type"]
    if not isinstance(kind, str) or kind not in _READERS:
        raise InputError(f"{where}: unknown type {shown(kind)}{_hint(kind, list(_READERS))}")
    known, reader = _READERS[kind]
    for key in fields:
        if key not in known:
            raise InputError(f"{where}: unknown key {shown(key)}{_hint(key, known)}")
    with _located(where):
        return reader(fields)


def _choice(fields: Mapping[str, Any]) -> Question:
    options = _criteria(fields, "options")
    if not isinstance(options, (list, Mapping)):
        raise InputError(f"the options must be a list of names or a mapping name: description, not {shown(options)}")
    return Choice(fields.get("instructions"), options)


def _yesno(fields: Mapping[str, Any]) -> Question:
    outcomes = {key: fields[key] for key in ("true", "false") if key in fields}
    if "criteria" in fields:
        criteria = fields["criteria"] or {}
        if outcomes:
            raise InputError(f"give either 'criteria' or {next(iter(outcomes))!r}, not both")
        if not isinstance(criteria, Mapping):
            raise InputError(f"the criteria must be an object with 'true' and 'false', not {shown(criteria)}")
        for key in criteria:
            if key not in ("true", "false"):
                raise InputError(f"unknown key {shown(key)} in the criteria; known: true, false")
        outcomes = dict(criteria)
    return YesNo(fields.get("instructions"), outcomes.get("true"), outcomes.get("false"))


def _score(fields: Mapping[str, Any]) -> Question:
    levels = _criteria(fields, "levels")
    if not isinstance(levels, list):
        raise InputError(f"the levels must be a list, lowest first, not {shown(levels)}")
    return Score(fields.get("instructions"), levels)


_Reader = tuple[list[str], Callable[[Mapping[str, Any]], Question]]
_YESNO: _Reader = (["type", "instructions", "true", "false", "criteria"], _yesno)
_READERS: dict[str, _Reader] = {
    "choice": (["type", "instructions", "options", "criteria"], _choice),
    "yesno": _YESNO,
    "noul": _YESNO,  # its name in System One
    "score": (["type", "instructions", "levels", "criteria"], _score),
}


def _criteria(fields: Mapping[str, Any], name: str) -> Any:
    """What stands under our own name or under System One's."""
    given = [key for key in (name, "criteria") if key in fields]
    if len(given) != 1:
        raise InputError(f"give either {name!r} or 'criteria', not both" if given else f"missing key {name!r}")
    return fields[given[0]]


@contextlib.contextmanager
def _located(where: str) -> Iterator[None]:
    """Errors that say where the question stands."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _hint(word: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(word), known, 1)
    return f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
