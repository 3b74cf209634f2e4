"""Turn a trained model into a bundle: low-bit weights, fp32 and int8 graphs, parity, calibration, card."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import torch

from julia1.bundle import Bundle, BundleWriter, Calibration, EncodingSettings, FileEntry, Manifest, Variant
from julia1.errors import TooLongError
from julia1.export import (
    Parity,
    SharedWeights,
    input_ranges,
    measure_parity,
    option_graph,
    require_parity,
)
from julia1.export.encoder_graph import OPTION_ENCODERS
from julia1.export.operator_check import require_exportable
from julia1.model.backbone import backbone_config, complete_config
from julia1.model.option_model import OptionModel
from julia1.model.weights import load_weights, round_weights, save_weights
from julia1.runtime.calibration import UNCALIBRATED
from julia1.runtime.decider import OPTION_MEMORY, Decider
from julia1.runtime.engines import open_engine
from julia1.runtime.plan import Plan
from julia1.runtime.scorer import OptionScorer
from julia1.text.options import Limits, OptionsEncoding, Row
from julia1.text.states import IntArray
from julia1.text.tokenizer import TextTokenizer
from julia1.train.calibrate import (
    Scored,
    calibration_examples,
    cross_entropy,
    fit_calibration,
    score_examples,
    validation_examples,
)
from julia1.train.open_decisions import train_open_decisions
from julia1.train.recipe import Recipe
from julia1.train.sources import read_set
from julia1.train.trainer import Report
from julia1.train.views import Example

PARITY_EXAMPLES = 96
RANGE_EXAMPLES = 200
WEIGHT_FILE = "weights.safetensors"
INT8_NEEDS = {"x86_64": ("vnni",), "aarch64": ()}
"""Without an 8-bit dot product, x86-64 kernels add uint8 x int8 products in 16 bits and saturate: wrong answers."""


@dataclass(frozen=True)
class Release:
    """What ``release`` made and measured."""

    bundle: Bundle
    parity: Mapping[str, Parity]


def release(
    model: OptionModel, tokenizer_file: Path, recipe: Recipe, data: Path, target: Path, version: str, replace_old: bool
) -> Release:
    """Write the bundle of a trained model.

    The model is rounded to its low-bit grid in place first; parity is measured against that model, and temperatures are
    fitted with the int8 graph, the one that serves.

    Raises:
        VerificationError: the fp32 graph departs from PyTorch by 1e-4 or more.
        BundleError: ``target`` cannot be written.
    """
    encoding = OptionsEncoding(TextTokenizer.from_file(tokenizer_file), recipe.limits)
    examples = _within_budgets(validation_examples(recipe, data), encoding)
    unseen = _within_budgets(calibration_examples(recipe, data), encoding)
    ranges = input_ranges(model.eval(), range_batches(encoding, examples))
    round_weights(model, ranges)
    with BundleWriter(target, replace=replace_old) as writer:
        save_weights(model, writer.folder / WEIGHT_FILE, ranges)
        weights = writer.add(writer.folder / WEIGHT_FILE, WEIGHT_FILE)
        tokenizer = writer.add(tokenizer_file, "tokenizer.json")
        stored = load_weights(writer.folder / WEIGHT_FILE)
        shared = SharedWeights(writer.folder / WEIGHT_FILE)
        variants: list[Variant] = []
        parity: dict[str, Parity] = {}
        for precision, needs in (("int8", INT8_NEEDS), ("fp32", {})):
            path = f"model-{precision}.onnx"
            onnx.save_model(option_graph(shared, precision), writer.folder / path)
            graph = writer.add(writer.folder / path, path)
            engine = open_engine("onnxruntime", writer.folder / path, recipe.training.threads)
            scorer = OptionScorer(engine, encoding.tokenizer.pad, OPTION_MEMORY)
            parity[precision] = measure_parity(stored, scorer, encoding, parity_batches(encoding, examples))
            variants.append(measured_variant(precision, (graph, weights), needs, parity[precision], "logit"))
        require_parity(parity["fp32"])
        manifest = Manifest(
            name=recipe.name,
            version=version,
            kind="open",
            encoding=_encoding_settings(recipe.limits),
            tokenizer=tokenizer,
            calibration={},
            variants=tuple(variants),
            checkpoint=(weights,),
            provenance=provenance(recipe, data),
        )
        bundle = writer.finish(calibrated(manifest, writer.folder, unseen, recipe.training.threads))
    return Release(bundle, parity)


def train_and_release(
    recipe: Recipe, data: Path, backbone: Path, output: Path, version: str, report: Report | None = None
) -> Release:
    """The whole way from a recipe to a bundle: train (or take up) the run in ``output``, write ``output/bundle``.

    Raises:
        InputError: before training, when the backbone is no model folder or its config cannot be read.
        VerificationError: before training, when the backbone cannot be exported.
    """
    require_exportable(trimmed_config(recipe, backbone), OPTION_ENCODERS)
    model = train_open_decisions(recipe, data, backbone, output, report)
    return release(model, output / "tokenizer.json", recipe, data, output / "bundle", version, replace_old=True)


def trimmed_config(recipe: Recipe, backbone: Path) -> dict[str, Any]:
    """The config of the encoder that a recipe makes of a backbone, defaults included; raises as ``complete_config``."""
    config = complete_config(backbone_config(backbone), backbone / "config.json")
    pieces = min(recipe.vocabulary.size, int(config.get("vocab_size") or recipe.vocabulary.size))
    return {**config, "vocab_size": pieces}


def calibrated(manifest: Manifest, folder: Path, examples: Sequence[Example], threads: int) -> Manifest:
    """The manifest with temperatures fitted on the examples, and what they did in its figures."""
    variant = manifest.variants[0]
    tokenizer = TextTokenizer.from_file(folder / manifest.tokenizer.path)
    engine = open_engine(variant.engine, folder / variant.files[0].path, threads)
    scored = score_examples(Decider(manifest, tokenizer, engine, Plan(variant, variant.engine, threads)), examples)
    fitted = fit_calibration(scored)
    before = calibration_report(scored, fitted)
    figures = {**manifest.provenance.get("figures", {}), "Calibration on validation rows (cross-entropy, nats)": before}
    return replace(manifest, calibration=fitted, provenance={**manifest.provenance, "figures": figures})


def calibration_report(scored: Sequence[Scored], fitted: Mapping[str, Calibration]) -> list[dict[str, Any]]:
    """Cross-entropy before and after, a row a question type."""
    rows = []
    for kind, calibration in fitted.items():
        items = [item for item in scored if item.kind == kind]
        rows.append(
            {
                "question type": kind,
                "questions": len(items),
                "before": round(cross_entropy(items, UNCALIBRATED), 4),
                "after": round(cross_entropy(items, calibration), 4),
            }
        )
    return rows


def range_batches(encoding: OptionsEncoding, examples: Sequence[Example]) -> Iterator[Mapping[str, IntArray]]:
    """Single rows, unpadded, to look at activations on."""
    for row in _spread_rows(encoding, examples, RANGE_EXAMPLES):
        yield encoding.collate([row]).feeds()


def parity_batches(encoding: OptionsEncoding, examples: Sequence[Example]) -> Iterator[list[Row]]:
    """Real rows in mixed batches of eight, and one batch of a single row."""
    rows = _spread_rows(encoding, examples, PARITY_EXAMPLES)
    yield rows[:1]
    for start in range(0, len(rows), 8):
        yield rows[start : start + 8]


def _within_budgets(examples: Sequence[Example], encoding: OptionsEncoding) -> list[Example]:
    """The examples whose questions and options fit, as in training."""
    kept = []
    for example in examples:
        try:
            encoding.encode(example.state, {str(i): question for i, (question, _) in enumerate(example.questions)})
        except TooLongError:
            continue
        kept.append(example)
    return kept


def _spread_rows(encoding: OptionsEncoding, examples: Sequence[Example], number: int) -> list[Row]:
    rows = []
    for example in examples[:: max(1, len(examples) // number)]:
        questions = {str(i): question for i, (question, _) in enumerate(example.questions)}
        rows += encoding.encode(example.state, questions)[0]
    return rows


def provenance(recipe: Recipe, data: Path) -> dict[str, Any]:
    """Data with licences, seeds, hyper-parameters and versions, for the manifest and its card."""
    sets: dict[str, dict[str, Any]] = {}
    languages: dict[str, None] = {}
    for source in recipe.sources:
        entry = sets.get(source.set)
        if entry is None:
            meta = read_set(data / source.set, []).meta
            entry = sets[source.set] = {
                "name": source.set,
                "license": meta["license"],
                "attribution": meta["attribution"],
                "views": [],
            }
            languages.update(dict.fromkeys(c for c in meta["languages"] if c not in recipe.held_out_languages))
        entry["views"].append(source.view)
    return {
        "description": recipe.description,
        "license": recipe.license,
        "base_model": recipe.base_model,
        "languages": list(languages),
        "datasets": [{**entry, "views": ", ".join(entry["views"])} for entry in sets.values()],
        "held_out": list(recipe.held_out),
        "held_out_languages": list(recipe.held_out_languages),
        "limits": list(recipe.limitations),
        "seed": recipe.seed,
        "hyper_parameters": asdict(recipe.training),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "onnx": onnx.__version__,
        },
    }


def measured_variant(
    precision: str, files: tuple[FileEntry, ...], needs: Mapping[str, tuple[str, ...]], parity: Parity, unit: str
) -> Variant:
    """A variant on ONNX Runtime with its parity as measured figures; ``unit`` names what was compared."""
    measured = {
        f"largest {unit} difference to PyTorch": float(f"{parity.largest:.3g}"),
        f"mean {unit} difference to PyTorch": float(f"{parity.mean:.3g}"),
        f"{unit}s compared": parity.options,
    }
    return Variant(precision, "onnxruntime", precision, files, dict(needs), measured)


def _encoding_settings(limits: Limits) -> EncodingSettings:
    return EncodingSettings(
        "options", limits.state_tokens, limits.question_tokens, limits.option_tokens, limits.pass_tokens
    )
