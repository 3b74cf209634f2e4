"""From a tuned model to a bundle: rounded weights, graphs with parity, calibration, figures, card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from julia1.bundle import Bundle, BundleWriter, EncodingSettings, Manifest
from julia1.bundle.heads import FeatureSpec
from julia1.errors import VerificationError
from julia1.export import SharedWeights, fixed_graph, input_ranges
from julia1.export.parity import Parity, require_parity
from julia1.export.writing import writing
from julia1.model.fixed_model import FixedModel
from julia1.model.weights import load_fixed, round_weights, save_weights
from julia1.runtime.cpu import probe
from julia1.runtime.engines import open_engine
from julia1.runtime.fixed import FixedScorer, Given
from julia1.runtime.variants import missing_needs
from julia1.text.tokenizer import TextTokenizer
from julia1.train.data.rows import DataRow
from julia1.train.environment import environment
from julia1.train.evaluation import HeadEvaluation, evaluate
from julia1.train.finetune import outputs_of
from julia1.train.guarantee import Guarantee, guard_heads, halves, measured_on
from julia1.train.head_calibration import calibrate_heads
from julia1.train.items import Item, Outputs, collate
from julia1.train.pairing import fitted_scales
from julia1.train.parts import Parts, data_hashes
from julia1.train.recipe import FineTuning
from julia1.train.release import INT8_NEEDS, WEIGHT_FILE, measured_variant
from julia1.train.run_report import REPORT, metrics_of, write_report
from julia1.train.served import outputs_of_rows
from julia1.train.start import Start

SERVED_TOKENS = 4096
"""Padded tokens of a batch when the exported model is measured."""
RANGE_ROWS = 200
PARITY_ROWS = 64


@dataclass(frozen=True)
class Tuned:
    """A model at its best epoch, with what it was trained on.

    Attributes:
        model, tokenizer, features, settings: as trained.
        pair: two texts were read in one row.
        train, validation, test: the rows as the model takes them.
        teacher: name of the model that was learned from, '' for none.
        held: validation rows that were kept for the guarantee.
        folder: of the run, with its log and curves.
        score: mean over the heads of the figure that each is chosen by, on the validation rows.
        seconds: that training took, all its sittings together.
    """

    model: FixedModel
    tokenizer: TextTokenizer
    features: FeatureSpec
    settings: FineTuning
    pair: bool
    train: list[Item]
    validation: list[Item]
    test: list[Item]
    score: float
    teacher: str = ""
    held: list[Item] = field(default_factory=list)
    folder: Path | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Fitted:
    """What ``fit`` made.

    Attributes:
        bundle: the model.
        validation, test: figures by head; ``test`` is measured once, with the bundle as it serves.
        parity: fp32 graph against PyTorch.
        evaluation: by part (``validation``, ``test``), by head; of the same outputs as the figures.
        guarantees: of the error of heads among what they answer, where that was asked for.
        report: the page about the run, beside the bundle; ``METRICS`` beside it has the same as data.
    """

    bundle: Bundle
    validation: dict[str, dict[str, float]]
    test: dict[str, dict[str, float]]
    parity: Parity
    evaluation: dict[str, dict[str, HeadEvaluation]]
    guarantees: list[Guarantee]
    report: Path


def package(tuned: Tuned, parts: Parts, start: Start, target: Path, name: str, version: str) -> Fitted:
    """Write the bundle of a tuned model to ``target`` and measure it; the test rows are read here, once.

    A report on the run is written beside the bundle.

    Raises:
        VerificationError: the fp32 graph departs from PyTorch by 1e-4 or more.
        BundleError: ``target`` cannot be written.
    """
    model, tokenizer, settings = tuned.model, tuned.tokenizer, tuned.settings
    items, validation = tuned.train, tuned.validation
    ranges = input_ranges(model.eval(), _feeds(items, tokenizer.pad))
    round_weights(model, ranges)
    exact = replace(settings, bf16=False)
    found = outputs_of(model, validation, tokenizer.pad, exact)
    final, calibration = calibrate_heads(fitted_scales(model), found, validation)
    facts = _facts(tuned, parts, start)
    kept, held = halves(parts.validation, settings)
    evaluation = {"validation": evaluate(final, found, validation, calibration, [row.language for row in kept])}
    figures = {head: one.figures for head, one in evaluation["validation"].items()}
    facts["figures"] = {"Validation rows": _table(figures)}
    facts["metrics"] = {"validation": figures}
    with writing(target), BundleWriter(target, replace=True) as writer:
        save_weights(model, writer.folder / WEIGHT_FILE, ranges)
        weights = writer.add(writer.folder / WEIGHT_FILE, WEIGHT_FILE)
        stored = load_fixed(writer.folder / WEIGHT_FILE)
        again = outputs_of(stored, validation[:8], tokenizer.pad, exact)
        pairs = [pair for head in final for pair in zip(again[head.name], found[head.name], strict=False)]
        if any(np.abs(one - other).max(initial=0.0) > 1e-3 for one, other in pairs):
            raise VerificationError("the stored model gives other outputs than the trained one: do not ship it")
        manifest = Manifest(
            name=name,
            version=version,
            kind="fixed",
            encoding=encoding_of(settings, tuned.pair),
            tokenizer=writer.add(start.tokenizer_file, "tokenizer.json"),
            calibration=calibration,
            variants=(),
            checkpoint=(weights,),
            provenance=facts,
            heads=tuple(final),
            features=tuned.features,
        )
        variants, parity = [], Parity(0.0, 0.0, 0)
        of_held: list[Outputs] = []
        for precision, needs in (("int8", INT8_NEEDS), ("fp32", {})):
            path = writer.folder / f"model-{precision}.onnx"
            onnx.save_model(fixed_graph(SharedWeights(writer.folder / WEIGHT_FILE), precision), path)
            files = (writer.add(path, path.name), weights)
            scorer = FixedScorer(manifest, tokenizer, open_engine("onnxruntime", path, settings.threads))
            parity = fixed_parity(stored, scorer, parts.train[:PARITY_ROWS], items[:PARITY_ROWS], tokenizer.pad, exact)
            variants.append(measured_variant(precision, files, needs, parity, "output"))
            of_held += [served_outputs(scorer, held)] if held else []
        require_parity(parity)
        guarantees: list[Guarantee] = []
        if held:
            final, guarantees = guard_heads(final, found, validation, of_held, tuned.held, calibration, settings)
        test = {}
        served = next(variant for variant in variants if not missing_needs(variant, probe()))
        if parts.test:
            engine = open_engine("onnxruntime", writer.folder / served.files[0].path, settings.threads)
            outputs = served_outputs(FixedScorer(manifest, tokenizer, engine), parts.test)
            languages = [row.language for row in parts.test]
            evaluation["test"] = evaluate(final, outputs, tuned.test, calibration, languages)
            guarantees = measured_on(guarantees, final, outputs, tuned.test, calibration)
            test = {head: one.figures for head, one in evaluation["test"].items()}
            facts["figures"][f"Test rows, measured once ({served.name})"] = _table(test)
            facts["metrics"]["test"] = test
        if guarantees:
            facts["figures"]["Guaranteed error"] = [one.to_dict() for one in guarantees]
        bundle = writer.finish(replace(manifest, variants=tuple(variants), provenance=facts, heads=tuple(final)))
    fitted = Fitted(bundle, figures, test, parity, evaluation, guarantees, target.parent / REPORT)
    write_report(metrics_of(fitted, parts, tuned), fitted.report, tuned.folder)
    return fitted


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

    def run(given: Sequence[Given]) -> Outputs:
        outputs, _ = scorer.outputs(given, False, SERVED_TOKENS)
        return {head.name: values for head, values in zip(scorer.heads, outputs, strict=True)}

    return outputs_of_rows(run, scorer.heads, scorer.reads_pairs, rows)


def _feeds(items: Sequence[Item], pad: int) -> list[dict[str, npt.NDArray[Any]]]:
    step = max(1, len(items) // RANGE_ROWS)
    return [{name: value.numpy() for name, value in collate([item], pad).items()} for item in items[::step]]


def _facts(tuned: Tuned, parts: Parts, start: Start) -> dict[str, Any]:
    """What the card tells; ``run`` holds what differs between two runs that went alike."""
    cut = sum(item.cut for part in (tuned.train, tuned.validation, tuned.held, tuned.test) for item in part)
    return {
        "base_model": start.name,
        **({"parent": start.parent} if start.parent else {}),
        **({"teacher": tuned.teacher} if tuned.teacher else {}),
        "rows": {
            "train": len(parts.train),
            "validation": len(parts.validation) - len(tuned.held),
            **({"for the guarantee": len(tuned.held)} if tuned.held else {}),
            "test": len(parts.test),
            "left out": parts.left_out,
            "cut": cut,
            **({"labelled by the model": parts.pseudo} if parts.pseudo else {}),
        },
        **({"languages_with_heads": list(tuned.model.languages)} if tuned.model.languages else {}),
        "data_sha256": data_hashes(parts),
        "seed": tuned.settings.seed,
        "hyper_parameters": asdict(tuned.settings),
        "score": round(tuned.score, 4),
        "run": {
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": round(tuned.seconds, 3),
            "environment": environment(),
        },
    }


def _table(figures: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    return [{"head": name, **{key: round(value, 4) for key, value in found.items()}} for name, found in figures.items()]
