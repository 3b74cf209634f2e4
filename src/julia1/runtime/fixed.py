"""Models with fixed heads: from texts and features to the answers of every head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from julia1.answers import (
    Answer,
    ChoiceAnswer,
    FloatArray,
    LabelsAnswer,
    Reading,
    ScoreAnswer,
    ValueAnswer,
    YesNoAnswer,
    choice_confidence,
    entropy,
    labels_confidence,
    score_confidence,
)
from julia1.bundle import Calibration, Manifest
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.content import Content, shown
from julia1.errors import EngineError, InputError
from julia1.runtime.calibration import UNCALIBRATED, probabilities
from julia1.runtime.engines import Engine
from julia1.text.fixed import FixedEncoding, FixedRow
from julia1.text.tokenizer import TextTokenizer

INPUT_IDS, ATTENTION_MASK, NUMBERS, CATEGORIES, HEAD = "input_ids", "attention_mask", "numbers", "categories", "head.{}"

LARGEST = 3e38
"""What a float of 32 bits holds."""

Features = Mapping[str, float | int | bool | str | None]
Outputs = list[npt.NDArray[np.float32]]


class FixedScorer:
    """Runs a model with fixed heads. Safe to share between threads.

    Args:
        manifest: with heads.
        tokenizer: of the model.
        engine: runs the graph.
    """

    def __init__(self, manifest: Manifest, tokenizer: TextTokenizer, engine: Engine) -> None:
        self.heads = manifest.heads
        self._features = manifest.features
        self._calibration = manifest.calibration
        self._encoding = FixedEncoding(tokenizer, manifest.encoding.state_tokens)
        self._engine = engine
        self._names = [HEAD.format(number) for number in range(len(self.heads))]

    def outputs(
        self, states: Sequence[Content], features: Sequence[Features | None], strict: bool, batch_tokens: int
    ) -> tuple[Outputs, list[Reading]]:
        """Raw outputs of every head, fp32 ``[states, outputs]``, and how much of each state was read.

        Raises:
            InputError: an empty state where the model has no features, or a feature it does not know.
        """
        rows = self._encoding.rows(states, strict, allow_empty=bool(self._features))
        numbers, categories = feature_arrays(self._features, features)
        found = [np.zeros((len(rows), head.outputs), np.float32) for head in self.heads]
        for batch in _batches(rows, batch_tokens):
            ids, mask = self._encoding.collate([rows[i] for i in batch])
            feeds: dict[str, npt.NDArray[np.generic]] = {INPUT_IDS: ids, ATTENTION_MASK: mask}
            if self._features:
                feeds.update({NUMBERS: numbers[batch], CATEGORIES: categories[batch]})
            for whole, part in zip(found, self._engine.run(feeds, self._names), strict=True):
                whole[batch] = part
        for head, values in zip(self.heads, found, strict=True):
            if not np.isfinite(values).all():
                raise EngineError(f"the head {head.name!r} gave a score that is no number: try another variant")
        return found, [row.reading for row in rows]

    def decide(
        self,
        states: Sequence[Content],
        features: Sequence[Features | None],
        strict: bool,
        abstain_below: float | None,
        batch_tokens: int,
    ) -> list[dict[str, Answer]]:
        """The answers of every head to each state."""
        found, readings = self.outputs(states, features, strict, batch_tokens)
        return [
            {
                head.name: head_answer(
                    head, values[i], self._calibration.get(head.name, UNCALIBRATED), reading, abstain_below
                )
                for head, values in zip(self.heads, found, strict=True)
            }
            for i, reading in enumerate(readings)
        ]


def head_answer(
    head: HeadSpec,
    outputs: npt.NDArray[np.float32],
    calibration: Calibration,
    reading: Reading,
    abstain_below: float | None = None,
) -> Answer:
    """The answer of a head from its outputs, fp32 ``[outputs]``."""
    if head.kind == "value":
        return ValueAnswer(float(outputs[0]) * head.spread + head.centre, head.deviation, reading)
    if head.kind == "labels":
        chances = sigmoid(outputs.astype(np.float64) / calibration.temperature)
        given = chances >= np.array(head.thresholds or [0.5] * len(head.labels))
        sure = labels_confidence(chances, given)
        inside = np.clip(chances, 1e-12, 1 - 1e-12)
        spread = float(-(inside * np.log(inside) + (1 - inside) * np.log(1 - inside)).sum())
        chosen = [head.labels[i] for i in np.argsort(-chances, kind="stable") if given[i]]
        named = dict(zip(head.labels, chances.tolist(), strict=True))
        return LabelsAnswer(chosen, named, sure, spread, reading, _abstains(sure, abstain_below))
    shares = probabilities(outputs, calibration)
    top, spread, values = int(shares.argmax()), entropy(shares), shares.tolist()
    if head.kind == "score":
        sure = score_confidence(shares)
        expected = float(shares @ np.arange(len(values)))
        return ScoreAnswer(expected, top, head.labels, values, sure, spread, reading, _abstains(sure, abstain_below))
    sure = choice_confidence(shares)
    abstained = _abstains(sure, abstain_below)
    if head.kind == "yesno":
        return YesNoAnswer(values[1], sure, spread, reading, abstained)
    named = dict(zip(head.labels, values, strict=True))
    return ChoiceAnswer(head.labels[top], named, sure, spread, reading, abstained)


def feature_arrays(
    spec: FeatureSpec, rows: Sequence[Features | None]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Features as the graph takes them: numbers with NaN where one is missing, categories with 0 for unknown.

    Raises:
        InputError: a feature that the model does not have, or a value of the wrong type.
    """
    numbers = np.full((len(rows), len(spec.numbers)), np.nan, np.float32)
    categories = np.zeros((len(rows), len(spec.categories)), np.int64)
    number_places = {name: i for i, name in enumerate(spec.numbers)}
    known = {
        name: (i, {value: j for j, value in enumerate(values, start=1)})
        for i, (name, values) in enumerate(spec.categories.items())
    }
    for i, row in enumerate(rows):
        for name, value in (row or {}).items():
            if name not in number_places and name not in known:
                has = ", ".join([*number_places, *known]) or "none"
                raise InputError(f"the model has no feature {name!r}; it has: {has}")
            if value is None:
                continue
            if name in known:
                if not isinstance(value, str):
                    raise InputError(f"the feature {name!r} is {shown(value)}: it must be a text")
                column, places = known[name]
                categories[i, column] = places.get(value, 0)
            elif isinstance(value, str) or not isinstance(value, (bool, int, float)) or not abs(value) < LARGEST:
                raise InputError(f"the feature {name!r} is {shown(value)}: it must be a finite number")
            else:
                numbers[i, number_places[name]] = value
    return numbers, categories


def sigmoid(values: FloatArray) -> FloatArray:
    """The logistic function, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * values))


def _abstains(confidence: float, abstain_below: float | None) -> bool:
    return abstain_below is not None and confidence < abstain_below


def _batches(rows: Sequence[FixedRow], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of rows sorted by length, cut where the padded batch would pass the budget; one row always fits."""
    batch: list[int] = []
    for i in sorted(range(len(rows)), key=lambda i: -len(rows[i].ids)):
        if batch and len(rows[batch[0]].ids) * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
