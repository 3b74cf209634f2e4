"""What ``bundle.json`` says: typed, checked key by key when read, and checked the same way before it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from julia1.bundle._fields import (
    Place,
    array,
    integer,
    mapping,
    number,
    one_of,
    record,
    refuse_unknown,
    text,
)
from julia1.bundle.encoding import ENCODINGS, EncodingSettings
from julia1.bundle.files import inside, is_lfs_pointer, path_problem, reason
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.errors import BundleError
from julia1.strict_json import strict_json

FORMAT_VERSION = 1
MANIFEST_FILE = "bundle.json"
CARD_FILE = "card.md"
KINDS = tuple(ENCODINGS)
LEAST_TEMPERATURE = 0.05
QUESTION_TYPES = ("choice", "yesno", "score")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a model and a variant may be called."""

_MOST_BYTES = 16 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TOP = Place(MANIFEST_FILE)


@dataclass(frozen=True)
class FileEntry:
    """One file of a bundle.

    Attributes:
        path: relative to the bundle's folder, with ``/`` between folders.
        sha256: 64 lower-case hexadecimal digits.
        bytes: size.
    """

    path: str
    sha256: str
    bytes: int

    @classmethod
    def from_dict(cls, data: object, place: Place = _TOP) -> FileEntry:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        fields = record(data, place, ("path", "sha256", "bytes"))
        path = text(fields["path"], place.key("path"))
        problem = path_problem(path)
        if problem:
            raise BundleError(f"{place.key('path')}: the path {path!r} {problem}")
        if path.casefold() == MANIFEST_FILE:
            raise place.key("path").wrong(f"a file other than {MANIFEST_FILE}, which cannot hold its own hash", path)
        sha256 = text(fields["sha256"], place.key("sha256"))
        if not _SHA256.fullmatch(sha256):
            raise place.key("sha256").wrong("64 lower-case hexadecimal digits", sha256)
        return cls(path, sha256, integer(fields["bytes"], place.key("bytes"), 0))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        return asdict(self)


@dataclass(frozen=True)
class Calibration:
    """The temperature of one question type.

    Attributes:
        temperature: what logits are divided by; above 0.
        per_log_options: how much the temperature grows with the natural logarithm of the number of options.
        least: the temperature never falls below this.
    """

    temperature: float
    per_log_options: float = 0.0
    least: float = LEAST_TEMPERATURE

    @classmethod
    def from_dict(cls, data: object, place: Place = _TOP) -> Calibration:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        fields = record(data, place, ("temperature",), ("per_log_options", "least"))
        temperature = number(fields["temperature"], place.key("temperature"))
        if temperature <= 0:
            raise place.key("temperature").wrong("a number above 0", temperature)
        least = number(fields.get("least", LEAST_TEMPERATURE), place.key("least"))
        if least <= 0:
            raise place.key("least").wrong("a number above 0", least)
        return cls(temperature, number(fields.get("per_log_options", 0.0), place.key("per_log_options")), least)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        numbers = {"temperature": self.temperature, "per_log_options": self.per_log_options}
        return numbers if self.least == LEAST_TEMPERATURE else {**numbers, "least": self.least}


@dataclass(frozen=True)
class Variant:
    """One form of the model that an engine can run.

    Attributes:
        name: unique in the bundle.
        engine: which engine runs it, such as ``onnxruntime``.
        precision: of its weights, such as ``fp32`` or ``int8``.
        files: what it needs; the first is the one the engine opens. Variants may share files.
        requires: for each architecture it is made for, the CPU features it needs; empty when it runs anywhere.
        measured: figures, in any JSON form.
    """

    name: str
    engine: str
    precision: str
    files: tuple[FileEntry, ...]
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of all its files together."""
        return sum(entry.bytes for entry in self.files)

    @classmethod
    def from_dict(cls, data: object, place: Place = _TOP) -> Variant:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        fields = record(data, place, ("name", "engine", "precision", "files", "requires"), ("measured",))
        needs = place.key("requires")
        return cls(
            name=_name(fields["name"], place.key("name")),
            engine=text(fields["engine"], place.key("engine")),
            precision=text(fields["precision"], place.key("precision")),
            files=_entries(fields["files"], place.key("files")),
            requires={
                architecture: tuple(text(item, at) for item, at in array(features, needs.key(architecture)))
                for architecture, features in mapping(fields["requires"], needs).items()
            },
            measured=mapping(fields.get("measured", {}), place.key("measured")),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        return {
            "name": self.name,
            "engine": self.engine,
            "precision": self.precision,
            "files": [entry.to_dict() for entry in self.files],
            "requires": {architecture: list(features) for architecture, features in self.requires.items()},
            "measured": dict(self.measured),
        }


@dataclass(frozen=True)
class Manifest:
    """All that ``bundle.json`` says.

    Attributes:
        name: letters, digits, ``.``, ``_`` and ``-``.
        version: of the model, such as ``2026.11.30``.
        kind: what the model answers, one of ``KINDS``; ``open``: any question, its options given with it;
            ``fixed``: the questions of its heads.
        calibration: by question type (``QUESTION_TYPES``); of a fixed model by the name of the head.
        variants: at least one, unless there is a checkpoint.
        checkpoint: what training goes on from; None when the model was never meant to be. A deployment may leave these
            files out.
        heads: of a fixed model.
        features: structured features that a fixed model takes.
        card: ``card.md``; None has ``BundleWriter.finish`` write one.
        provenance: licences, data, seeds, hyper-parameters, versions, in any JSON form; ``julia1.bundle.card`` lists
            the keys that a card shows.
    """

    name: str
    version: str
    kind: str
    encoding: EncodingSettings
    tokenizer: FileEntry
    calibration: Mapping[str, Calibration]
    variants: tuple[Variant, ...]
    checkpoint: tuple[FileEntry, ...] | None = None
    card: FileEntry | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    heads: tuple[HeadSpec, ...] = ()
    features: FeatureSpec = field(default_factory=FeatureSpec)
    format_version: int = FORMAT_VERSION

    def required_files(self) -> tuple[FileEntry, ...]:
        """Every file that must be there, each once: all but the checkpoint."""
        entries = [self.tokenizer, *(entry for variant in self.variants for entry in variant.files)]
        if self.card is not None:
            entries.append(self.card)
        return tuple(dict.fromkeys(entries))

    def all_files(self) -> tuple[FileEntry, ...]:
        """Every file that the manifest names, each once."""
        return tuple(dict.fromkeys((*self.required_files(), *(self.checkpoint or ()))))

    def compares(self) -> bool:
        """Whether it answers about a second text too."""
        return self.encoding.type == "pair" or any(head.size for head in self.heads)

    @classmethod
    def from_dict(cls, data: object, place: Place = _TOP) -> Manifest:
        """Read plain data.

        Raises:
            BundleError: naming the file, the key and what was expected, or that a newer julia1 is needed.
        """
        _check_format(mapping(data, place), place)
        required = ("format_version", "name", "version", "kind", "encoding", "tokenizer", "calibration", "variants")
        fields = record(data, place, required, ("checkpoint", "card", "provenance", "heads", "features"))
        temperatures = mapping(fields["calibration"], place.key("calibration"))
        heads = tuple(HeadSpec.from_dict(item, at) for item, at in array(fields.get("heads", []), place.key("heads")))
        known = [head.name for head in heads] if fields["kind"] == "fixed" else QUESTION_TYPES
        refuse_unknown(temperatures, known, place.key("calibration"))
        checkpoint, card = fields.get("checkpoint"), fields.get("card")
        if checkpoint is not None:
            within = record(checkpoint, place.key("checkpoint"), ("files",))
            checkpoint = _entries(within["files"], place.key("checkpoint").key("files"))
        manifest = cls(
            name=_name(fields["name"], place.key("name")),
            version=text(fields["version"], place.key("version")),
            kind=one_of(KINDS, fields["kind"], place.key("kind")),
            encoding=EncodingSettings.from_dict(fields["encoding"], place.key("encoding")),
            tokenizer=FileEntry.from_dict(fields["tokenizer"], place.key("tokenizer")),
            calibration={
                name: Calibration.from_dict(value, place.key("calibration").key(name))
                for name, value in temperatures.items()
            },
            variants=tuple(
                Variant.from_dict(item, at) for item, at in array(fields["variants"], place.key("variants"))
            ),
            checkpoint=checkpoint,
            card=None if card is None else FileEntry.from_dict(card, place.key("card")),
            provenance=mapping(fields.get("provenance", {}), place.key("provenance")),
            heads=heads,
            features=FeatureSpec.from_dict(fields.get("features", {}), place.key("features")),
        )
        manifest._check_whole(place)
        return manifest

    @classmethod
    def from_json(cls, source: str, file: str = MANIFEST_FILE) -> Manifest:
        """Read JSON text; raises ``BundleError``, naming ``file``."""
        try:
            data = strict_json(source)
        except (ValueError, RecursionError) as error:
            raise BundleError(f"{file} is not JSON, or is truncated: {error}") from None
        return cls.from_dict(data, Place(file))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        checkpoint = None if self.checkpoint is None else {"files": [entry.to_dict() for entry in self.checkpoint]}
        fixed = {"heads": [head.to_dict() for head in self.heads], "features": self.features.to_dict()}
        return {
            "format_version": self.format_version,
            "name": self.name,
            "version": self.version,
            "kind": self.kind,
            **(fixed if self.kind == "fixed" else {}),
            "encoding": self.encoding.to_dict(),
            "tokenizer": self.tokenizer.to_dict(),
            "calibration": {name: value.to_dict() for name, value in self.calibration.items()},
            "variants": [variant.to_dict() for variant in self.variants],
            "checkpoint": checkpoint,
            "card": None if self.card is None else self.card.to_dict(),
            "provenance": dict(self.provenance),
        }

    def to_json(self) -> str:
        """JSON text, checked by reading it back.

        Raises:
            BundleError: a value is out of its range, or cannot be written as JSON.
        """
        try:
            written = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
            written.encode("utf-8")
        except (TypeError, ValueError, RecursionError) as error:
            raise BundleError(f"{MANIFEST_FILE}: cannot be written as JSON: {error}") from None
        Manifest.from_json(written)
        return written

    def _check_whole(self, place: Place) -> None:
        """What no key can tell alone."""
        if self.encoding.type not in ENCODINGS[self.kind]:
            raise (
                place.key("encoding")
                .key("type")
                .wrong(f"{' or '.join(ENCODINGS[self.kind])} for kind {self.kind}", self.encoding.type)
            )
        if bool(self.heads) != (self.kind == "fixed"):
            raise place.key("heads").wrong("at least one head" if self.kind == "fixed" else "none for kind open", [])
        if len({head.name for head in self.heads}) < len(self.heads):
            raise place.key("heads").wrong("names that are all different", [head.name for head in self.heads])
        if not self.variants and self.checkpoint is None:
            raise place.key("variants").wrong("at least one variant, or a checkpoint", [])
        names: set[str] = set()
        for index, variant in enumerate(self.variants):
            if variant.name in names:
                raise (
                    place.key("variants")
                    .item(index)
                    .key("name")
                    .wrong("a name that no other variant has", variant.name)
                )
            names.add(variant.name)
        # Two paths that differ only in case are one file on some systems.
        by_path: dict[str, FileEntry] = {}
        for entry in self.all_files():
            other = by_path.setdefault(entry.path.casefold(), entry)
            if other != entry:
                raise BundleError(
                    f"{place}: {entry.path!r} is described twice and differently: give one path, hash and size"
                )


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's ``bundle.json``; raises ``BundleError`` when it is missing, damaged, unsafe or newer."""
    place = inside(folder, MANIFEST_FILE)
    try:
        if not place.is_file():
            raise BundleError(f"{folder} is not a bundle: it has no {MANIFEST_FILE}")
        if is_lfs_pointer(place):
            raise BundleError(
                f"{place} is a git-LFS pointer, not the file itself: run  git lfs pull  where it came from"
            )
        size = place.stat().st_size
        if size > _MOST_BYTES:
            raise BundleError(f"{place} has {size:,} bytes: at most {_MOST_BYTES:,} are read")
        source = place.read_text(encoding="utf-8")
    except OSError as error:
        raise BundleError(f"cannot read {place}: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise BundleError(f"{place} is not JSON: it is not UTF-8 at byte {error.start:,}") from None
    return Manifest.from_json(source, str(place))


def _check_format(fields: Mapping[str, Any], place: Place) -> None:
    if "format_version" not in fields:
        raise BundleError(f"{place}: missing key 'format_version'; this is not a bundle of julia1")
    version = integer(fields["format_version"], place.key("format_version"), 1)
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{place}: format_version is {version} and this julia1 reads up to {FORMAT_VERSION}: the bundle was "
            "written by a newer julia1, upgrade with  pip install --upgrade julia1"
        )


def _entries(data: object, place: Place) -> tuple[FileEntry, ...]:
    entries = tuple(FileEntry.from_dict(item, at) for item, at in array(data, place))
    if not entries:
        raise place.wrong("at least one file", data)
    return entries


def _name(data: object, place: Place) -> str:
    if not isinstance(data, str) or not NAME.fullmatch(data):
        raise place.wrong("a name of up to 100 letters, digits, '.', '_' and '-'", data)
    return data
