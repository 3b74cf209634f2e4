"""What people usually do with labelled rows: each takes a ``Problem`` and returns what predicts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline

from _problems import Outputs, Problem
from julia1.bundle.heads import FeatureSpec
from julia1.model.fixed_model import FixedModel
from julia1.train.data.rows import DataRow
from julia1.train.finetune import FineTuner, outputs_of
from julia1.train.fit import new_fixed_model
from julia1.train.items import Item
from julia1.train.metrics import MAIN, figures_of
from julia1.train.recipe import FineTuning
from julia1.train.vectors import text_vectors

Predict = Callable[[Sequence[DataRow]], Outputs]


def julia1_default(problem: Problem) -> Predict:
    """``julia1 train`` without its export."""
    return fine_tuned(problem, new_model(problem, problem.settings), problem.settings)


def cls_linear(problem: Problem) -> Predict:
    """[CLS] and one linear layer (for tags, on every token), one rate for all, as most tutorials have it."""
    plain = replace(
        problem.settings,
        pooling="cls",
        learning_rate=5e-5,
        head_learning_rate=5e-5,
        layer_decay=1.0,
        label_smoothing=0.0,
        level_spread=0.0,
        token_dropout=0.0,
        patience=100,  # its figures stay at nothing for long where labels are many
    )
    model = new_model(problem, plain)
    head: Any = model.heads[0]
    head.vectors = None
    head.hidden = torch.nn.Identity()
    head.out = torch.nn.Linear(problem.start.config["hidden_size"], problem.spec.outputs)
    head.forward = lambda inputs, *_: head.out(head.dropout(inputs))
    return fine_tuned(problem, model, plain)


def new_model(problem: Problem, settings: FineTuning) -> FixedModel:
    """A model with a new head, the same each time."""
    torch.manual_seed(settings.seed)
    return new_fixed_model(problem.start, [problem.spec], FeatureSpec(), problem.tokenizer, settings, problem.train)


def fine_tuned(problem: Problem, model: FixedModel, settings: FineTuning) -> Predict:
    """Train to the early stop and return what predicts."""
    pad, spec = problem.tokenizer.pad, problem.spec

    def metric(current: FixedModel, items: Sequence[Item]) -> dict[str, float]:
        found = figures_of([spec], outputs_of(current, items, pad, settings), items)
        return {spec.name: found[spec.name][MAIN[spec.kind]]}

    torch.manual_seed(settings.seed)
    with tempfile.TemporaryDirectory() as folder:
        train, validation = (problem.items(rows, settings) for rows in (problem.train, problem.val))
        tuner = FineTuner(model, train, validation, pad, settings, Path(folder), metric, problem.tokenizer.mask)
        tuner.run(lambda record: print("   ", record, flush=True) if record["kind"] == "epoch" else None)
    return lambda rows: outputs_of(model, problem.items(rows, settings), pad, settings)[spec.name]


def tfidf(problem: Problem) -> Predict:
    """Word and character n-grams and a linear model; of a pair the cosine."""
    grams = FeatureUnion(
        [
            ("words", TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)),
            (
                "characters",
                TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, max_features=200_000),
            ),
        ]
    )
    grams.fit([text for row in problem.train for text in (row.text, row.second) if text])

    def read(texts: Sequence[str]) -> Any:
        return grams.transform(texts)

    if problem.spec.kind == "match":

        def predict(rows: Sequence[DataRow]) -> Outputs:
            one, other = read([row.text for row in rows]), read([row.second for row in rows])
            return [np.array([value], np.float32) for value in np.asarray(one.multiply(other).sum(axis=1)).ravel()]

        return predict
    return linear(problem, lambda rows: read([row.text for row in rows]))


def frozen(problem: Problem) -> Predict:
    """Mean vectors of the encoder as it comes and a linear model; of a pair the cosine."""
    encoder = new_model(problem, problem.settings).encoder

    def read(texts: Sequence[str]) -> npt.NDArray[np.float32]:
        vectors = text_vectors(encoder, problem.tokenizer, texts)
        found: npt.NDArray[np.float32] = torch.nn.functional.normalize(vectors, dim=-1).numpy()
        return found

    if problem.spec.kind == "match":

        def predict(rows: Sequence[DataRow]) -> Outputs:
            cosines = (read([row.text for row in rows]) * read([row.second for row in rows])).sum(axis=1)
            return [np.array([value], np.float32) for value in cosines]

        return predict
    return linear(problem, lambda rows: read([row.text for row in rows]) * 10)


def majority_tagger(problem: Problem) -> Predict:
    """The tag that each piece of the vocabulary has most often."""
    pieces, name = problem.tokenizer.vocabulary_size, problem.spec.name
    counts = np.zeros((pieces, problem.spec.outputs), np.float32)
    for item in problem.items(problem.train):
        np.add.at(counts, (np.array(item.ids[1:-1], np.int64), item.targets[name]), 1.0)
    counts[:, 0] += 0.5  # an unknown piece is outside
    return lambda rows: [np.log(counts[item.ids[1:-1]] + 1e-3) for item in problem.items(rows)]


def linear(problem: Problem, features: Callable[[Sequence[DataRow]], Any]) -> Predict:
    """Logistic regression, one against the rest for several labels; C chosen on the validation rows."""
    targets = np.stack([item.targets[problem.spec.name] for item in problem.items(problem.train)])
    several = problem.spec.kind == "labels"
    wanted = targets if several else targets.argmax(axis=1)
    inputs, validation = features(problem.train), features(problem.val)
    best: tuple[float, Any] | None = None
    for strength in (1.0, 10.0, 100.0):
        model = LogisticRegression(C=strength, max_iter=500)
        fitted = (OneVsRestClassifier(model) if several else make_pipeline(model)).fit(inputs, wanted)
        score = problem.figure(decisions(problem, fitted, validation), problem.val)
        if best is None or score > best[0]:
            best = score, fitted
    assert best is not None
    chosen = best[1]
    return lambda rows: decisions(problem, chosen, features(rows))


def decisions(problem: Problem, model: Any, inputs: Any) -> Outputs:
    """Log-odds of every label for each row; a label that training never had gets the lowest."""
    spec = problem.spec
    if spec.kind == "labels":
        return list(np.asarray(model.decision_function(inputs), np.float32).reshape(inputs.shape[0], -1))
    found = np.full((inputs.shape[0], spec.outputs), -1e9, np.float32)
    found[:, model.classes_] = model.predict_log_proba(inputs)
    return list(found)


CONTENDERS: dict[str, Callable[[Problem], Predict]] = {
    "julia1": julia1_default,
    "TF-IDF": tfidf,
    "frozen": frozen,
    "[CLS]": cls_linear,
    "majority": majority_tagger,
}
