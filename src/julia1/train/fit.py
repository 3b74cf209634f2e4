"""From labelled rows to a bundle: split, fine-tune, calibrate, export, measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from julia1.bundle import FileEntry, Manifest
from julia1.bundle.encoding import AGGREGATIONS
from julia1.bundle.heads import PAIR_KINDS, FeatureSpec, HeadSpec
from julia1.bundle.manifest import MANIFEST_FILE
from julia1.errors import BundleError, InputError
from julia1.export.operator_check import require_exportable
from julia1.model.backbone import take_pooler
from julia1.model.fixed_model import FixedModel, parse_pooling
from julia1.text.tokenizer import TextTokenizer
from julia1.train.bounds import require_bounds
from julia1.train.curves import CurveDrawer
from julia1.train.data.rows import DataRow, find_heads
from julia1.train.finetune import FineTuner, Report, outputs_of
from julia1.train.guarantee import check_guarantee
from julia1.train.items import Item
from julia1.train.languages import fill_gate, languages_of
from julia1.train.metrics import MAIN, figures_of
from julia1.train.package import Fitted, Tuned, encoding_of, package
from julia1.train.pairing import reads_pairs
from julia1.train.parts import Parts
from julia1.train.prepared import PreparedRows
from julia1.train.recipe import FineTuning
from julia1.train.start import Start
from julia1.train.teaching import Teacher
from julia1.train.vectors import NAMED_KINDS, label_vectors


def fit(
    parts: Parts,
    start: Start,
    output: Path,
    settings: FineTuning,
    *,
    name: str,
    version: str,
    report: Report | None = None,
    teacher: Teacher | None = None,
) -> Fitted:
    """Train a model on ``parts`` and write ``output/bundle`` and a report; a run found in ``output`` is taken up.

    Args:
        parts: rows.
        start: the encoder and tokenizer that training starts from.
        output: where checkpoints, log and bundle go.
        settings: hyper-parameters.
        name, version: of the bundle.
        report: called with a record after every step and epoch, see ``julia1.train.finetune.Report``.
        teacher: what it makes of the training rows is learned too.
    """
    check_before_training(parts, start, output, settings, name, version)
    tuned = tune(parts, start, output, settings, report, teacher)
    if report:
        report({"kind": "package"})
    return package(tuned, parts, start, output / "bundle", name, version)


def tune(
    parts: Parts,
    start: Start,
    folder: Path,
    settings: FineTuning,
    report: Report | None = None,
    teacher: Teacher | None = None,
    rows: PreparedRows | None = None,
) -> Tuned:
    """Train a model on ``parts`` up to its best epoch; a run found in ``folder`` is taken up.

    Args:
        parts, start, settings, teacher: as for ``fit``.
        folder: where checkpoints and the log go.
        report: called with a record after every step and epoch, and before them one of kind ``cut`` if rows are cut.
        rows: the items of ``parts``, where several trainings share them.
    """
    tokenizer = start.tokenizer
    prepared = (rows or PreparedRows(parts, start, teacher)).of(settings)
    specs, features = prepared.specs, prepared.features
    items, validation = prepared.train, prepared.validation
    if report and prepared.cut:
        report({"kind": "cut", "cut": prepared.cut, "rows": prepared.number, "max_tokens": settings.max_tokens})
    languages = languages_of(parts.train) if settings.language_heads else {}
    torch.manual_seed(settings.seed)
    model = new_fixed_model(start, specs, features, tokenizer, settings, parts.train, list(languages))
    if model.gate is not None:
        fill_gate(model.gate, languages, items, {tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad})

    def metric(current: FixedModel, held_out: Sequence[Item]) -> dict[str, float]:
        found = figures_of(specs, outputs_of(current, held_out, tokenizer.pad, settings), held_out)
        return {spec.name: found[spec.name][MAIN[spec.kind]] for spec in specs if spec.name in found}

    tuner = FineTuner(model, items, validation, tokenizer.pad, settings, folder, metric, tokenizer.mask)
    curves = CurveDrawer(folder)

    def reported(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            curves.draw()
        if report:
            report(record)

    best = tuner.run(reported)
    curves.draw(last=True)
    return Tuned(
        model,
        tokenizer,
        features,
        settings,
        prepared.pair,
        items,
        validation,
        prepared.test,
        best["score"],
        teacher.name if teacher else "",
        prepared.held,
        folder,
        tuner.seconds,
    )


def check_before_training(
    parts: Parts, start: Start, output: Path, settings: FineTuning, name: str, version: str
) -> None:
    """Raise now for what would otherwise be refused after the training.

    Raises:
        InputError: no validation rows, too few of them for a bound on the error, a hyper-parameter out of its bounds, a
            name that a bundle cannot have, a length that the encoder cannot read, a tokenizer of another model, or
            something else at the place of the bundle.
        VerificationError: no graph is known for the encoder, or one that computes something else.
    """
    if not parts.validation:
        raise InputError("there are no validation rows: training would not know when to stop")
    require_bounds(settings)
    check_guarantee(parts, settings)
    require_exportable(start.config)
    pieces = start.tokenizer.vocabulary_size
    if pieces > start.config["vocab_size"]:
        raise InputError(
            f"{start.tokenizer_file} has {pieces:,} pieces and the encoder {start.config['vocab_size']:,}: they do not "
            "belong together"
        )
    most = int(start.config["max_position_embeddings"])
    if not 3 <= settings.max_tokens <= most:
        raise InputError(f"max_tokens is {settings.max_tokens}: this encoder reads 3 to {most}")
    entry = FileEntry("x", "0" * 64, 1)
    if not 0 <= settings.teacher_share <= 1 or settings.teacher_temperature <= 0:
        raise InputError(
            f"teacher_share is {settings.teacher_share:g}, teacher_temperature {settings.teacher_temperature:g}: the "
            "share lies between 0 and 1, the temperature above 0"
        )
    if "pooler" in parse_pooling(settings.pooling) and take_pooler(start.load()) is None:
        raise InputError(f"pooling is {settings.pooling!r}: {start.name} comes without a pooler: take cls, mean or max")
    pair = reads_pairs(parts.train, settings)
    if settings.language_heads:
        languages_of(parts.train)
        kinds = {head.kind for head in find_heads(parts.train).values()}
        if not kinds - {"tags", *(() if pair else PAIR_KINDS)}:
            raise InputError("language_heads is for heads that answer about a whole text: these rows have none")
    if settings.windows < 1:
        raise InputError(f"windows is {settings.windows}: at least 1, to read texts in one part")
    if settings.windows > 1 and not 0 <= settings.overlap < settings.max_tokens - 2:
        room = settings.max_tokens - 2
        raise InputError(f"overlap is {settings.overlap}: not below 0, and less than the {room} tokens of a window")
    if settings.aggregation not in AGGREGATIONS:
        raise InputError(f"aggregation is {settings.aggregation!r}: one of {', '.join(AGGREGATIONS)}")
    if settings.windows > 1 and any(row.second or row.candidates for row in parts.train):
        raise InputError("rows with several texts are not read in windows: set windows to 1")
    encoding = encoding_of(settings, pair=False)
    head = HeadSpec("x", "yesno", ("no", "yes"))
    try:
        Manifest(name, version, "fixed", encoding, entry, {}, (), checkpoint=(entry,), heads=(head,)).to_json()
    except BundleError as error:
        raise InputError(f"no bundle can be called {name!r}, version {version!r}: {error}") from None
    target = output / "bundle"
    if target.exists() and not (target / MANIFEST_FILE).is_file():
        raise InputError(f"{target} is there already and is no bundle: move it away, or name another folder")


def new_fixed_model(
    start: Start,
    specs: Sequence[HeadSpec],
    features: FeatureSpec,
    tokenizer: TextTokenizer,
    settings: FineTuning,
    rows: Sequence[DataRow] = (),
    languages: Sequence[str] = (),
) -> FixedModel:
    """A model with a known encoder and new heads, whose label vectors are what the encoder reads in names and rows."""
    encoder = start.load()
    named = [spec for spec in specs if spec.kind in NAMED_KINDS]
    vectors = {spec.name: label_vectors(encoder, tokenizer, spec, rows) for spec in named}
    weigh = settings.windows > 1 and settings.aggregation == "attention"
    return FixedModel(
        encoder,
        specs,
        features,
        pooling=settings.pooling,
        dropout=settings.dropout,
        vectors=vectors,
        weigh_windows=weigh,
        languages=languages,
    )
