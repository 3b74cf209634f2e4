"""Questions as plain data, read strictly: what files, golden files and services have in common.

    {"type": "choice", "instructions": "Which team?", "options": {"billing": "charges and refunds", "shipping": null}}
    {"type": "yesno", "instructions": "Is it urgent?", "true": "someone cannot work"}
    {"type": "score", "instructions": "How upset?", "levels": ["calm", "annoyed", "furious"]}

``options`` may be a list of names. The spelling of System One is read too: ``noul``, and ``criteria`` for the rest.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from julia1.content import shown
from julia1.errors import InputError
from julia1.questions import Choice, Question, Score, YesNo


def question_to_data(question: Question) -> dict[str, Any]:
    """Plain data that ``question_from_data`` reads as the same question."""
    if isinstance(question, Choice):
        return {"type": "choice", "instructions": question.instructions, "options": dict(question.options)}
    if isinstance(question, Score):
        return {"type": "score", "instructions": question.instructions, "levels": list(question.levels)}
    outcomes = {"true": question.true, "false": question.false}
    given = {key: value for key, value in outcomes.items() if value is not None}
    return {"type": "yesno", "instructions": question.instructions, **given}


def question_from_data(fields: Any, where: str) -> Question:
    """A question from an object with its type; ``where`` begins every error.

    Raises:
        InputError: a key or type that is not known, with the nearest one, or a value that no question takes.
    """
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
    with located(where):
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
def located(where: str) -> Iterator[None]:
    """Have errors say where they were met."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _hint(word: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(word), known, 1)
    return f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
