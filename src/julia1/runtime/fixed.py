"""Models with fixed heads: from texts and features to the answers of every head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from julia1.answers import (
    Answer,
    FloatArray,
    Reading,
    Span,
    TagsAnswer,
    ValueAnswer,
    choice_answer,
    labels_answer,
    score_answer,
    tags_answer,
    yes_no_answer,
)
from julia1.bundle import Calibration, Manifest
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.content import Content, shown
from julia1.errors import EngineError, InputError
from julia1.runtime.batches import padded_batches
from julia1.runtime.calibration import UNCALIBRATED, probabilities
from julia1.runtime.engines import Engine
from julia1.text.states import framed, pad_rows, render_states
from julia1.text.tags import Offsets, best_tags, spans_of
from julia1.text.tokenizer import TextTokenizer

INPUT_IDS, ATTENTION_MASK, NUMBERS, CATEGORIES, HEAD = "input_ids", "attention_mask", "numbers", "categories", "head.{}"

_NOTHING = np.zeros(0, np.float32)
LARGEST = 3e38
"""What a float of 32 bits holds."""

Features = Mapping[str, float | int | bool | str | None]
Outputs = list[list[npt.NDArray[np.float32]]]
"""For each head, for each state: fp32 ``[outputs]``, of a tags head ``[tokens, outputs]`` without [CLS] and [SEP]."""


@dataclass(frozen=True)
class ReadState:
    """A state as it was read.

    Attributes:
        text: all of it.
        reading: how much was read.
        offsets: the characters of each token that was read; empty when no head gives tags.
    """

    text: str
    reading: Reading
    offsets: Offsets


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
        self._tokenizer = tokenizer
        self._state_tokens = manifest.encoding.state_tokens
        self._engine = engine
        self._names = [HEAD.format(number) for number in range(len(self.heads))]

    def outputs(
        self, states: Sequence[Content], features: Sequence[Features | None], strict: bool, batch_tokens: int
    ) -> tuple[Outputs, list[ReadState]]:
        """Raw outputs of every head, and what was read of each state.

        Raises:
            InputError: an empty state where the model has no features, or a feature it does not know.
        """
        rows, read = self._read(states, strict)
        lengths = [len(ids) for ids in rows]
        longest_first = sorted(range(len(rows)), key=lambda i: -lengths[i])
        numbers, categories = feature_arrays(self._features, features)
        found: Outputs = [[_NOTHING] * len(rows) for _ in self.heads]
        for batch in padded_batches(longest_first, lengths.__getitem__, batch_tokens):
            ids, mask = pad_rows([rows[i] for i in batch], self._tokenizer.pad)
            feeds: dict[str, npt.NDArray[np.generic]] = {INPUT_IDS: ids, ATTENTION_MASK: mask}
            if self._features:
                feeds.update({NUMBERS: numbers[batch], CATEGORIES: categories[batch]})
            for head, whole, part in zip(self.heads, found, self._engine.run(feeds, self._names), strict=True):
                if not np.isfinite(part).all():
                    raise EngineError(f"the head {head.name!r} gave a score that is no number: try another variant")
                for index, values in zip(batch, part, strict=True):
                    # a copy: a view would keep the padding of the whole batch
                    whole[index] = values[1 : lengths[index] - 1].copy() if head.kind == "tags" else values
        return found, read

    def _read(self, states: Sequence[Content], strict: bool) -> tuple[list[list[int]], list[ReadState]]:
        """Piece ids of each state, framed, and what they stand for."""
        texts = render_states(states, allow_empty=bool(self._features))
        if any(head.kind == "tags" for head in self.heads):
            pieces = self._tokenizer.ids_and_offsets(texts)
        else:
            pieces = [(ids, []) for ids in self._tokenizer.ids(texts)]
        rows, read = [], []
        for text, (ids, offsets) in zip(texts, pieces, strict=True):
            row, reading = framed(self._tokenizer, ids, self._state_tokens, strict)
            rows.append(row)
            read.append(ReadState(text, reading, offsets[: reading.tokens_read]))
        return rows, read

    def decide(
        self,
        states: Sequence[Content],
        features: Sequence[Features | None],
        strict: bool,
        abstain_below: float | None,
        batch_tokens: int,
    ) -> list[dict[str, Answer]]:
        """The answers of every head to each state."""
        found, read = self.outputs(states, features, strict, batch_tokens)
        return [
            {
                head.name: head_answer(
                    head, values[i], self._calibration.get(head.name, UNCALIBRATED), state, abstain_below
                )
                for head, values in zip(self.heads, found, strict=True)
            }
            for i, state in enumerate(read)
        ]


def head_answer(
    head: HeadSpec,
    outputs: npt.NDArray[np.float32],
    calibration: Calibration,
    state: ReadState,
    abstain_below: float | None = None,
) -> Answer:
    """The answer of a head from its outputs for one state."""
    reading = state.reading
    if head.kind == "value":
        return ValueAnswer(float(outputs[0]) * head.spread + head.centre, head.deviation, reading)
    if head.kind == "tags":
        return _tags(head, outputs, calibration, state, abstain_below)
    if head.kind == "labels":
        chances = sigmoid(outputs.astype(np.float64) / calibration.temperature)
        return labels_answer(head.labels, chances, label_thresholds(head), reading, abstain_below)
    shares = probabilities(outputs, calibration)
    if head.kind == "score":
        return score_answer(head.labels, shares, reading, abstain_below)
    if head.kind == "yesno":
        return yes_no_answer(shares, reading, abstain_below)
    return choice_answer(head.labels, shares, reading, abstain_below)


def _tags(
    head: HeadSpec,
    outputs: npt.NDArray[np.float32],
    calibration: Calibration,
    state: ReadState,
    abstain_below: float | None,
) -> TagsAnswer:
    if not len(outputs):
        return tags_answer([], np.zeros(0), np.zeros(0), state.reading, abstain_below)
    logs = log_softmax(outputs.astype(np.float64) / calibration.temperature)
    tags = best_tags(logs)
    chosen = np.exp(logs[np.arange(len(tags)), tags])
    entropies = -(np.exp(logs) * logs).sum(axis=1)
    spans = [
        Span(start, end, head.labels[label], state.text[start:end], float(chosen[list(tokens)].min()))
        for (start, end, label), tokens in spans_of(tags.tolist(), state.text, state.offsets)
    ]
    return tags_answer(spans, chosen, entropies, state.reading, abstain_below)


def label_thresholds(head: HeadSpec) -> FloatArray:
    """From which probability each label of a labels head is given, float64 ``[labels]``."""
    return np.array(head.thresholds or [0.5] * len(head.labels))


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


def log_softmax(scores: FloatArray) -> FloatArray:
    """Log-probabilities over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    found: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def sigmoid(values: FloatArray) -> FloatArray:
    """The logistic function, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * values))
