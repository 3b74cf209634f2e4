"""Labelled rows as the inputs of an ONNX classifier: text through its tokenizer, or arrays as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.errors import InputError
from julia1.optimize.config import ModelFiles
from julia1.optimize.feeds import read_feeds
from julia1.optimize.graph import Arrays, run
from julia1.text.states import framed
from julia1.text.tokenizer import TextTokenizer

LABELS = "labels"
_IDS, _MASK, _TYPES = "input_ids", "attention_mask", "token_type_ids"


@dataclass(frozen=True)
class Rows:
    """What a model is run on, row by row and unpadded.

    Attributes:
        feeds: of each row, a batch of one.
        wanted: numbers of the right classes, int64 ``[rows]``; empty where rows have no labels.
        classes: names.
    """

    feeds: Sequence[Arrays]
    wanted: npt.NDArray[np.int64]
    classes: Sequence[str]


def read_labelled(model: ModelFiles, inputs: Sequence[str], data: Path, most: int | None, seed: int) -> Rows:
    """Rows with their classes.

    Args:
        model: whose tokenizer and labels count.
        inputs: names of the model's inputs.
        data: labelled rows, or an ``.npz`` file.
        most: at most so many, drawn at random.
        seed: of the draw.

    Raises:
        InputError: a file is missing or broken, a label is none of the model's, or the model takes other inputs.
    """
    rows = _from_arrays(model, inputs, data) if data.suffix == ".npz" else _from_text(model, inputs, data)
    if not len(rows.wanted):
        raise InputError(f"{data} has no labels: each row needs one, an .npz file the array {LABELS!r}")
    return _drawn(rows, most, seed)


def read_unlabelled(model: ModelFiles, inputs: Sequence[str], data: Path, most: int, seed: int) -> list[Arrays]:
    """What a model is run on; labels do not count. Raises ``InputError`` as ``read_labelled``."""
    labelled = data.suffix == ".npz"
    rows = _from_arrays(model, inputs, data) if labelled else _from_text(model, inputs, data, labelled=False)
    return list(_drawn(rows, most, seed).feeds)


def logits_of(session: Any, rows: Rows) -> npt.NDArray[np.float32]:
    """The first output for every row, fp32 ``[rows, classes]``.

    Raises:
        InputError: it is no row of logits, or has not as many as there are classes.
    """
    name = session.get_outputs()[0].name
    found = [np.asarray(run(session, [name], feeds)[0]) for feeds in rows.feeds]
    shape = found[0].shape
    if len(shape) != 2 or shape[0] != 1:
        raise InputError(
            f"the first output {name!r} has the shape {list(shape)} for one row: logits [1, classes] it must be"
        )
    if rows.classes and shape[1] != len(rows.classes):
        raise InputError(f"the model gives {shape[1]} logits, and {len(rows.classes)} labels are named")
    largest = int(rows.wanted.max(initial=0))
    if largest >= shape[1]:
        raise InputError(f"a row has the label {largest}, and the model gives {shape[1]} logits: labels go from 0")
    return np.concatenate(found).astype(np.float32)


def class_names(model: ModelFiles) -> list[str]:
    """The labels of a model in their order, empty where nobody names them."""
    if model.labels is not None:
        return list(model.labels)
    config = Path(model.input_path).parent / "config.json"
    try:
        data: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
        named = data.get("id2label") or {}
        heads = data.get("heads") or [{}]
        # of Hugging Face, or of julia1 export
        return [str(named[key]) for key in sorted(named, key=int)] or list(map(str, heads[0].get("labels") or []))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError, LookupError, TypeError) as error:
        raise InputError(f"{config} does not say the labels: {error}; name them in the key labels") from None


def _from_text(model: ModelFiles, inputs: Sequence[str], data: Path, labelled: bool = True) -> Rows:
    from julia1.train.data.rows import read_rows

    unknown = [name for name in inputs if name not in (_IDS, _MASK, _TYPES)]
    if unknown or _IDS not in inputs:
        raise InputError(
            f"the model takes {', '.join(inputs)}: a text gives {_IDS}, {_MASK} and {_TYPES}; give an .npz file with "
            "the arrays instead"
        )
    place = Path(model.tokenizer or Path(model.input_path).parent / "tokenizer.json")
    if not place.is_file():
        raise InputError(f"there is no {place}: name the model's tokenizer.json in the key tokenizer")
    tokenizer = TextTokenizer.from_file(place)
    read = read_rows([data], answered=labelled).rows
    feeds = []
    for ids in tokenizer.ids([row.text for row in read]):
        framed_ids, _ = framed(tokenizer, ids, model.max_tokens)
        row = np.array([framed_ids], np.int64)
        values = {_IDS: row, _MASK: np.ones_like(row), _TYPES: np.zeros_like(row)}
        feeds.append({name: values[name] for name in inputs})
    if not labelled:
        return Rows(feeds, np.zeros(0, np.int64), [])
    answers = [_label(row.answers, row.place) for row in read]
    classes = class_names(model) or sorted(set(answers))
    numbers = {name: number for number, name in enumerate(classes)}
    for labelled_row, answer in zip(read, answers, strict=True):
        if answer not in numbers:
            raise InputError(
                f"{labelled_row.place}: the label {answer!r} is none of the model's: {', '.join(classes[:10])}"
            )
    return Rows(feeds, np.array([numbers[answer] for answer in answers], np.int64), classes)


def _label(answers: Any, place: str) -> str:
    labels = [answer for answer in answers.values() if isinstance(answer, str)]
    if len(labels) != 1:
        raise InputError(f"{place}: the row has {len(labels)} labels: one is judged, in the field 'label'")
    return str(labels[0])


def _from_arrays(model: ModelFiles, inputs: Sequence[str], data: Path) -> Rows:
    arrays = read_feeds(data)
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise InputError(f"{data} has no array {missing[0]!r}: the model takes {', '.join(inputs)}")
    count = len(arrays[inputs[0]])
    uneven = next((name for name in (*inputs, LABELS) if name in arrays and len(arrays[name]) != count), None)
    if uneven is not None:
        raise InputError(f"{data}: {uneven} has {len(arrays[uneven])} rows, {inputs[0]} has {count}")
    wanted = np.asarray(arrays.get(LABELS, np.zeros(0)), np.int64)
    if len(wanted) and wanted.min() < 0:
        raise InputError(f"{data}: {LABELS} holds {wanted.min()}: numbers of classes, from 0")
    classes = class_names(model)
    classes = classes or [str(number) for number in range(int(wanted.max(initial=-1)) + 1)] if len(wanted) else classes
    feeds = [{name: arrays[name][i : i + 1] for name in inputs} for i in range(count)]
    return Rows(feeds, wanted, classes)


def _drawn(rows: Rows, most: int | None, seed: int) -> Rows:
    if most is None or most >= len(rows.feeds):
        return rows
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows.feeds))[:most])
    wanted = rows.wanted[chosen] if len(rows.wanted) else rows.wanted
    return Rows([rows.feeds[i] for i in chosen], wanted, rows.classes)
