"""Compare answers to the same questions: did one change, and how far did probabilities move?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from julia1 import Answer, ChoiceAnswer, YesNoAnswer


def decided(answer: Answer) -> str | bool | int:
    """What was answered: an option, yes or no, or a level."""
    if isinstance(answer, ChoiceAnswer):
        return answer.choice
    return answer.yes if isinstance(answer, YesNoAnswer) else answer.level


def spread(answer: Answer) -> dict[str, float]:
    """Every probability of an answer by name, in no order."""
    if isinstance(answer, ChoiceAnswer):
        return dict(answer.probabilities)
    if isinstance(answer, YesNoAnswer):
        return {"no": 1 - answer.probability, "yes": answer.probability}
    return dict(zip(answer.legend, answer.probabilities, strict=True))


def movement(one: Answer, other: Answer) -> float:
    """The largest difference of a probability between two answers to one question."""
    first, second = spread(one), spread(other)
    return max(abs(value - second[name]) for name, value in first.items())


def margin(answer: Answer) -> float:
    """How far the best probability is above the second: how near an answer is to a change."""
    *_, second, best = sorted(spread(answer).values())
    return best - second


def kind(answer: Answer) -> str:
    """``choice``, ``yesno`` or ``score``."""
    return str(answer.to_dict()["type"])


class Comparison:
    """Counts changed answers and the movement of probabilities.

    Attributes:
        moved: largest difference of a probability, one an answer.
        changed: margin of every answer that came out otherwise.
    """

    def __init__(self) -> None:
        self.moved: list[float] = []
        self.changed: list[float] = []

    def add(self, before: Mapping[str, Answer], after: Mapping[str, Answer]) -> None:
        """Compare the answers to one request."""
        for name, answer in before.items():
            self.moved.append(movement(answer, after[name]))
            if decided(answer) != decided(after[name]):
                self.changed.append(margin(answer))

    def add_all(self, before: Sequence[Mapping[str, Answer]], after: Sequence[Mapping[str, Answer]]) -> None:
        """Compare the answers to several requests."""
        for one, other in zip(before, after, strict=True):
            self.add(one, other)

    def figures(self) -> dict[str, Any]:
        """Answers compared and changed, the largest and the mean movement, and the widest margin that was crossed."""
        answers = len(self.moved)
        return {
            "answers": answers,
            "changed": len(self.changed),
            "same": 1 - len(self.changed) / max(1, answers),
            "largest_movement": max(self.moved, default=0.0),
            "mean_movement": float(np.mean(self.moved)) if self.moved else 0.0,
            "widest_margin_changed": max(self.changed, default=0.0),
        }
