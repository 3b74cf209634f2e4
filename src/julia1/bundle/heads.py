"""What a model with fixed heads answers, and which structured features it takes: typed, and checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from julia1.bundle._fields import Place, array, integer, mapping, number, record, text
from julia1.errors import BundleError
from julia1.text.tags import tag_count

HEAD_KINDS = ("choice", "labels", "yesno", "score", "value", "tags", "match", "rank")
PAIR_KINDS = ("match", "rank")
UNSURE_KINDS = ("choice", "labels", "yesno", "score", "tags", "match")
"""Heads whose answers have a confidence."""
_TOP = Place("bundle.json")


@dataclass(frozen=True)
class HeadSpec:
    """What one head answers.

    Attributes:
        name: the question's name.
        kind: ``choice`` (one of the labels), ``labels`` (any of them), ``yesno``, ``score`` (ordered levels),
            ``value`` (a number), ``tags`` (labelled spans of the text), ``match`` (whether two texts belong together)
            or ``rank`` (in which order texts fit another).
        labels: of a choice, labels or tags head; the levels of a score, lowest first; ``no`` and ``yes``; none for a
            value.
        thresholds: of a labels head: the probability from which each label is chosen; empty for one half each.
        centre, spread: of a value: its output is multiplied by the spread, then the centre is added. Of a match or rank
            head that reads texts apart: their cosine less the centre, times the spread, is the score.
        size: of a match or rank head that reads texts apart: numbers in the vector of a text; 0 for all others.
        deviation: of a value: root mean square of its errors on validation rows.
        abstain_below: answers whose confidence is under this abstain when the caller names no threshold; 0 for never.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    thresholds: tuple[float, ...] = ()
    centre: float = 0.0
    spread: float = 1.0
    deviation: float = 0.0
    size: int = 0
    abstain_below: float = 0.0

    @property
    def outputs(self) -> int:
        """Numbers that the head gives; of a tags head, for each token."""
        return tag_count(len(self.labels)) if self.kind == "tags" else self.size or max(1, len(self.labels))

    @classmethod
    def from_dict(cls, data: object, place: Place = _TOP) -> HeadSpec:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        numbers = ("centre", "spread", "deviation", "abstain_below")
        fields = record(data, place, ("name", "kind"), ("labels", "thresholds", "size", *numbers))
        kind = text(fields["kind"], place.key("kind"))
        if kind not in HEAD_KINDS:
            raise place.key("kind").wrong(f"one of {', '.join(HEAD_KINDS)} (a newer julia1 may know more)", kind)
        labels = tuple(text(item, at) for item, at in array(fields.get("labels", []), place.key("labels")))
        least = {"value": 0, "match": 0, "rank": 0, "labels": 1, "tags": 1}.get(kind, 2)
        if len(labels) < least or (not least and labels) or (kind == "yesno" and len(labels) != 2):
            raise place.key("labels").wrong(f"the labels of a {kind} head", list(labels))
        if len(set(labels)) < len(labels):
            raise place.key("labels").wrong("labels that are all different", list(labels))
        thresholds = tuple(
            number(item, at) for item, at in array(fields.get("thresholds", []), place.key("thresholds"))
        )
        if thresholds and len(thresholds) != len(labels):
            raise place.key("thresholds").wrong(f"one number a label, {len(labels)}", list(thresholds))
        found = {name: number(fields[name], place.key(name)) for name in numbers if name in fields}
        abstain = found.get("abstain_below", 0.0)
        if not 0 <= abstain <= 1:
            raise place.key("abstain_below").wrong("a confidence from 0 to 1", abstain)
        if abstain and kind not in UNSURE_KINDS:
            raise place.key("abstain_below").wrong(f"0 for a {kind} head, whose answers have no confidence", abstain)
        size = integer(fields.get("size", 0), place.key("size"), 0)
        if bool(size) != (kind == "rank") and kind != "match":
            raise place.key("size").wrong("a size for a rank head, and none for other kinds but match", size)
        return cls(text(fields["name"], place.key("name")), kind, labels, thresholds, size=size, **found)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        return {**asdict(self), "labels": list(self.labels), "thresholds": list(self.thresholds)}


@dataclass(frozen=True)
class FeatureSpec:
    """Structured features beside the text.

    Attributes:
        numbers: name to its mean and standard deviation in training.
        categories: name to the values known from training; any other value, and none, are the same to the model.
    """

    numbers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.numbers or self.categories)

    @property
    def names(self) -> tuple[str, ...]:
        """Of every feature, numbers first."""
        return (*self.numbers, *self.categories)

    @classmethod
    def from_dict(cls, data: object, place: Place = _TOP) -> FeatureSpec:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        fields = record(data, place, (), ("numbers", "categories"))
        numbers = {}
        for name, pair in mapping(fields.get("numbers", {}), place.key("numbers")).items():
            at = place.key("numbers").key(name)
            values = [number(item, where) for item, where in array(pair, at)]
            if len(values) != 2 or values[1] <= 0:
                raise at.wrong("a mean and a standard deviation above 0", pair)
            numbers[name] = (values[0], values[1])
        categories = {
            name: tuple(text(item, at) for item, at in array(values, place.key("categories").key(name)))
            for name, values in mapping(fields.get("categories", {}), place.key("categories")).items()
        }
        if both := set(numbers) & set(categories):
            raise BundleError(f"{place}: the feature {sorted(both)[0]!r} is both a number and a category")
        return cls(numbers, categories)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        return {
            "numbers": {name: list(pair) for name, pair in self.numbers.items()},
            "categories": {name: list(values) for name, values in self.categories.items()},
        }
