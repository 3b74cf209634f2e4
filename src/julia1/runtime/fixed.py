"""Models with fixed heads: from texts and features to the answers of every head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from julia1.answers import (
    Answer,
    FloatArray,
    MatchAnswer,
    RankAnswer,
    Reading,
    Span,
    TagsAnswer,
    ValueAnswer,
    choice_answer,
    labels_answer,
    match_answer,
    rank_answer,
    score_answer,
    tags_answer,
    yes_no_answer,
)
from julia1.bundle import Calibration, Manifest
from julia1.bundle.heads import PAIR_KINDS, FeatureSpec, HeadSpec
from julia1.content import Content, shown
from julia1.errors import EngineError, InputError
from julia1.runtime.batches import padded_batches
from julia1.runtime.calibration import UNCALIBRATED, probabilities
from julia1.runtime.engines import Engine
from julia1.text.states import framed, framed_pair, pad_rows, render_states, require_room
from julia1.text.tags import Offsets, best_tags, spans_of
from julia1.text.tokenizer import TextTokenizer
from julia1.text.windows import Window, best_places, read_tokens, windows_of

INPUT_IDS, ATTENTION_MASK, NUMBERS, CATEGORIES, HEAD = "input_ids", "attention_mask", "numbers", "categories", "head.{}"
WINDOW_WEIGHT = "window_weight"

_NOTHING = np.zeros(0, np.float32)
LARGEST = 3e38
"""What a float of 32 bits holds."""

Features = Mapping[str, float | int | bool | str | None]


class Given(NamedTuple):
    """What is to be decided on.

    Attributes:
        state: a text, or data to render as text; may be blank where there are features.
        second: another one, for a model that reads pairs.
        features: structured features by name; any may be missing.
    """

    state: Content
    second: Content | None = None
    features: Features | None = None


Outputs = list[list[npt.NDArray[np.float32]]]
"""For each head, for each state: fp32 ``[outputs]``, of a tags head ``[tokens, outputs]`` without [CLS] and [SEP]; of a
head that reads texts apart, the unit vector of the state."""


@dataclass(frozen=True)
class ReadState:
    """A state as it was read.

    Attributes:
        text: all of it.
        reading: how much was read.
        offsets: the characters of each token that was read; empty when no head gives tags.
        windows: the parts in which its tokens were read.
    """

    text: str
    reading: Reading
    offsets: Offsets
    windows: Sequence[Window] = ((0, 0),)


class FixedScorer:
    """Runs a model with fixed heads. Safe to share between threads.

    Args:
        manifest: with heads.
        tokenizer: of the model.
        engine: runs the graph.
        length_step: rows are padded to a multiple of so many tokens.
    """

    def __init__(self, manifest: Manifest, tokenizer: TextTokenizer, engine: Engine, length_step: int = 1) -> None:
        self.heads = manifest.heads
        self.reads_pairs = manifest.encoding.type == "pair"
        self._features = manifest.features
        self._calibration = manifest.calibration
        self._tokenizer = tokenizer
        self._encoding = manifest.encoding
        self._engine = engine
        self._step = length_step
        self._names = [HEAD.format(number) for number in range(len(self.heads))]
        if manifest.encoding.aggregation == "attention":
            self._names.append(WINDOW_WEIGHT)
        self._compares = any(head.size for head in self.heads)

    def outputs(self, given: Sequence[Given], strict: bool, batch_tokens: int) -> tuple[Outputs, list[ReadState]]:
        """Raw outputs of every head, and what was read of each state. Second texts are read by models of pairs only.

        Raises:
            InputError: an empty state without features, a missing second text, or an unknown feature.
        """
        framed_windows, read = self._read(given, strict)
        rows = [row for windows in framed_windows for row in windows]
        owners = [i for i, windows in enumerate(framed_windows) for _ in windows]
        lengths = [len(ids) for ids in rows]
        longest_first = sorted(range(len(rows)), key=lambda i: -lengths[i])
        numbers, categories = feature_arrays(self._features, [one.features for one in given])
        found: Outputs = [[_NOTHING] * len(rows) for _ in self._names]
        for batch in padded_batches(longest_first, lengths.__getitem__, batch_tokens):
            ids, mask = pad_rows([rows[i] for i in batch], self._tokenizer.pad, self._step)
            feeds: dict[str, npt.NDArray[np.generic]] = {INPUT_IDS: ids, ATTENTION_MASK: mask}
            if self._features:
                of = [owners[i] for i in batch]
                feeds.update({NUMBERS: numbers[of], CATEGORIES: categories[of]})
            for name, whole, part in zip(self._names, found, self._engine.run(feeds, self._names), strict=True):
                if not np.isfinite(part).all():
                    raise EngineError(f"the output {name!r} gave a score that is no number: try another variant")
                for index, values in zip(batch, part, strict=True):
                    # a copy: a view would keep the padding of the whole batch
                    whole[index] = values[1 : lengths[index] - 1].copy() if values.ndim == 2 else values
        weights = found[len(self.heads)] if len(found) > len(self.heads) else None
        return self._of_states(found, weights, read), read

    def _of_states(
        self, found: Outputs, weights: list[npt.NDArray[np.float32]] | None, read: Sequence[ReadState]
    ) -> Outputs:
        """Outputs of windows as outputs of states."""
        whole: Outputs = [[] for _ in self.heads]
        start = 0
        for state in read:
            own = slice(start, start + len(state.windows))
            shares = window_shares(None if weights is None else np.stack(weights[own]), len(state.windows))
            for head, of_head, values in zip(self.heads, whole, found, strict=False):
                of_head.append(joined(values[own], state.windows, shares, head))
            start = own.stop
        return whole

    def _read(self, given: Sequence[Given], strict: bool) -> tuple[list[list[list[int]]], list[ReadState]]:
        """Piece ids of each window of each state, framed, and what they stand for."""
        texts = render_states([one.state for one in given], [featured(one.features) for one in given])
        if self.reads_pairs:
            return self._read_pairs(texts, given, strict)
        if any(head.kind == "tags" for head in self.heads):
            pieces = self._tokenizer.ids_and_offsets(texts)
        else:
            pieces = [(ids, []) for ids in self._tokenizer.ids(texts)]
        rows, read = [], []
        room, most = self._encoding.state_tokens, max(1, self._encoding.windows)
        for text, (ids, offsets) in zip(texts, pieces, strict=True):
            windows = windows_of(len(ids), room - 2, self._encoding.overlap, most)
            number = read_tokens(windows)
            if strict:
                require_room(len(ids), number)
            rows.append([framed(self._tokenizer, ids[start:end], room)[0] for start, end in windows])
            read.append(ReadState(text, Reading(len(ids), number, len(windows)), offsets[:number], windows))
        return rows, read

    def _read_pairs(
        self, texts: Sequence[str], given: Sequence[Given], strict: bool
    ) -> tuple[list[list[list[int]]], list[ReadState]]:
        seconds = [one.second for one in given if one.second is not None]
        if len(seconds) < len(given):
            raise InputError("this model reads two texts: give the second one too")
        pairs = zip(self._tokenizer.ids(texts), self._tokenizer.ids(render_states(seconds)), strict=True)
        framed_pairs = [framed_pair(self._tokenizer, *pair, self._encoding.state_tokens, strict) for pair in pairs]
        read = [ReadState(text, reading, ()) for text, (_, reading) in zip(texts, framed_pairs, strict=True)]
        return [[row] for row, _ in framed_pairs], read

    def decide(
        self, given: Sequence[Given], strict: bool, abstain_below: float | None, batch_tokens: int
    ) -> list[dict[str, Answer]]:
        """The answers of every head to each state; heads that compare two texts answer where there is a second one.

        An answer abstains whose confidence is under ``abstain_below``, or, without one, under the head's own threshold.
        """
        pairs = [i for i, one in enumerate(given) if one.second is not None]
        if pairs and not self.reads_pairs and not self._compares:
            raise InputError("this model reads one text: leave the second one out")
        if len(pairs) < len(given) and all(head.size for head in self.heads):
            raise InputError("this model compares two texts: give the second one too, or rank candidates")
        found, read = self.outputs(given, strict, batch_tokens)
        others: dict[int, tuple[list[npt.NDArray[np.float32]], Reading]] = {}
        if self._compares and pairs:
            seconds = [Given(second) for second in (given[i].second for i in pairs) if second is not None]
            vectors, states = self.outputs(seconds, strict, batch_tokens)
            others = {
                i: ([of_head[j] for of_head in vectors], state.reading)
                for j, (i, state) in enumerate(zip(pairs, states, strict=True))
            }
        answers: list[dict[str, Answer]] = []
        for i, state in enumerate(read):
            of_state: dict[str, Answer] = {}
            for number, (head, values) in enumerate(zip(self.heads, found, strict=True)):
                calibration = self._calibration.get(head.name, UNCALIBRATED)
                threshold = head.abstain_below if abstain_below is None else abstain_below
                if not head.size:
                    of_state[head.name] = head_answer(head, values[i], calibration, state, threshold)
                elif i in others and head.kind == "match":
                    vectors_of_other, other = others[i]
                    logit = likeness(head, values[i], vectors_of_other[number][None])
                    both = Reading(state.reading.tokens + other.tokens, state.reading.tokens_read + other.tokens_read)
                    of_state[head.name] = _match(logit, calibration, both, threshold)
            answers.append(of_state)
        return answers

    def rank(
        self, query: Content, candidates: Sequence[Content], head_name: str | None, strict: bool, batch_tokens: int
    ) -> RankAnswer:
        """Candidates by how well they fit the query, by the head of this name, or the only one that can.

        Raises:
            InputError: no candidates, an empty one, or no such head.
        """
        able = {head.name: number for number, head in enumerate(self.heads) if head.kind in PAIR_KINDS}
        if head_name is None and len(able) == 1:
            (head_name,) = able
        if head_name not in able:
            raise InputError(f"no head {head_name!r} ranks; those that can: {', '.join(able) or 'none'}")
        if not candidates:
            raise InputError("no candidates: give at least one to rank")
        number = able[head_name]
        head = self.heads[number]
        if self.reads_pairs:
            given = [Given(query, candidate) for candidate in candidates]
            outputs, read = self.outputs(given, strict, batch_tokens)
            scores = np.array([values[0] for values in outputs[number]], np.float64)
        else:
            given = [Given(query), *(Given(candidate) for candidate in candidates)]
            outputs, read = self.outputs(given, strict, batch_tokens)
            scores, read = likeness(head, outputs[number][0], np.stack(outputs[number][1:])), read[1:]
        return rank_answer(scores, [state.reading for state in read])


def featured(features: Features | None) -> bool:
    """Whether there is a feature to decide by where there is no text."""
    return any(value is not None for value in (features or {}).values())


def window_shares(logits: npt.NDArray[np.float32] | None, number: int) -> npt.NDArray[np.float32]:
    """What each of ``number`` windows counts for, fp32 ``[windows, 1]``, from logits of that shape or evenly."""
    if logits is None or number == 1:
        return np.full((number, 1), 1 / number, np.float32)
    shares = np.exp(logits - logits.max())
    found: npt.NDArray[np.float32] = shares / shares.sum()
    return found


def joined(
    values: Sequence[npt.NDArray[np.float32]],
    windows: Sequence[Window],
    shares: npt.NDArray[np.float32],
    head: HeadSpec,
) -> npt.NDArray[np.float32]:
    """The outputs of a head for a text, from those of its windows.

    Tags come from the window where a token stands farthest from an edge; all else is a weighted mean, and the mean of
    unit vectors is given unit length again.
    """
    if len(values) == 1:
        return values[0]
    if head.kind == "tags":
        return np.stack([values[number][place] for number, place in best_places(windows)])
    mean: npt.NDArray[np.float32] = (np.stack(values) * shares).sum(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-12) if head.size else mean


def likeness(
    head: HeadSpec, vector: npt.NDArray[np.float32], others: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Scores of unit vectors, fp32 ``[others, size]``, against one ``[size]``, as a head of that size weighs them."""
    # no matrix product: that of BLAS takes every core, and another order of the sum on each machine
    cosines = (others.astype(np.float64) * vector.astype(np.float64)).sum(axis=1)
    found: npt.NDArray[np.float64] = (cosines - head.centre) * head.spread
    return found


def _match(
    logit: npt.NDArray[np.float64], calibration: Calibration, reading: Reading, abstain_below: float | None
) -> MatchAnswer:
    return match_answer(float(sigmoid(logit / calibration.temperature)[0]), reading, abstain_below)


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
    if head.kind == "match":
        return _match(outputs.astype(np.float64), calibration, reading, abstain_below)
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
