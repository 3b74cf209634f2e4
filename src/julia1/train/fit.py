"""From labelled rows to a bundle: split, fine-tune, calibrate, export, measure."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch

from julia1.bundle import Bundle, BundleWriter, EncodingSettings, FileEntry, Manifest
from julia1.bundle.encoding import AGGREGATIONS
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.bundle.manifest import MANIFEST_FILE
from julia1.errors import BundleError, InputError, VerificationError
from julia1.export import SharedWeights, fixed_graph, input_ranges, require_known
from julia1.export.encoder_graph import FIXED_ENCODERS
from julia1.export.parity import Parity, require_parity
from julia1.model.fixed_model import FixedModel
from julia1.model.weights import load_fixed, round_weights, save_weights
from julia1.runtime.cpu import probe
from julia1.runtime.engines import open_engine
from julia1.runtime.fixed import FixedScorer, Given
from julia1.runtime.variants import missing_needs
from julia1.text.tokenizer import TextTokenizer
from julia1.train.data.checks import leaks, require_trainable, unknown_labels
from julia1.train.data.rows import DataRow, DataSet, find_heads
from julia1.train.data.splitting import Split, split_rows
from julia1.train.finetune import FineTuner, Report, outputs_of
from julia1.train.head_calibration import calibrate_heads
from julia1.train.items import Item, Outputs, collate, feature_spec, head_specs, make_items
from julia1.train.metrics import MAIN, figures_of
from julia1.train.pairing import fitted_scales, reads_pairs
from julia1.train.recipe import FineTuning
from julia1.train.release import INT8_NEEDS, WEIGHT_FILE, measured_variant
from julia1.train.start import Start

SERVED_TOKENS = 4096
"""Padded tokens of a batch when the exported model is measured."""
SCALE_ROWS = 200
PARITY_ROWS = 64


@dataclass(frozen=True)
class Parts:
    """Rows by what they are for.

    Attributes:
        train: to train on.
        validation: to stop and calibrate by.
        test: to measure once at the end; may be empty.
        left_out: training rows that stand in the other parts too, or were made from rows there.
    """

    train: list[DataRow]
    validation: list[DataRow]
    test: list[DataRow]
    left_out: int = 0


@dataclass(frozen=True)
class Fitted:
    """What ``fit`` made.

    Attributes:
        bundle: the model.
        validation, test: figures by head; ``test`` is measured once, with the bundle as it serves.
        parity: fp32 graph against PyTorch.
    """

    bundle: Bundle
    validation: dict[str, dict[str, float]]
    test: dict[str, dict[str, float]]
    parity: Parity


def make_parts(data: DataSet, validation: DataSet | None, test: DataSet | None, seed: int) -> Parts:
    """Rows by part; what is not given is cut from the training rows, 8:1:1 in all.

    Raises:
        InputError: nothing can be learned, or a part has a label that training does not know.
    """
    require_trainable(data)
    for name, other in (("validation", validation), ("test", test)):
        problems = unknown_labels(data, other, name) if other is not None else []
        if problems:
            raise InputError(problems[0])
    given = {
        name: [row for row in other.rows if not row.augmented]
        for name, other in (("validation", validation), ("test", test))
        if other is not None
    }
    evaluated = [row for rows in given.values() for row in rows]
    # a training row that is evaluated on, exactly, nearly or by its group, would be an answer learned by heart
    known = {place for place, _ in leaks(evaluated, data.rows)} if evaluated else set()
    rows = [row for row in data.rows if row.place not in known]
    if not rows:
        raise InputError("every training row stands in the validation or test rows too")
    cut = Split(list(range(len(rows))), [], [], [])
    if len(given) < 2:
        cut = split_rows(rows, (8.0, 0.0 if validation else 1.0, 0.0 if test else 1.0), seed)
    return Parts(
        [rows[i] for i in cut.train],
        given["validation"] if validation else [rows[i] for i in cut.val],
        given["test"] if test else [rows[i] for i in cut.test],
        len(data.rows) - len(rows) + len(cut.left_out),
    )


def fit(
    parts: Parts,
    start: Start,
    output: Path,
    settings: FineTuning,
    *,
    name: str,
    version: str,
    report: Report | None = None,
) -> Fitted:
    """Train a model on ``parts`` and write ``output/bundle``; a run found in ``output`` is taken up.

    Args:
        parts: rows.
        start: the encoder and tokenizer that training starts from.
        output: where checkpoints, log and bundle go.
        settings: hyper-parameters.
        name, version: of the bundle.
        report: called with a record after every epoch.
    """
    check_before_training(parts, start, output, settings, name, version)
    tokenizer = TextTokenizer.from_file(start.tokenizer_file)
    pair = reads_pairs(parts.train, settings)
    specs = head_specs(find_heads(parts.train), parts.train, 0 if pair else int(start.config["hidden_size"]))
    features = feature_spec(parts.train)
    # of the test rows too: a bad row is told now, not after hours
    items, validation, test_items = (
        make_items(rows, specs, tokenizer, settings, features, pair)
        for rows in (parts.train, parts.validation, parts.test)
    )
    torch.manual_seed(settings.seed)
    model = new_fixed_model(start, specs, features, tokenizer, settings)

    def metric(current: FixedModel, rows: Sequence[Item]) -> dict[str, float]:
        found = figures_of(specs, outputs_of(current, rows, tokenizer.pad, settings), rows)
        return {spec.name: found[spec.name][MAIN[spec.kind]] for spec in specs if spec.name in found}

    FineTuner(model, items, validation, tokenizer.pad, settings, output, metric).run(report)
    ranges = input_ranges(model.eval(), _feeds(items, tokenizer.pad))
    round_weights(model, ranges)
    exact = replace(settings, bf16=False)
    found = outputs_of(model, validation, tokenizer.pad, exact)
    final, calibration = calibrate_heads(fitted_scales(model), found, validation)
    facts = _facts(settings, parts, start)
    figures = figures_of(final, found, validation, calibration)
    facts["figures"] = {"Validation rows": _table(figures)}
    encoding = encoding_of(settings, pair)
    with BundleWriter(output / "bundle", replace=True) as writer:
        save_weights(model, writer.folder / WEIGHT_FILE, ranges)
        weights = writer.add(writer.folder / WEIGHT_FILE, WEIGHT_FILE)
        stored = load_fixed(writer.folder / WEIGHT_FILE)
        again = outputs_of(stored, validation[:8], tokenizer.pad, exact)
        pairs = [pair for spec in specs for pair in zip(again[spec.name], found[spec.name], strict=False)]
        if any(np.abs(one - other).max(initial=0.0) > 1e-3 for one, other in pairs):
            raise VerificationError("the stored model gives other outputs than the trained one: do not ship it")
        manifest = Manifest(
            name=name,
            version=version,
            kind="fixed",
            encoding=encoding,
            tokenizer=writer.add(start.tokenizer_file, "tokenizer.json"),
            calibration=calibration,
            variants=(),
            checkpoint=(weights,),
            provenance=facts,
            heads=tuple(final),
            features=features,
        )
        variants, parity = [], Parity(0.0, 0.0, 0)
        for precision, needs in (("int8", INT8_NEEDS), ("fp32", {})):
            path = writer.folder / f"model-{precision}.onnx"
            onnx.save_model(fixed_graph(SharedWeights(writer.folder / WEIGHT_FILE), precision), path)
            files = (writer.add(path, path.name), weights)
            scorer = FixedScorer(manifest, tokenizer, open_engine("onnxruntime", path, settings.threads))
            parity = fixed_parity(stored, scorer, parts.train[:PARITY_ROWS], items[:PARITY_ROWS], tokenizer.pad, exact)
            variants.append(measured_variant(precision, files, needs, parity, "output"))
        require_parity(parity)
        test = {}
        served = next(variant for variant in variants if not missing_needs(variant, probe()))
        if parts.test:
            engine = open_engine("onnxruntime", writer.folder / served.files[0].path, settings.threads)
            outputs = served_outputs(FixedScorer(manifest, tokenizer, engine), parts.test)
            test = figures_of(final, outputs, test_items, calibration)
            facts["figures"][f"Test rows, measured once ({served.name})"] = _table(test)
        bundle = writer.finish(replace(manifest, variants=tuple(variants), provenance=facts))
    return Fitted(bundle, figures, test, parity)


def check_before_training(
    parts: Parts, start: Start, output: Path, settings: FineTuning, name: str, version: str
) -> None:
    """Raise now for what would otherwise be refused after the training.

    Raises:
        InputError: no validation rows, a name that a bundle cannot have, a length that the encoder cannot read, a
            tokenizer of another model, or something else at the place of the bundle.
        VerificationError: no graph is known for the encoder.
    """
    if not parts.validation:
        raise InputError("there are no validation rows: training would not know when to stop")
    require_known(start.config, FIXED_ENCODERS)
    pieces = TextTokenizer.from_file(start.tokenizer_file).vocabulary_size
    if pieces > start.config["vocab_size"]:
        raise InputError(
            f"{start.tokenizer_file} has {pieces:,} pieces and the encoder {start.config['vocab_size']:,}: they do not "
            "belong together"
        )
    most = int(start.config["max_position_embeddings"])
    if not 3 <= settings.max_tokens <= most:
        raise InputError(f"max_tokens is {settings.max_tokens}: this encoder reads 3 to {most}")
    entry = FileEntry("x", "0" * 64, 1)
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


def encoding_of(settings: FineTuning, pair: bool) -> EncodingSettings:
    """How the trained model reads."""
    if pair:
        return EncodingSettings("pair", settings.max_tokens)
    if settings.windows == 1:
        return EncodingSettings("fixed", settings.max_tokens)
    return EncodingSettings(
        "fixed",
        settings.max_tokens,
        windows=settings.windows,
        overlap=settings.overlap,
        aggregation=settings.aggregation,
    )


def new_fixed_model(
    start: Start, specs: Sequence[HeadSpec], features: FeatureSpec, tokenizer: TextTokenizer, settings: FineTuning
) -> FixedModel:
    """A model with a known encoder and new heads, whose label vectors are the encoder's reading of the names."""
    encoder = start.load()
    vectors = {
        spec.name: text_vectors(encoder, tokenizer, spec.labels) for spec in specs if spec.kind in ("choice", "labels")
    }
    weigh = settings.windows > 1 and settings.aggregation == "attention"
    return FixedModel(encoder, specs, features, dropout=settings.dropout, vectors=vectors, weigh_windows=weigh)


@torch.inference_mode()
def text_vectors(encoder: torch.nn.Module, tokenizer: TextTokenizer, texts: Sequence[str]) -> torch.Tensor:
    """Mean last hidden state of each text with [CLS] before it, fp32 ``[texts, width]``."""
    found = []
    for ids in tokenizer.ids(list(texts)):
        states = encoder(input_ids=torch.tensor([[tokenizer.cls, *ids[:126]]])).last_hidden_state
        found.append(states[0].float().mean(0))
    return torch.stack(found).clone()


def fixed_parity(
    model: FixedModel,
    scorer: FixedScorer,
    rows: Sequence[DataRow],
    items: Sequence[Item],
    pad: int,
    settings: FineTuning,
) -> Parity:
    """Compare the outputs of every head with PyTorch's, in batches of eight."""
    differences = []
    for start in range(0, len(rows), 8):
        some = rows[start : start + 8]
        expected = outputs_of(model, items[start : start + 8], pad, settings)
        found = served_outputs(scorer, some)
        differences += [
            np.abs(one - other).ravel()
            for name, of_head in found.items()
            for one, other in zip(expected[name], of_head, strict=True)
        ]
    flat = np.concatenate(differences)
    return Parity(float(flat.max()), float(flat.mean()), len(flat))


def served_outputs(scorer: FixedScorer, rows: Sequence[DataRow]) -> Outputs:
    """What a bundle gives for labelled rows."""
    second = scorer.reads_pairs
    given = [Given(row.text, row.second if second else None, row.features) for row in rows]
    outputs, _ = scorer.outputs(given, False, SERVED_TOKENS)
    found: Outputs = {head.name: values for head, values in zip(scorer.heads, outputs, strict=True)}
    if any(head.size for head in scorer.heads):
        others = [[text for text in (row.second, *row.candidates) if text] for row in rows]
        flat = [Given(text) for texts in others for text in texts]
        of_others, _ = scorer.outputs(flat, False, SERVED_TOKENS)
        for head, values in zip(scorer.heads, of_others, strict=True):
            if head.size:
                rest = iter(values)
                found[head.name] = [
                    np.stack([own, *(next(rest) for _ in texts)])
                    for own, texts in zip(found[head.name], others, strict=True)
                ]
    return found


def _feeds(items: Sequence[Item], pad: int) -> list[dict[str, npt.NDArray[Any]]]:
    step = max(1, len(items) // SCALE_ROWS)
    return [{name: value.numpy() for name, value in collate([item], pad).items()} for item in items[::step]]


def _facts(settings: FineTuning, parts: Parts, start: Start) -> dict[str, Any]:
    return {
        "base_model": start.name,
        "rows": {
            "train": len(parts.train),
            "validation": len(parts.validation),
            "test": len(parts.test),
            "left out": parts.left_out,
        },
        "seed": settings.seed,
        "hyper_parameters": asdict(settings),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "onnx": onnx.__version__},
    }


def _table(figures: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    return [{"head": name, **{key: round(value, 4) for key, value in found.items()}} for name, found in figures.items()]
