"""Logits to probabilities."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from julia1.answers import FloatArray
from julia1.bundle import Calibration
from julia1.questions import Choice, Question, Score, YesNo

_KINDS: dict[type[Question], str] = {Choice: "choice", YesNo: "yesno", Score: "score"}
UNCALIBRATED = Calibration(1.0)


def question_kind(question: Question) -> str:
    """The name that calibration goes by: ``choice``, ``yesno`` or ``score``."""
    return _KINDS[type(question)]


def temperature(calibration: Calibration, options: int) -> float:
    """``temperature + per_log_options * ln(options)``, never below ``least``."""
    return max(calibration.least, calibration.temperature + calibration.per_log_options * math.log(options))


def probabilities(logits: npt.NDArray[np.floating], calibration: Calibration) -> FloatArray:
    """Softmax of the logits of one question over its temperature, in float64."""
    scaled = logits.astype(np.float64) / temperature(calibration, len(logits))
    powers = np.exp(scaled - scaled.max())
    return powers / powers.sum()  # type: ignore[no-any-return]
