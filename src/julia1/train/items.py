"""Labelled rows as a model with fixed heads takes them: heads, features, targets and batches."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from julia1.bundle.heads import PAIR_KINDS, FeatureSpec, HeadSpec
from julia1.errors import InputError
from julia1.runtime.batches import padded_batches
from julia1.text.states import framed, framed_pair, pad_rows
from julia1.text.tags import Offsets, TextSpan, tags_of
from julia1.text.tokenizer import TextTokenizer
from julia1.text.windows import Window, read_tokens, windows_of
from julia1.train.data.pairs import Best, Match
from julia1.train.data.rows import Answer, DataRow, Head, is_number, labels_of
from julia1.train.data.spans import Spans
from julia1.train.recipe import FineTuning

if TYPE_CHECKING:
    from torch import Tensor

Outputs = dict[str, list[npt.NDArray[np.float32]]]
"""What a model gives, by head, for each item: ``[outputs]``, of a tags head ``[tokens, outputs]``, of a head that reads
texts apart ``[1 + others, size]``."""
Target = npt.NDArray[np.float32] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Item:
    """A row as the model takes it.

    Attributes:
        ids: piece ids with [CLS] and [SEP].
        targets: by head: probabilities of the labels, 0 or 1 for each of several labels, or one number, fp32; for tags,
            the tag of each token without [CLS] and [SEP], int64.
        numbers, categories: features.
        text, offsets, spans: for tags: the text, the characters of each token, and the spans to find by head.
        windows: the parts in which the text is read, as ranges of its tokens; ``ids`` is the first of them.
        more: piece ids of the further ones.
        teacher: by head, the logits that a teacher gives for this item.
        teacher_vector: the teacher's vector of the text, fp32 ``[its width]``, when that is learned too.
        others: piece ids of the texts that this one is compared with, read apart: the other of a pair, or candidates.
        cut: a text has more tokens than are read.
    """

    ids: list[int]
    targets: Mapping[str, Target]
    numbers: tuple[float, ...] = ()
    categories: tuple[int, ...] = ()
    text: str = ""
    offsets: Offsets = ()
    spans: Mapping[str, Sequence[TextSpan]] = field(default_factory=dict)
    others: Sequence[list[int]] = ()
    windows: Sequence[Window] = ((0, 0),)
    more: Sequence[list[int]] = ()
    teacher: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    teacher_vector: npt.NDArray[np.float32] | None = None
    cut: bool = False

    @property
    def padded_tokens(self) -> int:
        """What the item takes in a batch: its longest row, times how many there are."""
        rows = [self.ids, *self.more, *self.others]
        return max(map(len, rows)) * len(rows)


def head_specs(heads: Mapping[str, Head], rows: Sequence[DataRow], size: int = 0) -> list[HeadSpec]:
    """The heads of a model for these questions; a score with few distinct values gets levels.

    Args:
        heads, rows: what is asked, and the training rows.
        size: of the vector of a text, for match and rank heads that read texts apart; 0 to read a pair in one row.
    """
    specs = []
    for head in heads.values():
        if head.kind == "yesno":
            specs.append(HeadSpec(head.name, "yesno", ("no", "yes")))
        elif head.kind == "score":
            values = np.array([float(row.answers[head.name]) for row in rows if head.name in row.answers])  # type: ignore[arg-type]
            if is_number(head.name, rows):
                spread = float(values.std()) or 1.0
                specs.append(HeadSpec(head.name, "value", centre=float(values.mean()), spread=spread))
            else:
                levels = tuple(f"{level:.15g}" for level in sorted(set(values.tolist())))
                specs.append(HeadSpec(head.name, "score", levels))
        else:
            kind = "choice" if head.kind == "soft" else head.kind
            specs.append(HeadSpec(head.name, kind, head.labels, size=size if kind in PAIR_KINDS else 0))
    return specs


def feature_spec(rows: Sequence[DataRow], least: int = 2) -> FeatureSpec:
    """Numbers with their statistics, and categories with the values that at least ``least`` rows have."""
    numbers: dict[str, tuple[float, float]] = {}
    categories: dict[str, tuple[str, ...]] = {}
    for name in rows[0].features if rows else ():
        values = [row.features[name] for row in rows if row.features[name] is not None]
        if not values:
            raise InputError(f"no training row has a value for the feature {name!r}: leave it out")
        kinds = {type(value) for value in values}
        if len(kinds) > 1:
            first = {type(row.features[name]): row.place for row in reversed(rows) if row.features[name] is not None}
            raise InputError(
                f"the feature {name!r} is a number at {first[float]} and a text at {first[str]}: give it one type"
            )
        if kinds == {float}:
            found = np.array(values, dtype=np.float64)
            numbers[name] = float(found.mean()), float(found.std()) or 1.0
        else:
            counts = Counter(map(str, values))
            categories[name] = tuple(sorted(value for value, number in counts.items() if number >= least))
    return FeatureSpec(numbers, categories)


def make_items(
    rows: Sequence[DataRow],
    specs: Sequence[HeadSpec],
    tokenizer: TextTokenizer,
    settings: FineTuning,
    features: FeatureSpec | None = None,
    pair: bool = False,
) -> list[Item]:
    """Tokenize rows and turn their answers into targets.

    Args:
        rows, specs: what to make targets of, for which heads.
        tokenizer: of the model.
        settings: how many tokens are read.
        features: structured features of the model.
        pair: read a row's second text in the same row of the encoder.

    Raises:
        InputError: a row has a label that its head does not know, or a feature of another type than in training.
    """
    room = settings.max_tokens - 2
    features = features or FeatureSpec()
    places = {
        name: {value: i for i, value in enumerate(values, start=1)} for name, values in features.categories.items()
    }
    tagging = [spec for spec in specs if spec.kind == "tags"]
    texts = [row.text for row in rows]
    pieces = tokenizer.ids_and_offsets(texts) if tagging else [(ids, []) for ids in tokenizer.ids(texts)]
    items = []
    apart = any(spec.size for spec in specs)
    seconds = tokenizer.ids([row.second for row in rows]) if pair else [[] for _ in rows]
    others_of = [tokenizer.ids([t for t in (row.second, *row.candidates) if t]) if apart else [] for row in rows]
    for row, (ids, offsets), second, others in zip(rows, pieces, seconds, others_of, strict=True):
        windows = windows_of(len(ids), room, settings.overlap, settings.windows)
        places_read = offsets[: read_tokens(windows)]
        spans = {
            spec.name: text_spans(spec, row.answers[spec.name], row.place)
            for spec in tagging
            if spec.name in row.answers
        }
        targets: dict[str, Target] = {
            spec.name: np.array(tags_of(spans[spec.name], row.text, places_read), np.int64)
            if spec.kind == "tags"
            else target_of(spec, row.answers[spec.name], row.place, settings.level_spread)
            for spec in specs
            if spec.name in row.answers
        }
        numbers = tuple(_number(row, name) for name in features.numbers)
        categories = tuple(_category(row, name, known) for name, known in places.items())
        cut = len(ids) > read_tokens(windows) or any(len(other) > room for other in others)
        if pair:
            both, reading = framed_pair(tokenizer, ids, second, settings.max_tokens)
            first, *more = [both]
            cut = reading.truncated
        else:
            first, *more = (framed(tokenizer, ids[start:end], room + 2)[0] for start, end in windows)
        compared = [framed(tokenizer, other, room + 2)[0] for other in others]
        text = row.text if tagging else ""
        items.append(
            Item(first, targets, numbers, categories, text, places_read, spans, compared, windows, more, cut=cut)
        )
    return items


def text_spans(spec: HeadSpec, answer: Answer, place: str) -> list[TextSpan]:
    """Spans with the numbers of their labels; raises ``InputError`` for an unknown one."""
    assert isinstance(answer, Spans)
    return [TextSpan(start, end, _label_number(spec, label, place)) for start, end, label in answer.items]


def target_of(spec: HeadSpec, answer: Answer, place: str, level_spread: float) -> npt.NDArray[np.float32]:
    """What the head's outputs should be: fp32 ``[outputs]``."""
    if spec.kind == "value":
        return np.array([(float(answer) - spec.centre) / spec.spread], np.float32)  # type: ignore[arg-type]
    if isinstance(answer, Match):
        return np.array([answer.belongs], np.float32)
    if isinstance(answer, Best):
        return np.array([answer.number], np.float32)
    if spec.kind == "yesno":
        return np.array([not answer, bool(answer)], np.float32)
    if spec.kind == "score":
        values = np.array([float(label) for label in spec.labels])
        at = int(np.abs(values - float(answer)).argmin())  # type: ignore[arg-type]
        distance = np.arange(len(values)) - at
        bell = np.exp(-0.5 * (distance / level_spread) ** 2) if level_spread else (distance == 0).astype(float)
        level: npt.NDArray[np.float32] = (bell / bell.sum()).astype(np.float32)
        return level
    soft = isinstance(answer, Mapping)
    shares = dict(answer) if isinstance(answer, Mapping) else dict.fromkeys(labels_of(answer), 1.0)
    target = np.zeros(len(spec.labels), np.float32)
    for label, share in shares.items():
        target[_label_number(spec, label, place)] = share
    if soft and target.sum():
        target /= target.sum()
    return target


def window_rows(items: Sequence[Item]) -> list[list[int]]:
    """For each item, which rows of ``collate`` are its windows."""
    found, at = [[number] for number in range(len(items))], len(items)
    for rows, item in zip(found, items, strict=True):
        rows += range(at, at + len(item.more))
        at += len(item.more)
    return found


def by_item(outputs: npt.NDArray[np.float32], items: Sequence[Item]) -> list[npt.NDArray[np.float32]]:
    """Outputs of items, followed by those of what they are compared with, gathered by item: ``[1 + others, ...]``."""
    found, start = [], len(items)
    for number, item in enumerate(items):
        end = start + len(item.others)
        found.append(np.concatenate([outputs[number : number + 1], outputs[start:end]]))
        start = end
    return found


def _label_number(spec: HeadSpec, label: str, place: str) -> int:
    try:
        return _label_numbers(spec.labels)[label]
    except KeyError:
        raise InputError(f"{place}: the label {label!r} of {spec.name!r} is not among those that are trained") from None


@lru_cache(maxsize=8)
def _label_numbers(labels: tuple[str, ...]) -> dict[str, int]:
    return {label: number for number, label in enumerate(labels)}


def bucketed(items: Sequence[Item], settings: FineTuning, rng: random.Random | None) -> Iterator[list[int]]:
    """Indices in batches of like length; shuffled anew by ``rng``, in order of length without it.

    Rows are shuffled first and sorted within pools of many batches, so that a batch is neither always the same nor
    padded far.
    """
    lengths = [item.padded_tokens for item in items]
    order = list(range(len(items)))
    pool = len(items)
    if rng is not None:
        rng.shuffle(order)
        pool = settings.batch_rows * 50
    batches: list[list[int]] = []
    for start in range(0, len(order), max(1, pool)):
        longest_first = sorted(order[start : start + pool], key=lambda i: -lengths[i])
        batches += padded_batches(longest_first, lengths.__getitem__, settings.batch_tokens, settings.batch_rows)
    if rng is not None:
        rng.shuffle(batches)
    yield from batches


def collate(items: Sequence[Item], pad: int) -> dict[str, Tensor]:
    """A padded batch, as ``FixedModel`` takes it: the first windows of all items, then their further ones, then what
    they are compared with."""
    import torch

    more = [item for item in items for _ in item.more]
    others = [other for item in items for other in item.others]
    rows = [*(item.ids for item in items), *(window for item in items for window in item.more), *others]
    ids, mask = pad_rows(rows, pad)
    batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    if items[0].numbers or items[0].categories:
        numbers = [item.numbers for item in (*items, *more)] + [(math.nan,) * len(items[0].numbers)] * len(others)
        categories = [item.categories for item in (*items, *more)] + [(0,) * len(items[0].categories)] * len(others)
        batch["numbers"] = torch.tensor(numbers, dtype=torch.float32)
        batch["categories"] = torch.tensor(categories, dtype=torch.int64)
    return batch


def _number(row: DataRow, name: str) -> float:
    value = row.features.get(name)
    if isinstance(value, str):
        raise InputError(f"{row.place}: the feature {name!r} is {value!r}: in training it is a number")
    return math.nan if value is None else value


def _category(row: DataRow, name: str, known: Mapping[str, int]) -> int:
    value = row.features.get(name)
    if isinstance(value, float):
        raise InputError(f"{row.place}: the feature {name!r} is {value:g}: in training it is a text")
    return known.get(value, 0) if value is not None else 0
