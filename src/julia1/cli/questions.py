"""Questions from flags and from YAML or JSON files."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from julia1.cli.data_text import parse_json, parse_yaml, place, read_text
from julia1.content import shown
from julia1.errors import InputError
from julia1.question_data import located, question_from_data
from julia1.questions import Choice, Question, Score, YesNo

if TYPE_CHECKING:
    from julia1.bundle import Manifest

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
        with located(f"--{kind} {shown(words[0])}"):
            questions[name] = _from_words(kind, words)
    if not questions:
        raise InputError("no questions: ask with --choice, --yesno, --score or --questions FILE")
    return questions


def questions_for(manifest: Manifest, arguments: argparse.Namespace) -> dict[str, Question] | None:
    """The questions of the flags that ``add_question_flags`` added, for a model: ``None`` where there are none.

    Raises:
        InputError: there are some and the model has fixed heads, or as for ``collect_questions``.
    """
    if arguments.questions is None and not arguments.asked:
        return None
    if manifest.kind == "fixed":
        raise InputError(f"{manifest.name} answers what it was trained to: leave the questions out")
    return collect_questions(arguments.questions, arguments.asked)


def read_questions(path: str) -> dict[str, Question]:
    """Read a file (``-`` is standard input) that maps names to questions; raises ``InputError``."""
    text, where = read_text(path), place(path)
    data = parse_json(text, where) if path.lower().endswith(".json") else parse_yaml(text, where)
    if not isinstance(data, Mapping) or not data:
        found = "nothing" if not data else f"a {type(data).__name__}"
        raise InputError(f"{where} must map names to questions (team: {{type: choice, ...}}), it holds {found}")
    return {name: question_from_data(fields, f"{where}: question {shown(name)}") for name, fields in data.items()}


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
