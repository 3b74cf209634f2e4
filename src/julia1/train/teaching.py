"""Teachers: what a larger model makes of the training rows, for a smaller one to learn from (Hinton et al. 2015)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from julia1.bundle import Bundle, find_bundle
from julia1.bundle.heads import HeadSpec
from julia1.errors import InputError
from julia1.questions import Choice
from julia1.runtime.decider import Decider, load
from julia1.train.data.rows import DataRow
from julia1.train.items import Item
from julia1.train.start import HUB_ID, fetched, start_from_bundle

TEACHABLE = ("choice", "labels", "yesno", "score")
BATCH = 32
BATCH_TOKENS = 4096

Logits = dict[str, list[npt.NDArray[np.float32]]]
"""By head, for each row: fp32 ``[outputs]``."""
Vectors = list[npt.NDArray[np.float32]]
"""For each row: fp32 ``[width]``."""


class Teacher(Protocol):
    """Gives logits for heads that it knows.

    Attributes:
        name: what a card calls it.
    """

    name: str

    def logits(self, rows: Sequence[DataRow], specs: Sequence[HeadSpec]) -> Logits:
        """For those of the heads that it can answer; may be none."""
        ...

    def vectors(self, rows: Sequence[DataRow]) -> Vectors:
        """The mean of the last hidden states of each text.

        Raises:
            InputError: it has no hidden states to show.
        """
        ...


def find_teacher(place: str | Path, registry: Path | None = None) -> Teacher:
    """A bundle, a folder with a Hugging Face classifier, or ``owner/model`` on the hub, looked for in this order.

    NAME@VERSION is of the registry in the folder ``registry``, or of the default one.

    Raises:
        InputError: a folder that is no classifier, or a hub model that cannot be had.
        BundleError: a bundle that cannot be read.
    """
    path = Path(place)
    if path.is_dir() and (path / "config.json").is_file():
        return Remembered(ClassifierTeacher(path, path.resolve().name))
    if path.exists() or not HUB_ID.fullmatch(str(place)):
        path = find_bundle(place, registry)
        return Remembered(BundleTeacher(load(path, warm_up=False), path))
    return Remembered(ClassifierTeacher(fetched(str(place)), str(place)))


class Remembered:
    """A teacher that is asked once about the same rows: a search trains on them many times."""

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher
        self.name = teacher.name
        self._last: tuple[object, Logits] | None = None
        self._last_vectors: tuple[object, Vectors] | None = None

    def logits(self, rows: Sequence[DataRow], specs: Sequence[HeadSpec]) -> Logits:
        """As ``Teacher``."""
        key = (_key(rows), [(spec.name, spec.kind, spec.labels) for spec in specs])
        if self._last is None or self._last[0] != key:
            self._last = key, self._teacher.logits(rows, specs)
        return self._last[1]

    def vectors(self, rows: Sequence[DataRow]) -> Vectors:
        """As ``Teacher``."""
        key = _key(rows)
        if self._last_vectors is None or self._last_vectors[0] != key:
            self._last_vectors = key, self._teacher.vectors(rows)
        return self._last_vectors[1]


def _key(rows: Sequence[DataRow]) -> object:
    return [(row.place, row.text, row.second, tuple(row.features.items())) for row in rows]


class BundleTeacher:
    """A julia1 bundle. One with fixed heads teaches heads of its names and labels; an open model any choice."""

    def __init__(self, decider: Decider, path: Path) -> None:
        self._decider, self._path = decider, path
        self.name = f"{decider.manifest.name} {decider.manifest.version}"

    def logits(self, rows: Sequence[DataRow], specs: Sequence[HeadSpec]) -> Logits:
        """As ``Teacher``; an open model is asked which label fits, without a question."""
        if self._decider.manifest.kind == "open":
            return self._open(rows, specs)
        own = {head.name: head for head in self._decider.manifest.heads}
        taught = [s for s in specs if s.name in own and _alike(own[s.name], s)]
        if not taught:
            return {}
        known = {*self._decider.manifest.features.numbers, *self._decider.manifest.features.categories}
        features = [{name: value for name, value in row.features.items() if name in known} for row in rows]
        seconds = None
        if self._decider.manifest.encoding.type == "pair":
            seconds = [row.second for row in rows]
        elif rows[0].second:
            raise InputError(f"{self.name} reads one text, the rows have two: it cannot teach")
        found = self._decider.head_logits([row.text for row in rows], features, seconds)
        return {s.name: [_in_order(values, own[s.name].labels, s.labels) for values in found[s.name]] for s in taught}

    def vectors(self, rows: Sequence[DataRow]) -> Vectors:
        """As ``Teacher``; read from the bundle's checkpoint."""
        from julia1.train.vectors import text_vectors

        start = start_from_bundle(Bundle.open(self._path))
        return list(text_vectors(start.load(), start.tokenizer, [row.text for row in rows]).numpy())

    def _open(self, rows: Sequence[DataRow], specs: Sequence[HeadSpec]) -> Logits:
        taught = [spec for spec in specs if spec.kind == "choice"]
        if not taught:
            return {}
        if rows[0].second:
            raise InputError(f"{self.name} reads one text, the rows have two: it cannot teach")
        questions = {spec.name: Choice(None, list(spec.labels)) for spec in taught}
        found = self._decider.logits([(row.text, questions) for row in rows])
        return {spec.name: [of_row[number] for of_row in found] for number, spec in enumerate(taught)}


class ClassifierTeacher:
    """A Hugging Face model for sequence classification; it teaches choice heads whose labels are its own."""

    def __init__(self, folder: Path, name: str) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._model: Any = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} is no classifier that can teach: {str(error).splitlines()[0]}") from None
        if self._tokenizer.pad_token_id is None:
            raise InputError(
                f"{folder} has a tokenizer without a padding piece: name one in its special_tokens_map.json"
            )
        self.name = name
        names: Mapping[Any, str] = self._model.config.id2label
        self._labels = tuple(names[key] for key in sorted(names, key=int))
        # RoBERTa's positions begin after its padding id
        positions = int(getattr(self._model.config, "max_position_embeddings", 514)) - 2
        self._most = min(int(self._tokenizer.model_max_length), positions)

    def logits(self, rows: Sequence[DataRow], specs: Sequence[HeadSpec]) -> Logits:
        """As ``Teacher``."""
        taught = [spec for spec in specs if spec.kind == "choice" and set(spec.labels) == set(self._labels)]
        if not taught:
            return {}
        found = [values for output, _ in self._read(rows) for values in output.logits.float().numpy()]
        return {spec.name: [_in_order(values, self._labels, spec.labels) for values in found] for spec in taught}

    def vectors(self, rows: Sequence[DataRow]) -> Vectors:
        """As ``Teacher``."""
        found: Vectors = []
        for output, mask in self._read(rows):
            states, inside = output.hidden_states[-1].float(), mask.unsqueeze(-1).float()
            found += list(((states * inside).sum(1) / inside.sum(1)).numpy())
        return found

    def _read(self, rows: Sequence[DataRow]) -> Iterator[tuple[Any, Any]]:
        """Outputs and attention mask of each batch; of rows with two texts both are read."""
        import torch

        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            texts = [row.text for row in some], [row.second for row in some] if some[0].second else None
            feeds = self._tokenizer(*texts, return_tensors="pt", padding=True, truncation=True, max_length=self._most)
            with torch.inference_mode():
                yield self._model(**feeds, output_hidden_states=True), feeds["attention_mask"]


def taught(
    items: Sequence[Item], rows: Sequence[DataRow], specs: Sequence[HeadSpec], teacher: Teacher, *, hidden: bool = False
) -> list[Item]:
    """Items with the teacher's logits, and with its vectors of their texts if hidden states are learned too.

    Rows without a text, which it could not read, are left as they are.

    Raises:
        InputError: the teacher knows none of the heads.
    """
    read = [number for number, row in enumerate(rows) if row.text.strip()]
    found = teacher.logits([rows[number] for number in read], [spec for spec in specs if spec.kind in TEACHABLE])
    if not found:
        heads = ", ".join(f"{spec.name} ({', '.join(spec.labels[:4]) or spec.kind})" for spec in specs)
        raise InputError(f"the teacher answers none of these heads with the same labels: {heads}")
    texts = [rows[number] for number in read]
    vectors: Sequence[npt.NDArray[np.float32] | None] = teacher.vectors(texts) if hidden else [None] * len(read)
    learned = list(items)
    for place, number in enumerate(read):
        logits = {name: values[place] for name, values in found.items()}
        learned[number] = replace(items[number], teacher=logits, teacher_vector=vectors[place])
    return learned


def _alike(own: HeadSpec, other: HeadSpec) -> bool:
    ordered = own.kind in ("score", "yesno")
    same = own.labels == other.labels if ordered else set(own.labels) == set(other.labels)
    return own.kind == other.kind and same


def _in_order(values: npt.NDArray[np.float32], labels: Sequence[str], wanted: Sequence[str]) -> npt.NDArray[np.float32]:
    places = {label: number for number, label in enumerate(labels)}
    return values[[places[label] for label in wanted]]
