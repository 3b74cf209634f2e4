"""julia1: decision models on almost any CPU.

import julia1
from julia1 import Choice, Score, YesNo

decider = julia1.load()
answers = decider.decide("I was charged twice", {"team": Choice("Which team?", ["billing", "shipping"])})
answers["team"].choice
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from julia1.answers import (
    Answer,
    ChoiceAnswer,
    LabelsAnswer,
    MatchAnswer,
    RankAnswer,
    Reading,
    ScoreAnswer,
    Span,
    TagsAnswer,
    ValueAnswer,
    YesNoAnswer,
)
from julia1.errors import (
    BundleError,
    EngineError,
    InputError,
    Julia1Error,
    MissingExtraError,
    TooLongError,
    VerificationError,
)
from julia1.lazy import lazy_names
from julia1.questions import Choice, Question, Score, YesNo

if TYPE_CHECKING:
    from julia1.runtime.decider import Decider, load

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "BundleError",
    "Choice",
    "ChoiceAnswer",
    "Decider",
    "EngineError",
    "InputError",
    "Julia1Error",
    "LabelsAnswer",
    "MatchAnswer",
    "MissingExtraError",
    "Question",
    "RankAnswer",
    "Reading",
    "Score",
    "ScoreAnswer",
    "Span",
    "TagsAnswer",
    "TooLongError",
    "ValueAnswer",
    "VerificationError",
    "YesNo",
    "YesNoAnswer",
    "__version__",
    "load",
]


__getattr__ = lazy_names(__name__, dict.fromkeys(("Decider", "load"), "julia1.runtime.decider"))
