"""Typed recipes: a YAML file filled into dataclasses, unknown keys refused by name."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from julia1.errors import InputError
from julia1.text.options import Limits

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """One labelled set in the mix.

    Attributes:
        set: folder name below the data folder.
        view: how rows become questions (a name in ``julia1.train.views.VIEWS``).
        weight: share of the drawn examples, relative to the other sources.
        splits: which files to read.
        areas: for ``area``: coarse name (with its description) to the label prefixes it covers.
        polarity: for ``sentiment``: label to ``positive``, ``negative`` or ``neutral``.
        names: other names of a label, drawn now and then in its place.
    """

    set: str
    view: str
    weight: float
    splits: list[str] = field(default_factory=lambda: ["train"])
    areas: dict[str, list[str]] = field(default_factory=dict)
    polarity: dict[str, str] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Vocabulary:
    """How the vocabulary is trimmed.

    Attributes:
        size: number of pieces kept.
        favoured: language to the number of its most frequent pieces that are kept for sure.
        texts: further ``set/split`` names whose texts (never labels) are counted, in every language.
    """

    size: int = 40_000
    favoured: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of the optimisation."""

    steps: int = 1500
    states_per_step: int = 64
    learning_rate: float = 1e-4
    head_learning_rate: float = 5e-4
    layer_decay: float = 0.95
    weight_decay: float = 0.01
    warmup: float = 0.05
    clip_norm: float = 1.0
    label_smoothing: float = 0.02
    state_tokens: int = 128
    pass_tokens: int = 384
    batch_tokens: int = 6144
    checkpoint_every: int = 100
    evaluate_every: int = 300
    threads: int = 2
    bf16: bool = True
    train_embeddings: bool = False


@dataclass(frozen=True)
class FineTuning:
    """Hyper-parameters of fine-tuning fixed heads.

    Attributes:
        epochs: at most; by default as many as make about 1,500 steps, 5 to 12.
        evaluate_every: the validation rows are read after each epoch, but not before so many steps have gone by.
        patience: training stops when the validation metric was not better so many times on end.
        batch_tokens: padded tokens of a batch at most; rows of like length go together.
        batch_rows: rows of a batch at most.
        accumulate: batches for each optimizer step.
        learning_rate, head_learning_rate: of the encoder's last layer, and of the heads.
        layer_decay: factor of the rate from each layer to the one below.
        warmup: share of the steps in which the rate rises; it then falls to zero.
        class_weights: weigh labels by the square root of how rare they are.
        pooling: parts of ``cls``, ``mean``, ``max`` and ``pooler`` joined by ``+``: what heads read of a text.
        level_spread: an ordinal target is a bell over the levels, so many levels wide; 0 for the level alone.
        token_dropout: share of the tokens of a text that are hidden from a step.
        feature_dropout: share of structured features that are hidden from a step.
        train_embeddings: train the word embeddings too.
        windows: parts in which a long text is read, at most; 1 to cut it after ``max_tokens``.
        overlap: tokens that two windows share.
        aggregation: how the outputs of windows become one: ``mean``, or ``attention``, weights that are learned.
        language_heads: heads of their own for each language with rows enough (field ``lang``), beside the shared ones.
        teacher_share: what a teacher counts for, beside the labels: 0 nothing, 1 all.
        teacher_temperature: what its logits and the model's are divided by: more shows more of what it thinks of the
            labels that it does not choose.
        teacher_hidden: what the teacher's likeness of each two texts of a batch counts for, beside all else: 0 nothing.
        pairing: how two texts are read: ``cross``, both in one row of the encoder, which sees more; ``towers``, each by
            itself, so that many can be compared fast; ``auto``, towers where there are candidates to rank, else cross.
        max_error: choose for each choice, yes/no, score and match head the confidence under which it abstains, so that
            at most this share of what it answers is wrong; half of the validation rows are held back for that.
        error_confidence: with what confidence.
    """

    epochs: int | None = None
    batch_rows: int = 32
    batch_tokens: int = 2048
    accumulate: int = 1
    learning_rate: float = 1e-4
    head_learning_rate: float = 1e-3
    layer_decay: float = 0.9
    weight_decay: float = 0.01
    warmup: float = 0.1
    clip_norm: float = 1.0
    dropout: float = 0.1
    token_dropout: float = 0.15
    feature_dropout: float = 0.1
    label_smoothing: float = 0.05
    pooling: str = "cls+mean+max"
    class_weights: bool = False
    level_spread: float = 0.5
    evaluate_every: int = 50
    patience: int = 2
    max_tokens: int = 256
    threads: int = 2
    bf16: bool = True
    train_embeddings: bool = False
    teacher_share: float = 0.5
    teacher_temperature: float = 2.0
    teacher_hidden: float = 0.0
    pairing: str = "auto"
    windows: int = 1
    overlap: int = 32
    aggregation: str = "mean"
    language_heads: bool = False
    max_error: float | None = None
    error_confidence: float = 0.95
    seed: int = 1


@dataclass(frozen=True)
class Recipe:
    """A whole recipe for an open-decision model.

    Attributes:
        name, description, license, base_model, limitations: what the bundle's card says of the model.
        held_out: ``set/split`` names whose texts (and translations) must not be trained on.
        held_out_languages: languages whose rows are left out of training, development and calibration.
        development: ``set/split`` names watched while training; never test splits.
        calibration: sources of validation rows on which temperatures are fitted.
        wordings: question wordings by view and language, see ``julia1.train.views``.
    """

    name: str
    sources: list[Source]
    wordings: dict[str, dict[str, list[str]]]
    description: str = ""
    license: str = "Apache-2.0"
    base_model: str = ""
    limitations: list[str] = field(default_factory=list)
    seed: int = 1
    layers: int | None = None
    held_out: list[str] = field(default_factory=list)
    held_out_languages: list[str] = field(default_factory=list)
    development: list[str] = field(default_factory=list)
    calibration: list[Source] = field(default_factory=list)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    limits: Limits = field(default_factory=Limits)
    training: Training = field(default_factory=Training)


def load_recipe(path: Path) -> Recipe:
    """Read a recipe; raises ``InputError`` naming the file and the key that is wrong."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the recipe {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from None
    return fill(Recipe, data, str(path))


def fill(kind: type[T], data: Any, where: str) -> T:
    """Fill dataclass ``kind`` from plain data, checking keys and types all the way down."""
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected keys and values, got {type(data).__name__}")
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, 1)
            hint = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(fields)}"
            raise InputError(f"{where}: unknown key {key!r}{hint}")
    missing = [
        name
        for name, f in fields.items()
        if name not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where}: missing {', '.join(missing)}")
    return kind(**{key: _value(hints[key], value, f"{where}: {key}") for key, value in data.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _value(next(a for a in args if a is not type(None)), value, where)
    if dataclasses.is_dataclass(hint):
        return fill(hint, value, where)  # type: ignore[arg-type]
    if origin is list:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list, got {value!r}")
        return [_value(args[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected keys and values, got {value!r}")
        return {str(k): _value(args[1], item, f"{where}.{k}") for k, item in value.items()}
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise InputError(f"{where}: expected {hint.__name__}, got {value!r}")
