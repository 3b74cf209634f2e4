"""The recipe of an open-decision model from end to end: vocabulary, backbone, training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from julia1.errors import InputError
from julia1.model.backbone import load_encoder
from julia1.model.option_model import OptionModel
from julia1.questions import Choice
from julia1.text.options import OptionsEncoding
from julia1.text.tokenizer import TextTokenizer
from julia1.text.vocabulary import choose_pieces, count_pieces, trim_tokenizer
from julia1.train.mix import Mix
from julia1.train.recipe import Recipe
from julia1.train.sources import LabelledSet, read_set
from julia1.train.trainer import Evaluate, Report, Trainer, to_tensors

EVALUATION_ROWS = 100


def train_open_decisions(
    recipe: Recipe, data: Path, backbone: Path, output: Path, report: Report | None = None
) -> OptionModel:
    """Run a recipe; a run found in ``output`` is taken up where its last checkpoint left it.

    ``output`` gets ``tokenizer.json`` and ``pieces.json`` (the trimmed vocabulary), ``training.pt`` (the last
    checkpoint) and ``log.jsonl``. Returns the trained model in fp32.
    """
    output.mkdir(parents=True, exist_ok=True)
    mix = Mix(recipe, data)
    pieces = _vocabulary(recipe, mix, data, backbone, output)
    tokenizer = TextTokenizer.from_file(output / "tokenizer.json")
    torch.manual_seed(recipe.seed)
    model = OptionModel(load_encoder(backbone, recipe.layers, pieces))
    training = recipe.training
    limits = replace(recipe.limits, state_tokens=training.state_tokens, pass_tokens=training.pass_tokens)
    trainer = Trainer(model, OptionsEncoding(tokenizer, limits), mix, recipe, output)
    trainer.run(development_check(recipe, data, OptionsEncoding(tokenizer, recipe.limits)), report)
    return model


def development_check(recipe: Recipe, data: Path, encoding: OptionsEncoding) -> Evaluate:
    """A function that measures accuracy on a few rows of each development set, all its labels as bare options."""
    sets = {}
    for name in recipe.development:
        folder, _, split = name.partition("/")
        labelled = read_set(data / folder, [split], recipe.held_out_languages)
        rows = [r for r in labelled.rows if "label" in r or len(r.get("labels", ())) == 1]
        order = np.random.default_rng(recipe.seed).permutation(len(rows))[:EVALUATION_ROWS]
        sets[name] = LabelledSet(folder, labelled.meta, [rows[i] for i in order])

    def check(model: OptionModel) -> dict[str, float]:
        return {name: round(_accuracy(model, encoding, labelled), 3) for name, labelled in sets.items()}

    return check


def _accuracy(model: OptionModel, encoding: OptionsEncoding, labelled: LabelledSet) -> float:
    labels = list(labelled.labels)
    question = encoding.question_tokens("label", Choice(labelled.meta["question"], labels))
    right = 0
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for row in labelled.rows:
            ((trunk, _),) = encoding.trunks([row["text"]])
            scores = np.empty(len(labels))
            for piece in encoding.rows(trunk, [question]):
                logits = model(**to_tensors(encoding.collate([piece])))[0].float().numpy()
                for (_, option), value in zip(piece.slots, logits, strict=True):
                    scores[option] = value
            right += labels[int(scores.argmax())] == (row.get("label") or row["labels"][0])
    return right / max(1, len(labelled.rows))


def _vocabulary(recipe: Recipe, mix: Mix, data: Path, backbone: Path, output: Path) -> list[int]:
    chosen = output / "pieces.json"
    if chosen.is_file():
        pieces: list[int] = json.loads(chosen.read_text())
        return pieces
    source = backbone / "tokenizer.json"
    if not source.is_file():
        raise InputError(f"{backbone} is not a Hugging Face model folder: it has no tokenizer.json")
    tokenizer = Tokenizer.from_file(str(source))
    further = [read_set(data / n.partition("/")[0], [n.partition("/")[2]]) for n in recipe.vocabulary.texts]
    counts = count_pieces(tokenizer, mix.texts_by_language(further))
    pieces = choose_pieces(tokenizer, counts, recipe.vocabulary.size, recipe.vocabulary.favoured)
    trim_tokenizer(source, pieces, output / "tokenizer.json")
    temporary = chosen.with_suffix(".tmp")
    temporary.write_text(json.dumps(pieces))
    temporary.replace(chosen)
    return pieces
