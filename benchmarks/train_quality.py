"""Quality of ``julia1 train`` on real sets, beside what people usually do with the same rows.

  julia1       heads on the bundled model's encoder, default settings; measured in PyTorch, fp32
  TF-IDF       word and character n-grams, logistic regression
  frozen       mean vectors of the same encoder, not trained, logistic regression
  [CLS]        the same encoder fine-tuned as is usual: [CLS], one linear layer, one rate, the same rows and epochs

Every set is trained on its train split, stopped by its val split (a tenth of train where it has none) and measured on
its test split, once. Figures: macro-F1 for choices, micro-F1 for labels, quadratic kappa for scores.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline

from _common import SEED, bundle_path, parser, print_table, run, sample, write_json
from julia1 import InputError
from julia1.bundle import Bundle
from julia1.bundle.heads import FeatureSpec, HeadSpec
from julia1.model.fixed_model import FixedModel
from julia1.text import TextTokenizer
from julia1.train.data.rows import DataRow, find_heads
from julia1.train.data.splitting import split_rows
from julia1.train.finetune import FineTuner, outputs_of
from julia1.train.fit import new_fixed_model, text_vectors
from julia1.train.items import Item, head_specs, make_items
from julia1.train.metrics import MAIN, figures_of
from julia1.train.recipe import FineTuning
from julia1.train.sources import read_set
from julia1.train.start import Start, start_from_bundle


@dataclass(frozen=True)
class Task:
    """A set to train on.

    Attributes:
        set: folder name.
        per_label: take so many training rows of each label; all when ``None``.
        epochs: at most.
        max_tokens: tokens that are read of a text.
        by_language: also print a figure for each language.
    """

    set: str
    per_label: int | None = None
    epochs: int = 8
    max_tokens: int = 64
    by_language: bool = False


TASKS = {
    "banking77": Task("banking77"),
    "banking77, 10 a class": Task("banking77", per_label=10, epochs=20),
    "massive": Task("massive", epochs=6, by_language=True),
    "nlupp": Task("nlupp", epochs=15),
    "it_tickets": Task("it_tickets", epochs=5, max_tokens=160),
    "sms_spam": Task("sms_spam", epochs=5),
    "asap_sample": Task("asap_sample", epochs=20, max_tokens=256),
}
Predict = Callable[[Sequence[DataRow]], npt.NDArray[np.float32]]


@dataclass
class Problem:
    """Rows of one task, ready for every contender."""

    spec: HeadSpec
    start: Start
    tokenizer: TextTokenizer
    settings: FineTuning
    train: list[DataRow]
    val: list[DataRow]
    test: list[DataRow]

    def items(self, rows: Sequence[DataRow]) -> list[Item]:
        """The rows as the model takes them."""
        return make_items(rows, [self.spec], self.tokenizer, self.settings)

    def figure(self, outputs: npt.NDArray[np.float32], rows: Sequence[DataRow]) -> float:
        """The head's main figure."""
        return figures_of([self.spec], {self.spec.name: list(outputs)}, self.items(rows))[self.spec.name][
            MAIN[self.spec.kind]
        ]


def main() -> None:
    args = arguments()
    unknown = [name for name in args.tasks if name not in TASKS]
    if unknown:
        raise InputError(f"--tasks: there is no {', '.join(unknown)}; known: {', '.join(TASKS)}")
    contenders: dict[str, Callable[[Problem], Predict]] = {
        "julia1": julia1_default,
        "TF-IDF": tfidf,
        "frozen": frozen,
        "[CLS]": cls_linear,
    }
    start = start_from_bundle(Bundle.open(bundle_path(args)))
    table, records = [], []
    for name in args.tasks:
        problem = load_task(TASKS[name], args, start)
        cells = []
        for contender in args.contenders:
            began = time.monotonic()
            predict = contenders[contender](problem)
            found = predict(problem.test)
            figure = problem.figure(found, problem.test)
            seconds = time.monotonic() - began
            record: dict[str, Any] = {
                "task": name,
                "contender": contender,
                "figure": figure,
                "seconds": round(seconds, 1),
            }
            if TASKS[name].by_language:
                record["accuracy_by_language"] = accuracy_by_language(problem, found)
            records.append(record)
            print(record, flush=True)
            cells.append(f"{figure:.3f}")
        table.append([name, MAIN[problem.spec.kind], f"{len(problem.train):,}", f"{len(problem.test):,}", *cells])
    print()
    print_table(["task", "figure", "train", "test", *args.contenders], table)
    write_json(args, {"records": records})


def arguments() -> Namespace:
    made = parser(__doc__)
    made.add_argument(
        "--tasks", type=lambda s: [t.strip() for t in s.split(";")], default=list(TASKS), help="between ;"
    )
    made.add_argument(
        "--contenders",
        type=lambda s: s.split(","),
        default=["julia1", "TF-IDF", "frozen", "[CLS]"],
        help="such as julia1",
    )
    made.add_argument("--rows", type=int, metavar="N", help="at most N training rows, for a look")
    return made.parse_args()


def load_task(task: Task, args: Namespace, start: Start) -> Problem:
    """Read a set, cut validation rows where it has none."""
    folder = args.data / task.set
    parts = {
        split: rows_of(folder, split) for split in ("train", "val", "test") if (folder / f"{split}.jsonl").is_file()
    }
    train = parts["train"]
    if "val" not in parts:
        cut = split_rows(train, (9, 1, 0), SEED)
        parts["val"], train = [train[i] for i in cut.val], [train[i] for i in cut.train]
    if task.per_label is not None:
        train = few(train, task.per_label)
    train = sample(train, args.rows)
    (spec,) = head_specs(find_heads([*train, *parts["val"], *parts["test"]]), train)
    settings = replace(FineTuning(), epochs=task.epochs, max_tokens=task.max_tokens, seed=SEED)
    tokenizer = TextTokenizer.from_file(start.tokenizer_file)
    return Problem(spec, start, tokenizer, settings, train, parts["val"], parts["test"])


def rows_of(folder: Path, split: str) -> list[DataRow]:
    """The rows of a normalised set as labelled rows."""
    rows = []
    for number, row in enumerate(read_set(folder, [split]).rows, start=1):
        answer = row["label"] if "label" in row else tuple(row["labels"]) if "labels" in row else float(row["score"])
        place = f"{folder.name}/{split}:{number}"
        rows.append(DataRow(place, row["text"], {"answer": answer}, {}, row.get("lang", ""), "", False, row))
    return rows


def few(rows: Sequence[DataRow], number: int) -> list[DataRow]:
    """So many rows of each label, drawn without replacement."""
    by_label: dict[str, list[DataRow]] = defaultdict(list)
    for row in rows:
        by_label[str(row.answers["answer"])].append(row)
    return [row for own in by_label.values() for row in sample(own, number)]


def julia1_default(problem: Problem) -> Predict:
    """``julia1 train`` without its export."""
    model = new_fixed_model(problem.start, [problem.spec], FeatureSpec(), problem.tokenizer, problem.settings)
    return fine_tuned(problem, model, problem.settings)


def cls_linear(problem: Problem) -> Predict:
    """[CLS] and one linear layer, one rate for all, as most tutorials have it."""
    torch.manual_seed(SEED)
    start = new_fixed_model(problem.start, [problem.spec], FeatureSpec(), problem.tokenizer, problem.settings)
    model = FixedModel(start.encoder, [problem.spec], pooling="cls", dropout=0.1)
    head: Any = model.heads[0]
    head.hidden = torch.nn.Identity()
    head.out = torch.nn.Linear(start.hidden, problem.spec.outputs)
    head.forward = lambda pooled, mean: head.out(head.dropout(pooled))
    plain = replace(
        problem.settings,
        learning_rate=5e-5,
        head_learning_rate=5e-5,
        layer_decay=1.0,
        label_smoothing=0.0,
        level_spread=0.0,
    )
    return fine_tuned(problem, model, plain)


def fine_tuned(problem: Problem, model: FixedModel, settings: FineTuning) -> Predict:
    """Train to the early stop and return what predicts."""
    pad, spec = problem.tokenizer.pad, problem.spec

    def metric(current: FixedModel, items: Sequence[Item]) -> dict[str, float]:
        found = figures_of([spec], outputs_of(current, items, pad, settings), items)
        return {spec.name: found[spec.name][MAIN[spec.kind]]}

    torch.manual_seed(settings.seed)
    with tempfile.TemporaryDirectory() as folder:
        tuner = FineTuner(
            model, problem.items(problem.train), problem.items(problem.val), pad, settings, Path(folder), metric
        )
        tuner.run(lambda record: print("   ", record, flush=True))
    return lambda rows: np.stack(outputs_of(model, problem.items(rows), pad, settings)[spec.name])


def tfidf(problem: Problem) -> Predict:
    """Word and character n-grams."""
    grams = FeatureUnion(
        [
            ("words", TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)),
            (
                "characters",
                TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, max_features=200_000),
            ),
        ]
    )
    grams.fit([row.text for row in problem.train])
    return linear(problem, lambda rows: grams.transform([row.text for row in rows]))


def frozen(problem: Problem) -> Predict:
    """Mean vectors of the encoder as it comes."""
    encoder = new_fixed_model(problem.start, [problem.spec], FeatureSpec(), problem.tokenizer, problem.settings).encoder
    return linear(
        problem,
        lambda rows: (
            torch.nn.functional.normalize(
                text_vectors(encoder, problem.tokenizer, [row.text for row in rows]), dim=-1
            ).numpy()
            * 10
        ),
    )


def linear(problem: Problem, features: Callable[[Sequence[DataRow]], Any]) -> Predict:
    """Logistic regression, one against the rest for several labels; C chosen on the validation rows."""
    targets = np.stack([item.targets[problem.spec.name] for item in problem.items(problem.train)])
    several = problem.spec.kind == "labels"
    wanted = targets if several else targets.argmax(axis=1)
    inputs = features(problem.train)
    best: tuple[float, Any] | None = None
    for strength in (1.0, 10.0, 100.0):
        model = LogisticRegression(C=strength, max_iter=500)
        fitted = (OneVsRestClassifier(model) if several else make_pipeline(model)).fit(inputs, wanted)
        score = problem.figure(decisions(problem.spec, fitted, features(problem.val)), problem.val)
        if best is None or score > best[0]:
            best = score, fitted
    assert best is not None
    chosen = best[1]
    return lambda rows: decisions(problem.spec, chosen, features(rows))


def decisions(spec: HeadSpec, model: Any, inputs: Any) -> npt.NDArray[np.float32]:
    """Log-odds of every label, ``[rows, labels]``; a label that training never had gets the lowest."""
    if spec.kind == "labels":
        return np.asarray(model.decision_function(inputs), np.float32).reshape(inputs.shape[0], -1)
    found = np.full((inputs.shape[0], spec.outputs), -1e9, np.float32)
    found[:, model.classes_] = model.predict_log_proba(inputs)
    return found


def accuracy_by_language(problem: Problem, outputs: npt.NDArray[np.float32]) -> dict[str, float]:
    """Accuracy of a choice for each language of the test rows."""
    right = outputs.argmax(axis=1) == [problem.spec.labels.index(str(row.answers["answer"])) for row in problem.test]
    languages = np.array([row.language for row in problem.test])
    return {str(language): round(float(right[languages == language].mean()), 4) for language in np.unique(languages)}


if __name__ == "__main__":
    run(main)
