"""What a check found: a name, a figure, its limit, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["pass", "fail", "not measured"]


@dataclass(frozen=True)
class Verdict:
    """One line of a table.

    Attributes:
        name: of what was checked.
        status: whether it holds, or that it could not be measured.
        figure: what was found, as people read it; '' for nothing.
        limit: what it must be.
        note: where the figure is from, or why there is none; '' for nothing.
        numbers: the same as data.
    """

    name: str
    status: Status
    figure: str = ""
    limit: str = ""
    note: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "name": self.name,
            "status": self.status,
            "figure": self.figure,
            "limit": self.limit,
            "note": self.note,
            **self.numbers,
        }


def judged(name: str, holds: bool, figure: str, limit: str, note: str = "", **numbers: Any) -> Verdict:
    """A verdict on a figure that was measured."""
    return Verdict(name, "pass" if holds else "fail", figure, limit, note, numbers)


def failed(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those that fail."""
    return [verdict for verdict in verdicts if verdict.status == "fail"]
