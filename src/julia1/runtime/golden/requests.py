"""What a golden file asks, and what was said to it: both as plain data, for every kind of model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from julia1.answers import (
    Answer,
    ChoiceAnswer,
    LabelsAnswer,
    MatchAnswer,
    RankAnswer,
    ScoreAnswer,
    TagsAnswer,
    ValueAnswer,
    YesNoAnswer,
)
from julia1.bundle._fields import Place, array, mapping, number, record, text
from julia1.content import Content
from julia1.question_data import question_from_data, question_to_data
from julia1.questions import Question
from julia1.runtime.decider import Decider
from julia1.runtime.fixed import Features


@dataclass(frozen=True)
class Said:
    """What was answered to one question.

    Attributes:
        answer: in plain data: the option, the level's number, yes or no, labels, spans, a number, the best candidate.
        abstained: whether it abstained.
        probabilities: all there are, in a fixed order.
    """

    answer: Any
    abstained: bool = False
    probabilities: tuple[float, ...] = ()

    @classmethod
    def from_data(cls, data: object, place: Place) -> Said:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        fields = record(data, place, ("answer", "abstained", "probabilities"))
        if not isinstance(fields["abstained"], bool):
            raise place.key("abstained").wrong("true or false", fields["abstained"])
        values = [number(item, at) for item, at in array(fields["probabilities"], place.key("probabilities"))]
        return cls(fields["answer"], fields["abstained"], tuple(values))

    def to_data(self) -> dict[str, Any]:
        """Plain data, as ``from_data`` reads it."""
        return {"answer": self.answer, "abstained": self.abstained, "probabilities": list(self.probabilities)}


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        name: what a report calls it.
        state: text or data.
        questions: for a model that answers open questions; none for one with fixed heads.
        second, features: as ``Decider.decide`` takes them.
        candidates: to be ranked by how well they fit the state, by each head that ranks; none to be decided on.
    """

    name: str
    state: Content
    questions: Mapping[str, Question] = field(default_factory=dict)
    second: Content | None = None
    features: Features | None = None
    candidates: tuple[str, ...] = ()

    def ask(self, decider: Decider) -> dict[str, Said]:
        """What the model says, by question or head."""
        if self.candidates:
            ranking = [head.name for head in decider.manifest.heads if head.kind == "rank"]
            ranked = {name: decider.rank(self.state, self.candidates, head=name) for name in ranking}
            return {name: said(answer) for name, answer in ranked.items()}
        answers = decider.decide(self.state, self.questions or None, second=self.second, features=self.features)
        return {name: said(answer) for name, answer in answers.items()}

    @classmethod
    def from_data(cls, data: object, place: Place) -> Request:
        """Read plain data.

        Raises:
            BundleError: naming the key that is wrong.
            InputError: a question that cannot be asked.
        """
        fields = record(data, place, ("name", "state"), ("questions", "second", "features", "candidates"))
        questions = {
            name: question_from_data(of_one, str(place.key("questions").key(name)))
            for name, of_one in mapping(fields.get("questions", {}), place.key("questions")).items()
        }
        features = fields.get("features")
        candidates = array(fields.get("candidates", []), place.key("candidates"))
        return cls(
            name=text(fields["name"], place.key("name")),
            state=_content(fields["state"], place.key("state")),
            questions=questions,
            second=None if fields.get("second") is None else _content(fields["second"], place.key("second")),
            features=None if features is None else mapping(features, place.key("features")),
            candidates=tuple(text(item, at) for item, at in candidates),
        )

    def to_data(self) -> dict[str, Any]:
        """Plain data, as ``from_data`` reads it."""
        questions = {name: question_to_data(question) for name, question in self.questions.items()}
        data = {"name": self.name, "state": self.state, "questions": questions, "second": self.second}
        data |= {"features": self.features and dict(self.features), "candidates": list(self.candidates)}
        return {key: value for key, value in data.items() if key in ("name", "state") or value}


def said(answer: Answer | RankAnswer) -> Said:
    """What an answer comes down to."""
    if isinstance(answer, RankAnswer):
        return Said(answer.order[0])
    if isinstance(answer, ValueAnswer):
        return Said(answer.value)
    if isinstance(answer, ChoiceAnswer):
        return Said(answer.choice, answer.abstained, tuple(answer.probabilities.values()))
    if isinstance(answer, LabelsAnswer):
        return Said(sorted(answer.labels), answer.abstained, tuple(answer.probabilities.values()))
    if isinstance(answer, ScoreAnswer):
        return Said(answer.level, answer.abstained, tuple(answer.probabilities))
    if isinstance(answer, TagsAnswer):
        spans = [[span.start, span.end, span.label] for span in answer.spans]
        return Said(spans, answer.abstained, tuple(span.probability for span in answer.spans))
    assert isinstance(answer, (YesNoAnswer, MatchAnswer))
    return Said(answer.probability > 0.5, answer.abstained, (answer.probability,))


def _content(data: object, place: Place) -> Content:
    if not isinstance(data, (str, dict, list)):
        raise place.wrong("a text, an object or a list", data)
    return data
