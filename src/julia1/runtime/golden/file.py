"""A golden file: what a bundle computed on one machine, as gzipped JSON. Nothing in it is executed."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from julia1.bundle import Manifest, Variant
from julia1.bundle._fields import Place, array, integer, mapping, number, one_of, record, text
from julia1.bundle.files import reason, write_whole
from julia1.errors import BundleError, InputError
from julia1.runtime.golden.recording import OPTION_TEXTS, SKETCH, STATE, FloatArray, Pass
from julia1.runtime.golden.requests import Request, Said
from julia1.strict_json import strict_json

FORMAT, FORMAT_VERSION = "julia1 golden", 1
MOST_BYTES = 64 << 20
"""Of a file when it is unpacked; that of the bundled model has 1 MB."""


@dataclass(frozen=True)
class Identity:
    """Which bundle.

    Attributes:
        name, version: of the model.
        settings: SHA-256 of all that answers depend on beside the variants: kind, encoding, tokenizer, calibration,
            heads and features.
    """

    name: str
    version: str
    settings: str

    @classmethod
    def of(cls, manifest: Manifest) -> Identity:
        """That of a bundle."""
        data = manifest.to_dict()
        told = {key: data.get(key) for key in ("kind", "encoding", "calibration", "heads", "features")}
        told["tokenizer"] = manifest.tokenizer.sha256
        return cls(manifest.name, manifest.version, hashlib.sha256(_packed(told)).hexdigest())

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Made:
    """What one variant made of one request: the calls of its engine, and what was said."""

    passes: tuple[Pass, ...]
    said: Mapping[str, Said]


@dataclass(frozen=True)
class Recorded:
    """A variant as it ran.

    Attributes:
        precision, engine: those of the variant.
        engine_version: of the library.
        sha256: of its files, in their order.
        made: for each request.
    """

    precision: str
    engine: str
    engine_version: str
    sha256: tuple[str, ...]
    made: tuple[Made, ...]


@dataclass(frozen=True)
class Golden:
    """What a golden file holds.

    Attributes:
        bundle: which bundle it was made from.
        environment: where: by name, in words.
        requests: what was asked.
        variants: what each made of it, by name.
    """

    bundle: Identity
    environment: Mapping[str, str]
    requests: tuple[Request, ...]
    variants: Mapping[str, Recorded]


def files_of(variant: Variant) -> tuple[str, ...]:
    """SHA-256 of the files of a variant, in their order."""
    return tuple(entry.sha256 for entry in variant.files)


def write_golden(golden: Golden, place: Path) -> None:
    """Write the file, or leave what was there; the same content gives the same bytes.

    Raises:
        InputError: it cannot be written there.
    """
    data = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "bundle": asdict(golden.bundle),
        "environment": dict(golden.environment),
        "requests": [request.to_data() for request in golden.requests],
        "variants": {name: _variant_data(recorded) for name, recorded in golden.variants.items()},
    }
    try:
        write_whole(place, gzip.compress(_packed(data), mtime=0))
    except OSError as error:
        raise InputError(f"cannot write {place}: {reason(error)}") from None


def read_golden(place: Path) -> Golden:
    """Read a file.

    Raises:
        InputError: it cannot be read, is cut or damaged, no golden file, or one of a newer format; naming the key that
            is wrong.
    """
    try:
        with place.open("rb") as packed, gzip.open(packed) as file:
            content = file.read(MOST_BYTES + 1)
    except EOFError:
        raise InputError(f"{place} is cut short: copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{place} is damaged or no golden file: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {place}: {reason(error)}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{place} unpacks to more than {MOST_BYTES >> 20} MiB: it is no golden file")
    try:
        data = strict_json(content.decode("utf-8"))
    except RecursionError:
        raise InputError(f"{place} is no golden file: it is nested too deeply") from None
    except ValueError as error:  # of UTF-8 and JSON
        raise InputError(f"{place} is no golden file: {str(error)[:200]}") from None
    try:
        return _golden(data, Place(str(place)))
    except BundleError as error:
        raise InputError(f"{error}; make it again with  julia1 golden make") from None


def _golden(data: object, place: Place) -> Golden:
    if mapping(data, place).get("format") != FORMAT:
        raise place.key("format").wrong(repr(FORMAT), mapping(data, place).get("format"))
    if integer(mapping(data, place).get("format_version"), place.key("format_version"), 1) != FORMAT_VERSION:
        raise place.key("format_version").wrong(f"{FORMAT_VERSION} (a newer file needs a newer julia1)", data)
    keys = ("format", "format_version", "bundle", "environment", "requests", "variants")
    fields = record(data, place, keys)
    named = record(fields["bundle"], place.key("bundle"), ("name", "version", "settings"))
    environment = mapping(fields["environment"], place.key("environment"))
    requests = [Request.from_data(item, at) for item, at in array(fields["requests"], place.key("requests"))]
    variants = {
        name: _recorded(item, place.key("variants").key(name), len(requests))
        for name, item in mapping(fields["variants"], place.key("variants")).items()
    }
    if not requests or not variants:
        raise BundleError(f"{place}: there are no {'variants' if requests else 'requests'} in it")
    return Golden(
        Identity(**{key: text(value, place.key("bundle").key(key)) for key, value in named.items()}),
        {key: text(value, place.key("environment").key(key)) for key, value in environment.items()},
        tuple(requests),
        variants,
    )


def _recorded(data: object, place: Place, requests: int) -> Recorded:
    fields = record(data, place, ("precision", "engine", "engine_version", "sha256", "made"))
    words = {key: text(fields[key], place.key(key)) for key in ("precision", "engine", "engine_version")}
    made = [_made(item, at) for item, at in array(fields["made"], place.key("made"))]
    if len(made) != requests:
        raise place.key("made").wrong(f"one for each of {requests} requests", len(made))
    sha256 = [text(item, at) for item, at in array(fields["sha256"], place.key("sha256"))]
    return Recorded(**words, sha256=tuple(sha256), made=tuple(made))


def _made(data: object, place: Place) -> Made:
    fields = record(data, place, ("passes", "said"))
    said = mapping(fields["said"], place.key("said"))
    return Made(
        tuple(_pass(item, at) for item, at in array(fields["passes"], place.key("passes"))),
        {name: Said.from_data(item, place.key("said").key(name)) for name, item in said.items()},
    )


def _pass(data: object, place: Place) -> Pass:
    fields = record(data, place, ("reads", "ids", "tensors", "outputs"))
    ids = [
        tuple(integer(item, at, 0) for item, at in array(row, where))
        for row, where in array(fields["ids"], place.key("ids"))
    ]
    tensors, outputs = (
        {
            name: np.array([number(item, at) for item, at in array(values, place.key(key).key(name))], np.float64)
            for name, values in mapping(fields[key], place.key(key)).items()
        }
        for key in ("tensors", "outputs")
    )
    with np.errstate(over="ignore"):  # what was rounded to digits is that fp32 number again
        outputs = {name: values.astype(np.float32).astype(np.float64) for name, values in outputs.items()}
    for name, values in tensors.items():
        if len(values) != 1 + SKETCH:
            raise place.key("tensors").key(name).wrong(f"{1 + SKETCH} numbers", len(values))
    return Pass(one_of((OPTION_TEXTS, STATE), fields["reads"], place.key("reads")), tuple(ids), tensors, outputs)


def _variant_data(recorded: Recorded) -> dict[str, Any]:
    return {
        "precision": recorded.precision,
        "engine": recorded.engine,
        "engine_version": recorded.engine_version,
        "sha256": list(recorded.sha256),
        "made": [
            {
                "passes": [_pass_data(one) for one in made.passes],
                "said": {name: said.to_data() for name, said in made.said.items()},
            }
            for made in recorded.made
        ],
    }


def _pass_data(one: Pass) -> dict[str, Any]:
    return {
        "reads": one.reads,
        "ids": [list(row) for row in one.ids],
        "tensors": {name: _rounded(values, 6) for name, values in one.tensors.items()},
        "outputs": {name: _rounded(values, 9) for name, values in one.outputs.items()},
    }


def _rounded(values: FloatArray, digits: int) -> Sequence[float]:
    """To as many digits as matter: nine hold any fp32."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


def _packed(data: object) -> bytes:
    # sorted keys would lose the order of options, which is that of probabilities
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
