"""Typed answers. Every answer carries its probabilities, a confidence, the entropy, and how much of the state was read.

Confidence, for thresholds that mean the same whatever the number of options:

======== =============================================================================================
choice   ``(n * p_max - 1) / (n - 1)``: 0 when all ``n`` options are equally likely, 1 when one is certain
yes/no   ``|2p - 1|``, which is the same formula for two options
score    ``1 - E|level - mode| / U``, where ``U`` is that expectation under a uniform distribution; never below 0
labels   of the label that is least sure: ``p`` where it is given, ``1 - p`` where it is left out
tags     of the token whose tag is least sure: the probability of its tag
======== =============================================================================================

Entropy is in nats: 0 when certain, ``ln n`` at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.questions import Choice, Question, Score, YesNo

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """How much of a state was read.

    Attributes:
        tokens: pieces in the whole state.
        tokens_read: pieces that the model saw.
        windows: parts in which they were read.
    """

    tokens: int
    tokens_read: int
    windows: int = 1

    @property
    def truncated(self) -> bool:
        """Whether the end of the state was left out."""
        return self.tokens_read < self.tokens


@dataclass(frozen=True)
class ChoiceAnswer:
    """The answer to a ``Choice``.

    Attributes:
        choice: the most likely option.
        probabilities: by option, in the order of the question.
        confidence, entropy: see the module.
        reading: how much of the state was read.
        abstained: whether the confidence is under the caller's threshold; ``choice`` is then only the best guess.
    """

    choice: str
    probabilities: Mapping[str, float]
    confidence: float
    entropy: float
    reading: Reading
    abstained: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"type": "choice", "choice": self.choice, "probabilities": dict(self.probabilities), **_common(self)}


@dataclass(frozen=True)
class YesNoAnswer:
    """The answer to a ``YesNo``.

    Attributes:
        probability: of yes.
        confidence, entropy, reading, abstained: as for a choice.
    """

    probability: float
    confidence: float
    entropy: float
    reading: Reading
    abstained: bool = False

    @property
    def yes(self) -> bool:
        """Whether yes is the likelier answer."""
        return self.probability > 0.5

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"type": "yesno", "yes": self.yes, "probability": self.probability, **_common(self)}


@dataclass(frozen=True)
class ScoreAnswer:
    """The answer to a ``Score``.

    Attributes:
        score: the expected level, from 0 to the number of levels - 1.
        level: the most likely level.
        legend: text of each level.
        probabilities: of each level, lowest first.
        confidence, entropy, reading, abstained: as for a choice.
    """

    score: float
    level: int
    legend: Sequence[str]
    probabilities: Sequence[float]
    confidence: float
    entropy: float
    reading: Reading
    abstained: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "type": "score",
            "score": self.score,
            "level": self.level,
            "legend": list(self.legend),
            "probabilities": list(self.probabilities),
            **_common(self),
        }


@dataclass(frozen=True)
class LabelsAnswer:
    """Any number of labels, of a trained head.

    Attributes:
        labels: those whose probability reaches their threshold, most probable first; perhaps none.
        probabilities: of each label by itself; they need not add up to 1.
        confidence, entropy, reading, abstained: as for a choice.
    """

    labels: Sequence[str]
    probabilities: Mapping[str, float]
    confidence: float
    entropy: float
    reading: Reading
    abstained: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "type": "labels",
            "labels": list(self.labels),
            "probabilities": dict(self.probabilities),
            **_common(self),
        }


@dataclass(frozen=True)
class ValueAnswer:
    """A number, of a trained head.

    Attributes:
        value: the best guess.
        deviation: root mean square of the errors on validation rows: what to expect of the guess.
        reading: how much of the state was read.
    """

    value: float
    deviation: float
    reading: Reading

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"type": "value", "value": self.value, "deviation": self.deviation, **_read(self.reading)}


@dataclass(frozen=True)
class Span:
    """A labelled part of the text.

    Attributes:
        start, end: characters of the text as it was given, the end exclusive; of JSON, of its rendered text.
        label: what it is.
        text: the characters themselves.
        probability: of the token in it whose tag is least sure.
    """

    start: int
    end: int
    label: str
    text: str
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class TagsAnswer:
    """Labelled parts of the text, of a trained head.

    Attributes:
        spans: in the order of the text, none within another.
        confidence, reading, abstained: as for a choice.
        entropy: the mean over the tokens.
    """

    spans: Sequence[Span]
    confidence: float
    entropy: float
    reading: Reading
    abstained: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"type": "tags", "spans": [span.to_dict() for span in self.spans], **_common(self)}


@dataclass(frozen=True)
class MatchAnswer:
    """Whether two texts belong together, of a trained head.

    Attributes:
        probability: that they do.
        confidence, entropy, abstained: as for a yes/no answer.
        reading: how much of both texts was read.
    """

    probability: float
    confidence: float
    entropy: float
    reading: Reading
    abstained: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"type": "match", "probability": self.probability, **_common(self)}


@dataclass(frozen=True)
class RankAnswer:
    """The order in which candidates fit a query, of a trained head.

    Attributes:
        order: numbers of the candidates, the best first.
        scores: of each candidate, in the order in which they were given; larger is better. They compare candidates of
            one query.
        readings: how much of each candidate was read.
    """

    order: Sequence[int]
    scores: Sequence[float]
    readings: Sequence[Reading]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        truncated = [reading.truncated for reading in self.readings]
        return {"type": "rank", "order": list(self.order), "scores": list(self.scores), "truncated": truncated}


Answer = ChoiceAnswer | YesNoAnswer | ScoreAnswer | LabelsAnswer | ValueAnswer | TagsAnswer | MatchAnswer
"""Any typed answer."""


def build_answer(
    question: Question, probabilities: FloatArray, reading: Reading, abstain_below: float | None = None
) -> Answer:
    """The answer to a question from the probabilities of its options.

    Args:
        question: what was asked.
        probabilities: float64 ``[options]``, in the order of ``question.option_texts()``.
        reading: how much of the state was read.
        abstain_below: mark the answer as abstained when its confidence is under this.
    """
    if isinstance(question, Score):
        return score_answer(question.option_texts(), probabilities, reading, abstain_below)
    if isinstance(question, YesNo):
        return yes_no_answer(probabilities, reading, abstain_below)
    assert isinstance(question, Choice)
    return choice_answer(list(question.options), probabilities, reading, abstain_below)


def choice_answer(
    names: Sequence[str], probabilities: FloatArray, reading: Reading, abstain_below: float | None = None
) -> ChoiceAnswer:
    """The answer among named options, whose probabilities are float64 ``[options]``."""
    sure = choice_confidence(probabilities)
    shares = dict(zip(names, probabilities.tolist(), strict=True))
    best = names[int(probabilities.argmax())]
    return ChoiceAnswer(best, shares, sure, entropy(probabilities), reading, _abstains(sure, abstain_below))


def yes_no_answer(probabilities: FloatArray, reading: Reading, abstain_below: float | None = None) -> YesNoAnswer:
    """The answer from the probabilities of no and yes, float64 ``[2]``."""
    sure = choice_confidence(probabilities)
    yes = float(probabilities[1])
    return YesNoAnswer(yes, sure, entropy(probabilities), reading, _abstains(sure, abstain_below))


def score_answer(
    legend: Sequence[str], probabilities: FloatArray, reading: Reading, abstain_below: float | None = None
) -> ScoreAnswer:
    """The answer on a scale, whose levels' probabilities are float64 ``[levels]``, lowest first."""
    sure, values = score_confidence(probabilities), probabilities.tolist()
    expected, top = float(probabilities @ np.arange(len(values))), int(probabilities.argmax())
    abstained = _abstains(sure, abstain_below)
    return ScoreAnswer(expected, top, legend, values, sure, entropy(probabilities), reading, abstained)


def labels_answer(
    names: Sequence[str],
    probabilities: FloatArray,
    thresholds: FloatArray,
    reading: Reading,
    abstain_below: float | None = None,
) -> LabelsAnswer:
    """The labels that reach their thresholds; probabilities and thresholds are float64 ``[labels]``."""
    given = probabilities >= thresholds
    sure = labels_confidence(probabilities, given)
    inside = np.clip(probabilities, 1e-12, 1 - 1e-12)
    spread = float(-(inside * np.log(inside) + (1 - inside) * np.log(1 - inside)).sum())
    chosen = [names[i] for i in np.argsort(-probabilities, kind="stable") if given[i]]
    named = dict(zip(names, probabilities.tolist(), strict=True))
    return LabelsAnswer(chosen, named, sure, spread, reading, _abstains(sure, abstain_below))


def match_answer(probability: float, reading: Reading, abstain_below: float | None = None) -> MatchAnswer:
    """The answer for a pair from the probability that it belongs together."""
    shares = np.array([1 - probability, probability])
    sure = choice_confidence(shares)
    return MatchAnswer(probability, sure, entropy(shares), reading, _abstains(sure, abstain_below))


def rank_answer(scores: FloatArray, readings: Sequence[Reading]) -> RankAnswer:
    """The order of candidates by their scores, float64 ``[candidates]``; equal ones keep the order they came in."""
    return RankAnswer(np.argsort(-scores, kind="stable").tolist(), scores.tolist(), readings)


def tags_answer(
    spans: Sequence[Span],
    chosen: FloatArray,
    entropies: FloatArray,
    reading: Reading,
    abstain_below: float | None = None,
) -> TagsAnswer:
    """The answer with the probability of each token's tag and the entropy of each token, float64 ``[tokens]``."""
    sure = float(chosen.min(initial=1.0))
    spread = float(entropies.mean()) if len(entropies) else 0.0
    return TagsAnswer(spans, sure, spread, reading, _abstains(sure, abstain_below))


def choice_confidence(probabilities: FloatArray) -> float:
    """``(n * p_max - 1) / (n - 1)``; 1 for a single option."""
    number = len(probabilities)
    if number == 1:
        return 1.0
    return max(0.0, float((number * probabilities.max() - 1) / (number - 1)))


def score_confidence(probabilities: FloatArray) -> float:
    """``1 - E|level - mode| / U``, never below 0; 1 for a single level."""
    distance = np.abs(np.arange(len(probabilities)) - int(probabilities.argmax()))
    uniform = float(distance.mean())
    return 1.0 if uniform == 0 else max(0.0, 1.0 - float(probabilities @ distance) / uniform)


def entropy(probabilities: FloatArray) -> float:
    """Shannon entropy in nats."""
    positive = probabilities[probabilities > 0]
    return max(0.0, float(-(positive * np.log(positive)).sum()))


def labels_confidence(probabilities: FloatArray, chosen: npt.NDArray[np.bool_]) -> float:
    """The probability that the least sure label is rightly given or left out; 1 without labels."""
    return float(np.where(chosen, probabilities, 1 - probabilities).min(initial=1.0))


def _abstains(confidence: float, abstain_below: float | None) -> bool:
    return abstain_below is not None and confidence < abstain_below


def _common(
    answer: ChoiceAnswer | YesNoAnswer | ScoreAnswer | LabelsAnswer | TagsAnswer | MatchAnswer,
) -> dict[str, Any]:
    return {
        "confidence": answer.confidence,
        "entropy": answer.entropy,
        "abstained": answer.abstained,
        **_read(answer.reading),
    }


def _read(reading: Reading) -> dict[str, Any]:
    found = {"tokens": reading.tokens, "tokens_read": reading.tokens_read, "truncated": reading.truncated}
    return {**found, "windows": reading.windows} if reading.windows > 1 else found
