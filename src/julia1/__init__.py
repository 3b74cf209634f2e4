"""julia1: decision models on almost any CPU.

import julia1
from julia1 import Choice, Score, YesNo

decider = julia1.load()
answers = decider.decide("I was charged twice", {"team": Choice("Which team?", ["billing", "shipping"])})
answers["team"].choice
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from julia1.answers import Answer, ChoiceAnswer, Reading, ScoreAnswer, YesNoAnswer
from julia1.errors import (
    BundleError,
    EngineError,
    InputError,
    Julia1Error,
    MissingExtraError,
    TooLongError,
    VerificationError,
)
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
    "MissingExtraError",
    "Question",
    "Reading",
    "Score",
    "ScoreAnswer",
    "TooLongError",
    "VerificationError",
    "YesNo",
    "YesNoAnswer",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import the runtime, and with it ONNX Runtime, only when it is asked for."""
    if name in ("Decider", "load"):
        from julia1.runtime import decider

        return getattr(decider, name)
    raise AttributeError(f"module 'julia1' has no attribute {name!r}")
