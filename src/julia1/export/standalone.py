"""``julia1 export``: the model of a bundle for use outside julia1, compared with PyTorch before anybody gets it.

    onnx      ``model.onnx``: one file of the standard operator domain, weights inside, constants folded
    exported  ``model.pt2``: a program of ``torch.export``, the successor of TorchScript
    eager     ``model.safetensors``: the state dict of the PyTorch module; ``julia1.model.load_eager`` builds it again

Beside it lie ``tokenizer.json`` and ``config.json``, which says how to read the outputs and what the module is made of.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from julia1.bundle import Bundle, FileEntry
from julia1.bundle.files import partial_name, reason
from julia1.bundle.heads import FeatureSpec
from julia1.errors import BundleError, InputError
from julia1.export.fixed_graph import fixed_graph
from julia1.export.graph_builder import OPSET
from julia1.export.onnx_file import require_opset, save, standalone
from julia1.export.option_graph import option_graph
from julia1.export.parity import FP32_LIMIT, Parity, measure_parity, require_parity
from julia1.export.running import ComparedEngines, ModuleEngine, ModuleScorer, exported_program, load_program
from julia1.export.samples import QUESTIONS, TEXTS
from julia1.export.shared_weights import SharedWeights
from julia1.export.writing import save_program, writing
from julia1.model.eager import CONFIG_FILE, STATE_FILE, DecisionModel, describe, load_eager, save_state
from julia1.model.fixed_model import FixedModel
from julia1.model.weights import load_fixed, load_weights
from julia1.runtime.decider import token_limits
from julia1.runtime.engines import Engine, open_engine
from julia1.runtime.fixed import ATTENTION_MASK, CATEGORIES, HEAD, INPUT_IDS, NUMBERS, FixedScorer, Given
from julia1.runtime.scorer import OptionScorer
from julia1.text.options import OptionsEncoding, Row
from julia1.text.tokenizer import TextTokenizer

FORMATS = ("onnx", "exported", "eager")
PRECISIONS = ("fp32", "int8")
FILES = {"onnx": "model.onnx", "exported": "model.pt2", "eager": STATE_FILE}
TOKENIZER_FILE = "tokenizer.json"
EXPORT_KEY = "julia1_export"
EXPORT_VERSION = 1
PARITY_ROWS = 64
MOST_CATEGORIES = 48
"""With the built-in texts alone they make ``PARITY_ROWS``."""
ALONE, TOGETHER = 1, 2048
"""Padded tokens of a batch: each row by itself, then rows of all lengths together."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: where.
        files: names in it.
        format, precision: as asked for.
        opset: of an ONNX file, else 0.
        parity: against the PyTorch model, on real inputs.
    """

    folder: Path
    files: tuple[str, ...]
    format: str
    precision: str
    opset: int
    parity: Parity


def export_bundle(
    bundle: Bundle,
    target: Path,
    format: str = "onnx",
    *,
    opset: int | None = None,
    precision: str = "fp32",
    given: Sequence[Given] = (),
) -> Exported:
    """Write the model of a bundle to the new folder ``target``; on any error nothing is left there.

    Args:
        bundle: with its checkpoint.
        target: a folder that does not exist or is empty.
        format: one of ``FORMATS``.
        opset: of the ONNX file; that of the bundle's graphs when ``None``.
        precision: ``fp32``, or for ONNX ``int8``.
        given: inputs to compare on; built-in texts when empty.

    Raises:
        InputError: a format, operator set or precision that cannot be written, or ``target`` is in the way.
        BundleError: the bundle has no checkpoint, a file of it is wrong, its tokenizer has ids that its encoder has no
            embedding for, or a file cannot be written.
        VerificationError: an fp32 model departs from PyTorch by 1e-4 or more, or an int8 one gives no numbers.
    """
    _check_wishes(format, opset, precision)
    target = Path(target)
    weights = weight_file(bundle)
    with _new_folder(target) as folder:
        reference = load_fixed(weights) if bundle.manifest.kind == "fixed" else load_weights(weights)
        tokenizer = TextTokenizer.from_file(bundle.path(bundle.manifest.tokenizer))
        _check_vocabulary(bundle, reference, tokenizer)
        path = folder / FILES[format]
        files = [path]
        if format == "onnx":
            build = fixed_graph if bundle.manifest.kind == "fixed" else option_graph
            graph = standalone(build(SharedWeights(weights), precision), weights.parent, opset or OPSET)
            with writing(target / path.name):
                files = save(graph, path)
            onnx.checker.check_model(str(path), full_check=True)
        elif format == "exported":
            program = exported_program(reference, _example(reference, bundle, tokenizer))
            with writing(target / path.name):
                save_program(program, path)
        else:
            with writing(target / path.name):
                save_state(reference, path)
        written_opset = (opset or OPSET) if format == "onnx" else 0
        config = _config(bundle, reference, format, precision, written_opset)
        with writing(target):
            content = json.dumps(config, ensure_ascii=False, indent=2) + "\n"
            (folder / CONFIG_FILE).write_text(content, encoding="utf-8")
            shutil.copyfile(bundle.path(bundle.manifest.tokenizer), folder / TOKENIZER_FILE)
            for file in folder.iterdir():
                file.chmod(0o644)  # safetensors writes for the owner alone
        parity = _parity(bundle, reference, tokenizer, path, format, given)
        require_parity(parity, FP32_LIMIT if precision == "fp32" else math.inf)
        names = (*(file.name for file in files), CONFIG_FILE, TOKENIZER_FILE)
    return Exported(target, names, format, precision, written_opset, parity)


def weight_file(bundle: Bundle) -> Path:
    """The weights of a bundle, hashed; raises ``BundleError`` where there are none."""
    entries: Sequence[FileEntry] = bundle.check_checkpoint()
    for entry in entries:
        if entry.path.endswith(".safetensors"):
            return bundle.path(entry)
    raise InputError(f"{bundle.source} has no weights in its checkpoint ({', '.join(e.path for e in entries)})")


def built_in_inputs(pairs: bool, features: FeatureSpec) -> list[Given]:
    """The built-in texts, each with the next as its second where a model reads pairs.

    Where it has features, once with all of them missing, and once with values: numbers a standard deviation above or
    below their mean, and every known category in turn, of ``MOST_CATEGORIES`` at most.
    """
    seconds = [*TEXTS[1:], TEXTS[0]] if pairs else [None] * len(TEXTS)
    plain = [Given(text, second) for text, second in zip(TEXTS, seconds, strict=True)]
    if not features:
        return plain
    most = min(MOST_CATEGORIES, max((len(values) for values in features.categories.values()), default=0))
    valued = []
    for i in range(max(len(plain), most)):
        values: dict[str, float | str] = {
            name: mean + (spread if i % 2 else -spread) for name, (mean, spread) in features.numbers.items()
        }
        values.update((name, known[i % len(known)]) for name, known in features.categories.items() if known)
        valued.append(plain[i % len(plain)]._replace(features=values))
    return [*plain, *valued]


def option_rows(encoding: OptionsEncoding, texts: Sequence[Any]) -> list[Row]:
    """The rows of texts, each asked one of the built-in questions, in turn."""
    questions = list(QUESTIONS.items())
    rows: list[Row] = []
    for number, text in enumerate(texts):
        name, question = questions[number % len(questions)]
        rows += encoding.encode(text, {name: question})[0]
    return rows


def _check_wishes(format: str, opset: int | None, precision: str) -> None:
    for name, value, known in (("format", format, FORMATS), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise InputError(f"the {name} is {value!r}: one of {', '.join(known)}")
    if format != "onnx" and opset is not None:
        raise InputError(f"an opset is for the format onnx, not for {format}: leave it out")
    if format != "onnx" and precision != "fp32":
        raise InputError(f"{precision} is for the format onnx: {format} holds fp32")
    if opset is not None:
        require_opset(opset)


def _check_vocabulary(bundle: Bundle, model: DecisionModel, tokenizer: TextTokenizer) -> None:
    encoder: Any = model.encoder
    rows = int(encoder.get_input_embeddings().num_embeddings)
    piece, last = max(tokenizer.vocabulary().items(), key=lambda item: item[1])
    if last >= rows:
        raise BundleError(
            f"{bundle.source}: its tokenizer has ids up to {last:,} ({piece!r}) and its encoder {rows:,} embeddings: "
            "pack the tokenizer that it was trained with"
        )


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside ``target`` that takes its name when all went well, and else is gone."""
    target = target.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already: remove it, or name another folder")
    folder = target.with_name(partial_name(target.name))
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"cannot write in {folder.parent}: {reason(error)}") from None
    try:
        yield folder
        with writing(target):
            if target.exists():
                target.rmdir()
            folder.replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _config(bundle: Bundle, model: DecisionModel, format: str, precision: str, opset: int) -> dict[str, Any]:
    """What ``config.json`` says."""
    manifest = bundle.manifest.to_dict()
    names = ("name", "version", "kind", "encoding", "heads", "features", "calibration")
    outputs = {HEAD.format(number): head.name for number, head in enumerate(bundle.manifest.heads)}
    return {
        EXPORT_KEY: EXPORT_VERSION,
        "format": format,
        "precision": precision,
        **({"opset": opset} if opset else {}),
        **{name: manifest[name] for name in names if name in manifest},
        **({"outputs": outputs} if outputs and format == "onnx" else {}),
        **describe(model),
    }


def _example(model: DecisionModel, bundle: Bundle, tokenizer: TextTokenizer) -> dict[str, Any]:
    """A batch to trace with: two rows, so that no axis has the length 1."""
    if isinstance(model, FixedModel):
        ids = np.full((2, 8), tokenizer.pad, np.int64)
        ids[:, :6] = tokenizer.cls
        example: dict[str, Any] = {INPUT_IDS: ids, ATTENTION_MASK: (np.arange(8) < 6) * np.ones((2, 1), np.int64)}
        if model.features is not None:
            example[NUMBERS] = np.full((2, len(model.feature_spec.numbers)), np.nan, np.float32)
            example[CATEGORIES] = np.zeros((2, len(model.feature_spec.categories)), np.int64)
        return example
    encoding = OptionsEncoding(tokenizer, token_limits(bundle.manifest))
    return dict(encoding.collate(option_rows(encoding, TEXTS[:2])).feeds())


def _parity(
    bundle: Bundle, reference: DecisionModel, tokenizer: TextTokenizer, path: Path, format: str, given: Sequence[Given]
) -> Parity:
    """How far what was written departs from PyTorch: read back from its file, on rows alone and in padded batches."""
    manifest = bundle.manifest
    chosen = given or built_in_inputs(manifest.encoding.type == "pair", manifest.features)
    chosen = chosen[:: max(1, len(chosen) // PARITY_ROWS)][:PARITY_ROWS]
    call: Callable[..., Any] | None = None
    engine: Engine | None = None
    if format == "onnx":
        engine = open_engine("onnxruntime", path, torch.get_num_threads())
    else:
        call = load_program(path).module() if format == "exported" else load_eager(path.parent)
    if isinstance(reference, FixedModel):
        candidate = engine or ModuleEngine(call, manifest.heads)  # type: ignore[arg-type]
        compared = ComparedEngines(ModuleEngine(reference, manifest.heads), candidate)
        scorer = FixedScorer(manifest, tokenizer, compared)
        for tokens in (ALONE, TOGETHER):
            scorer.outputs(chosen, False, tokens)
        return compared.parity
    encoding = OptionsEncoding(tokenizer, token_limits(manifest))
    rows = option_rows(encoding, [one.state for one in chosen])
    scores: OptionScorer | ModuleScorer = (
        OptionScorer(engine, tokenizer.pad, 0) if engine is not None else ModuleScorer(call, encoding)  # type: ignore[arg-type]
    )
    batches = [*([row] for row in rows), *(rows[start : start + 8] for start in range(0, len(rows), 8))]
    return measure_parity(reference, scores, encoding, batches)


def to_dict(exported: Exported) -> dict[str, Any]:
    """Plain data of what was written."""
    parity = asdict(exported.parity)
    parity["compared"] = parity.pop("options")
    return {
        "folder": str(exported.folder),
        "files": {name: (exported.folder / name).stat().st_size for name in exported.files},
        "format": exported.format,
        "precision": exported.precision,
        "opset": exported.opset or None,
        "parity": parity,
    }
