"""What is known of a training run: ``run.json`` beside a bundle in the registry, written from the bundle's manifest.

Of ``provenance`` it takes these keys, none of them needed:

    base_model, parent   what training started from; the parent is a bundle, as NAME@VERSION
    teacher              the model that was learned from
    data_sha256          by part (train, validation, test, all): hash of its rows
    rows                 by part: how many
    seed
    hyper_parameters     name to value
    score                figure on the validation rows that the model was chosen by
    metrics              by part, head and name of the figure; figures of a card stand in for them
    run                  when training was finished, the seconds that it took, the environment
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from julia1.bundle._fields import Place, integer, mapping, number, record, text
from julia1.bundle.files import reason
from julia1.bundle.manifest import Manifest
from julia1.errors import BundleError
from julia1.strict_json import strict_json

RUN_FILE = "run.json"
FORMAT_VERSION = 1
_ONCE = "run"
"""Key of ``provenance`` with what differs between two runs that went alike."""

Metrics = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Run:
    """A version in the registry, as ``run.json`` tells of it.

    Attributes:
        name, version, kind: of the bundle.
        bundle_sha256: SHA-256 of ``bundle.json``, which holds those of all other files.
        added: when it came into the registry, in UTC, as ISO 8601.
        base_model, parent: what training started from; the parent is a bundle, as NAME@VERSION.
        teacher: the model that was learned from.
        data_sha256: by part: hash of its rows.
        rows: by part: how many.
        seed: of split and training.
        hyper_parameters: name to value.
        score: figure on the validation rows that the model was chosen by.
        metrics: by part, head and name.
        run: ``finished`` (ISO 8601, UTC), ``seconds`` of training, ``environment``.
    """

    name: str
    version: str
    kind: str
    bundle_sha256: str
    added: str
    base_model: Any = None
    parent: Any = None
    teacher: Any = None
    data_sha256: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Any] = field(default_factory=dict)
    seed: Any = None
    hyper_parameters: Mapping[str, Any] = field(default_factory=dict)
    score: Any = None
    metrics: Metrics = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest, bundle_sha256: str, added: str) -> Run:
        """What a manifest says of its run. Provenance may have any form; what is not of the form above is left out."""
        known = manifest.provenance
        return cls(
            name=manifest.name,
            version=manifest.version,
            kind=manifest.kind,
            bundle_sha256=bundle_sha256,
            added=added,
            base_model=known.get("base_model"),
            parent=known.get("parent"),
            teacher=known.get("teacher"),
            data_sha256=_object(known.get("data_sha256")),
            rows=_object(known.get("rows")),
            seed=known.get("seed"),
            hyper_parameters=_object(known.get("hyper_parameters")),
            score=known.get("score"),
            metrics=_metrics(known),
            run=_object(known.get(_ONCE)),
        )

    @classmethod
    def from_dict(cls, data: object, place: Place) -> Run:
        """Read plain data; raises ``BundleError`` naming the key that is wrong."""
        texts = ("name", "version", "kind", "bundle_sha256", "added")
        objects = ("data_sha256", "rows", "hyper_parameters", "metrics", "run")
        fields = record(
            data, place, ("format_version", *texts, *objects, "base_model", "parent", "teacher", "seed", "score")
        )
        version = integer(fields.pop("format_version"), place.key("format_version"), 1)
        if version > FORMAT_VERSION:
            raise BundleError(
                f"{place}: format_version is {version}: it was written by a newer julia1, upgrade this one"
            )
        for key in texts:
            text(fields[key], place.key(key))
        for key in objects:
            mapping(fields[key], place.key(key))
        for part, heads in fields["metrics"].items():
            for head, figures in mapping(heads, place.key("metrics").key(part)).items():
                at = place.key("metrics").key(part).key(head)
                for figure, value in mapping(figures, at).items():
                    number(value, at.key(figure))
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``from_dict`` reads it."""
        return {"format_version": FORMAT_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """JSON text; a manifest that was read holds nothing that JSON cannot."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def read_run(folder: Path) -> Run:
    """The run of a version in the registry; raises ``BundleError``, with the mend, when ``run.json`` is broken."""
    place = folder / RUN_FILE
    mend = f"to write it anew from the bundle, run  julia1 registry add {folder} --registry {folder.parent.parent}"
    try:
        run = Run.from_dict(strict_json(place.read_text(encoding="utf-8")), Place(str(place)))
    except FileNotFoundError:
        raise BundleError(f"{place} is missing; {mend}") from None
    except OSError as error:
        raise BundleError(f"cannot read {place}: {reason(error)}") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{place} is not JSON, or is truncated: {error}; {mend}") from None
    except BundleError as error:
        raise BundleError(f"{error}; {mend}") from None
    if (run.name, run.version) != (folder.parent.name, folder.name):
        raise BundleError(f"{place} is of {run.name}@{run.version}, and lies in the folder of another version; {mend}")
    return run


def content_hash(manifest: Manifest) -> str:
    """SHA-256 of all that makes a model what it is: files, heads, encoding, calibration, provenance.

    Left out are its version, its card, and when, where and how long it was trained: a run that is packed again has the
    same content.
    """
    data = manifest.to_dict()
    del data["version"], data["card"]
    data["provenance"] = {key: value for key, value in data["provenance"].items() if key != _ONCE}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Difference:
    """A value of two runs; ``None`` where one has none."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Comparison:
    """How two runs differ.

    Attributes:
        parameters: hyper-parameters, seed, base model, parent and teacher that differ.
        environment: the same for where they were trained.
        data: by part, whether both have the same rows; ``None`` where one of the two does not say.
        metrics: by part, head and name, every figure of either.
    """

    parameters: Mapping[str, Difference]
    environment: Mapping[str, Difference]
    data: Mapping[str, bool | None]
    metrics: Mapping[str, Mapping[str, Mapping[str, Difference]]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare(first: Run, second: Run) -> Comparison:
    """Hold two runs side by side."""
    return Comparison(
        parameters=_differences(_parameters(first), _parameters(second)),
        environment=_differences(_environment(first), _environment(second)),
        data={
            part: None if None in (pair.first, pair.second) else pair.first == pair.second
            for part, pair in _pairs(first.data_sha256, second.data_sha256).items()
        },
        metrics={
            part: {
                head: _pairs(figures.first or {}, figures.second or {})
                for head, figures in _pairs(heads.first or {}, heads.second or {}).items()
            }
            for part, heads in _pairs(first.metrics, second.metrics).items()
        },
    )


def _parameters(run: Run) -> dict[str, Any]:
    start = {"base_model": run.base_model, "parent": run.parent, "teacher": run.teacher, "seed": run.seed}
    return {**start, **run.hyper_parameters}


def _environment(run: Run) -> dict[str, Any]:
    """Flat: the versions of packages by the package."""
    found = dict(_object(run.run.get("environment")))
    return {**found.pop("packages", {}), **found} if isinstance(found.get("packages", {}), Mapping) else found


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Difference]:
    return {key: Difference(first.get(key), second.get(key)) for key in dict.fromkeys((*first, *second))}


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Difference]:
    return {key: pair for key, pair in _pairs(first, second).items() if pair.first != pair.second}


def _metrics(provenance: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Numbers by part, head and name; without ``metrics``, those in the tables of the card, by title and first cell."""
    parts = provenance.get("metrics")
    if not isinstance(parts, Mapping):
        parts = {title: _by_first_cell(table) for title, table in _object(provenance.get("figures")).items()}
    found = {
        part: {head: _numbers(figures) for head, figures in _object(heads).items() if _numbers(figures)}
        for part, heads in parts.items()
    }
    return {part: heads for part, heads in found.items() if heads}


def _by_first_cell(table: Any) -> dict[str, Any]:
    """Rows of a table by their first cell; an object of figures is one row without a name."""
    if isinstance(table, Mapping):
        return {"": table}
    rows = [row for row in table if isinstance(row, Mapping) and row] if isinstance(table, list) else []
    return {str(next(iter(row.values()))): dict(list(row.items())[1:]) for row in rows}


def _numbers(figures: Any) -> dict[str, float]:
    return {
        str(name): value
        for name, value in _object(figures).items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
