"""Typed questions: what can be asked about a state.

A question has *instructions* (what is asked) and *criteria* (what may be answered). Both are content: a string, or a
JSON-like object or array that is rendered to text the same way a state is (see ``julia1.content``).

The order of a question's options never changes its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from julia1.content import Content, checked_text, render, shown
from julia1.errors import InputError

MAX_OPTIONS = 10_000


@dataclass(frozen=True)
class Choice:
    """Pick one of several options.

    Args:
        instructions: what is asked; may be empty when the options speak for themselves.
        options: names, or a mapping from name to a description (``None`` for a bare name). At least two, names
            distinct and not blank.

    Raises:
        InputError: fewer than two options, a blank or duplicate name, or content that cannot be rendered.
    """

    instructions: Content | None
    options: Mapping[str, Content | None]

    def __init__(self, instructions: Content | None, options: Mapping[str, Content | None] | Iterable[str]) -> None:
        object.__setattr__(self, "instructions", instructions)
        object.__setattr__(self, "options", _named_options(options))
        instruction_text(self)
        _refuse_repeats(self.option_texts(), "option")

    def option_texts(self) -> list[str]:
        """One text an option, as the model reads it: ``name`` or ``name: description``."""
        return [_described(name, description, f"option {shown(name)}") for name, description in self.options.items()]


@dataclass(frozen=True)
class YesNo:
    """Ask for the probability that something is true ("noul" on the System One wire).

    Args:
        instructions: the yes/no question.
        true: optional description of what counts as yes.
        false: optional description of what counts as no.

    Raises:
        InputError: neither instructions nor a description is given, or one that cannot be rendered.
    """

    instructions: Content | None
    true: Content | None = None
    false: Content | None = None

    def __post_init__(self) -> None:
        if self.option_texts() == ["no", "yes"]:
            raise InputError("a yes/no question needs instructions, or a description of yes or no")

    def option_texts(self) -> list[str]:
        """Two texts, no first: the order of probabilities everywhere is [false, true].

        Yes stands for what is asked, so its text repeats the instructions: read alone, "yes" is like no state at all.
        """
        asked = instruction_text(self).strip()
        meant = "" if self.true is None else render(self.true, "true").strip()
        claim = " ".join(text for text in (asked, meant) if text)
        return [_described("no", self.false, "false"), f"yes: {claim}" if claim else "yes"]


@dataclass(frozen=True)
class Score:
    """Place the state on an ordered scale.

    Args:
        instructions: what is rated.
        levels: descriptions of the levels, lowest first; level ``i`` has the value ``i``. At least two, distinct.

    Raises:
        InputError: fewer than two levels, a blank or repeated one, or content that cannot be rendered.
    """

    instructions: Content | None
    levels: Sequence[Content]

    def __init__(self, instructions: Content | None, levels: Sequence[Content]) -> None:
        if isinstance(levels, (str, bytes)) or not isinstance(levels, Sequence):
            raise InputError(f"levels must be a list of level descriptions, lowest first, not {type(levels).__name__}")
        object.__setattr__(self, "instructions", instructions)
        object.__setattr__(self, "levels", tuple(levels))
        instruction_text(self)
        texts = self.option_texts()
        if len(texts) < 2:
            raise InputError(f"a score needs at least two levels, got {len(texts)}")
        _refuse_repeats(texts, "level")

    def option_texts(self) -> list[str]:
        """One text a level, lowest first."""
        return [_not_blank(render(level, f"level {i}"), f"level {i}") for i, level in enumerate(self.levels)]


Question = Choice | YesNo | Score
"""Any typed question."""


def instruction_text(question: Question) -> str:
    """The instructions as the model reads them ('' when there are none)."""
    return "" if question.instructions is None else render(question.instructions, "instructions")


def _named_options(options: Mapping[str, Content | None] | Iterable[str]) -> dict[str, Content | None]:
    if isinstance(options, (str, bytes)) or not isinstance(options, Iterable):
        raise InputError(f"options must be a list of names or a mapping name -> description, not {shown(options)}")
    pairs = list(options.items()) if isinstance(options, Mapping) else [(name, None) for name in options]
    names = []
    for name, _ in pairs:
        if not isinstance(name, str):
            raise InputError(
                f"an option name must be text, got {shown(name)} ({type(name).__name__}): put it in quotes"
            )
        names.append(_not_blank(checked_text(name, f"option {shown(name)}"), f"option {shown(name)}"))
    if len(names) < 2:
        raise InputError(f"a choice needs at least two options, got {len(names)}: {names}")
    if len(names) > MAX_OPTIONS:
        raise InputError(f"a choice takes at most {MAX_OPTIONS:,} options, got {len(names):,}")
    _refuse_repeats(names, "option")
    return dict(pairs)


def _described(name: str, description: Content | None, where: str) -> str:
    if description is None:
        return name
    text = render(description, where)
    return f"{name}: {text}" if text.strip() else name


def _not_blank(text: str, where: str) -> str:
    if not text.strip():
        raise InputError(f"{where} is blank: give it a name or take it out")
    return text


def _refuse_repeats(texts: Sequence[str], kind: str) -> None:
    seen: set[str] = set()
    for text in texts:
        folded = " ".join(text.split())
        if folded in seen:
            raise InputError(f"the {kind} {shown(folded)} stands twice: every {kind} must be distinct")
        seen.add(folded)
