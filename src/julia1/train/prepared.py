"""Rows as a model takes them, made once for all trainings that read them alike."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.train.data.rows import find_heads
from julia1.train.guarantee import halves
from julia1.train.items import Item, feature_spec, head_specs, make_items
from julia1.train.pairing import reads_pairs
from julia1.train.parts import Parts
from julia1.train.recipe import FineTuning
from julia1.train.start import Start
from julia1.train.teaching import Teacher, taught

READING = ("max_tokens", "windows", "overlap", "pairing", "level_spread", "max_error", "teacher_hidden")
"""The hyper-parameters that items depend on; a test holds that no other is read when they are made."""
KEPT = 4
"""Ways of reading whose items are kept: a search over many would fill the memory with them."""


@dataclass(frozen=True)
class Prepared:
    """Heads, features and items of the rows.

    Attributes:
        specs, features: of the model.
        pair: two texts are read in one row.
        train, validation, held, test: the rows as the model takes them; those held back are for a bound on the error.
    """

    specs: list[HeadSpec]
    features: FeatureSpec
    pair: bool
    train: list[Item]
    validation: list[Item]
    held: list[Item]
    test: list[Item]

    @property
    def cut(self) -> int:
        """Rows of all parts that are longer than the model reads."""
        return sum(item.cut for part in (self.train, self.validation, self.held, self.test) for item in part)

    @property
    def number(self) -> int:
        """Rows of all parts."""
        return len(self.train) + len(self.validation) + len(self.held) + len(self.test)


class PreparedRows:
    """Makes items of some parts, and keeps them for settings that read rows in the same way.

    Args:
        parts: rows.
        start: whose tokenizer reads them.
        teacher: what it makes of the training rows is put into their items.
    """

    def __init__(self, parts: Parts, start: Start, teacher: Teacher | None = None) -> None:
        self._parts, self._start, self._teacher = parts, start, teacher
        self._kept: OrderedDict[tuple[object, ...], Prepared] = OrderedDict()

    def of(self, settings: FineTuning) -> Prepared:
        """The items for these settings.

        Raises:
            InputError: a bad row; rows of all parts are looked at, so that one is told now and not after hours.
        """
        key = tuple(getattr(settings, name) for name in READING)
        if settings.max_error is not None:
            key += (settings.seed,)  # which rows are held back
        if key not in self._kept:
            self._kept[key] = self._make(settings)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _make(self, settings: FineTuning) -> Prepared:
        parts, tokenizer = self._parts, self._start.tokenizer
        pair = reads_pairs(parts.train, settings)
        size = 0 if pair else int(self._start.config["hidden_size"])
        specs = head_specs(find_heads(parts.train), parts.train, size)
        features = feature_spec(parts.train)
        train, validation, held, test = (
            make_items(rows, specs, tokenizer, settings, features, pair)
            for rows in (parts.train, *halves(parts.validation, settings), parts.test)
        )
        if self._teacher is not None:
            train = taught(train, parts.train, specs, self._teacher, hidden=settings.teacher_hidden > 0)
        return Prepared(specs, features, pair, train, validation, held, test)
