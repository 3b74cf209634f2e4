"""How a bundle's text becomes tokens: typed, and checked when read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from julia1.bundle._fields import Place, integer, mapping, one_of, record

ENCODINGS = {"open": ("options",), "fixed": ("fixed", "pair")}
"""The encoding of each kind."""
AGGREGATIONS = ("mean", "attention")
_TOP = Place("bundle.json")


@dataclass(frozen=True)
class EncodingSettings:
    """How text becomes tokens; the numbers are those of ``julia1.text.options.Limits``.

    Attributes:
        type: the encoding, one of ``ENCODINGS``: ``fixed`` reads one text, ``pair`` two in one row.
        state_tokens: tokens that are read of a state, with the special ones around it.
        question_tokens, option_tokens: token budgets of the other parts; 0 in the fixed and pair encodings.
        pass_tokens: tokens in one row at most; 0 in the fixed and pair encodings.
        windows: parts in which a long text is read, at most, in the fixed encoding; 0 to cut it.
        overlap: tokens that two windows share.
        aggregation: how the outputs of windows become one, ``mean`` or ``attention``; '' without windows.
    """

    type: str
    state_tokens: int
    question_tokens: int = 0
    option_tokens: int = 0
    pass_tokens: int = 0
    windows: int = 0
    overlap: int = 0
    aggregation: str = ""

    @classmethod
    def from_dict(cls, data: object, place: Place = _TOP) -> EncodingSettings:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        least_of = {"state_tokens": 3, "question_tokens": 2, "option_tokens": 3, "pass_tokens": 1}
        kind = one_of(
            tuple(name for names in ENCODINGS.values() for name in names),
            mapping(data, place).get("type"),
            place.key("type"),
        )
        if kind in ENCODINGS["fixed"]:
            fields = record(data, place, ("type", "state_tokens"), ("windows", "overlap", "aggregation"))
            tokens = integer(fields["state_tokens"], place.key("state_tokens"), 3)
            if "windows" not in fields:
                return cls(kind, tokens)
            windows = integer(fields["windows"], place.key("windows"), 2)
            overlap = integer(fields.get("overlap", 0), place.key("overlap"), 0)
            if overlap >= tokens - 2:
                raise place.key("overlap").wrong(f"less than the {tokens - 2} tokens of a window", overlap)
            how = one_of(AGGREGATIONS, fields.get("aggregation"), place.key("aggregation"))
            return cls(kind, tokens, windows=windows, overlap=overlap, aggregation=how)
        fields = record(data, place, ("type", *least_of))
        state, question, option, whole = (integer(fields[name], place.key(name), n) for name, n in least_of.items())
        settings = cls(kind, state, question, option, whole)
        least = settings.state_tokens + settings.question_tokens + settings.option_tokens
        if settings.pass_tokens < least:
            expected = f"at least {least}, the sum of the state, question and option tokens"
            raise place.key("pass_tokens").wrong(expected, settings.pass_tokens)
        return settings

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        return {key: value for key, value in asdict(self).items() if value}
