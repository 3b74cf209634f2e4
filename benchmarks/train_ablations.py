"""What each mechanism of ``julia1 train`` is worth: the same rows with it and without.

Measured on rows that are neither trained on nor stopped by (what is left of the training rows where only some are
trained on, else half of the validation rows); test rows are not read. Several seeds draw the rows, the new layers and
the order anew.

  pooling, layer_decay, label_vectors     banking77, 10 rows a class
  pseudo_labels, teacher                  banking77, 10 rows a class; further rows without labels; a teacher of all rows
  language_heads, language_balance        massive, 4,000 English and 400 Chinese rows, 5 epochs
  windows                                 movie_reviews_long, 240 reviews
  features                                nlupp with its column subset (banking or hotels)
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from _common import bundle_path, parser, print_table, run, sample, write_json
from _problems import Problem, Task, load_problem
from julia1 import InputError
from julia1.bundle import Bundle
from julia1.train.data.balancing import Target, balance
from julia1.train.data.rows import DataRow, DataSet, find_heads
from julia1.train.finetune import outputs_of
from julia1.train.fit import tune
from julia1.train.items import make_items
from julia1.train.metrics import MAIN, figures_of
from julia1.train.package import Tuned
from julia1.train.parts import Parts
from julia1.train.pseudo import PseudoLabels, label
from julia1.train.start import Start, start_from_bundle
from julia1.train.teaching import find_teacher

FEW = Task("banking77", per_label=10)
UNEVEN = Task("massive", settings={"epochs": 5})
MEASURED = 2500
SEEDS = (1, 2)


@dataclass
class Trial:
    """One training.

    Attributes:
        problem: rows and settings.
        measured: rows to measure on.
        more: training rows that ``problem`` does not have.
        changes: hyper-parameters that differ.
    """

    problem: Problem
    measured: list[DataRow]
    more: list[DataRow]
    changes: dict[str, Any] = field(default_factory=dict)

    def plain(self, train: Sequence[DataRow] | None = None) -> Tuned:
        """Train with nothing changed; mechanisms that are measured on the same rows share it."""
        key = tuple(row.place for row in (*(train or self.problem.train), *self.problem.val)), self.problem.settings
        if _plain.get("key") != key:
            _plain.update(key=key, tuned=self.tune(train))
        return _plain["tuned"]

    def tune(self, train: Sequence[DataRow] | None = None, **more: Any) -> Tuned:
        """Train as ``julia1 train`` does."""
        parts = Parts(list(train or self.problem.train), self.problem.val, [])
        with tempfile.TemporaryDirectory() as folder:
            return tune(parts, self.problem.start, Path(folder), replace(self.problem.settings, **self.changes), **more)

    def figure(self, tuned: Tuned, rows: Sequence[DataRow] | None = None) -> float:
        """The head's main figure on the measured rows, or on some of them."""
        specs = list(tuned.model.specs)
        items = make_items(rows or self.measured, specs, tuned.tokenizer, tuned.settings, tuned.features, tuned.pair)
        found = figures_of(specs, outputs_of(tuned.model, items, tuned.tokenizer.pad, tuned.settings), items)
        return found[specs[0].name][MAIN[specs[0].kind]]


_plain: dict[str, Any] = {}
"""The last plain training and what it was made of."""

Variants = Iterator[tuple[str, float]]
"""What was done, and the figure."""


def pooling(args: Namespace, start: Start, seed: int) -> Variants:
    """What the head reads of a text."""
    trial = trial_of(FEW, args, start, seed)
    yield "cls+mean+max", trial.figure(trial.plain())
    for name in ("mean", "cls"):
        trial.changes = {"pooling": name}
        yield name, trial.figure(trial.tune())


def layer_decay(args: Namespace, start: Start, seed: int) -> Variants:
    """Lower rates for lower layers."""
    trial = trial_of(FEW, args, start, seed)
    yield "layer-wise rates (0.9)", trial.figure(trial.plain())
    trial.changes = {"layer_decay": 1.0}
    yield "one rate", trial.figure(trial.tune())


def label_vectors(args: Namespace, start: Start, seed: int) -> Variants:
    """Labels compared with the text by vectors, and where those start."""
    trial = trial_of(FEW, args, start, seed)
    yield "from names and rows", trial.figure(trial.plain())
    with patch("julia1.train.vectors.EXAMPLES", 0):
        yield "from names", trial.figure(trial.tune())
    with patch("julia1.train.fit.NAMED_KINDS", ()):
        yield "no label vectors", trial.figure(trial.tune())


def pseudo_labels(args: Namespace, start: Start, seed: int) -> Variants:
    """Rows that the model labels itself."""
    trial = trial_of(FEW, args, start, seed)
    unlabelled = trial.more[:3000]
    tuned = trial.plain()
    added = label(tuned, unlabelled, trial.problem.train, PseudoLabels(threshold=0.9, quota=40))
    yield f"with {len(added):,} labelled by the model", trial.figure(trial.tune([*trial.problem.train, *added]))
    yield "labelled rows alone", trial.figure(tuned)


def teacher(args: Namespace, start: Start, seed: int) -> Variants:
    """A teacher that was trained on all rows, and what it makes of the few."""
    if args.teacher is None:
        raise InputError("the ablation of teachers needs --teacher BUNDLE, trained on banking77 with the head 'answer'")
    trial, known = trial_of(FEW, args, start, seed), find_teacher(args.teacher)
    # of the other rows the teacher knows the labels
    trial.measured, trial.problem.val = trial.problem.val[::2], trial.problem.val[1::2]
    for name, changes in {
        "labels and teacher (0.7, T 2)": {"teacher_share": 0.7},
        "and its likeness of texts": {"teacher_share": 0.7, "teacher_hidden": 5.0},
    }.items():
        trial.changes = changes
        yield name, trial.figure(trial.tune(teacher=known))
    trial.changes = {}
    yield "labels alone", trial.figure(trial.tune())


def language_heads(args: Namespace, start: Start, seed: int) -> Variants:
    """Heads for each language; figures of the rare one."""
    trial = trial_of(UNEVEN, args, start, seed)
    train = uneven(trial.problem.train, seed)
    rare = [row for row in trial.measured if row.language == "zh"]
    plain = trial.figure(trial.plain(train), rare)
    trial.changes = {"language_heads": True}
    yield "heads by language, Chinese", trial.figure(trial.tune(train), rare)
    yield "shared head, Chinese", plain


def language_balance(args: Namespace, start: Start, seed: int) -> Variants:
    """Rows of the rare language repeated (``julia1 data balance --by language --power 0.5``); its figures."""
    trial = trial_of(UNEVEN, args, start, seed)
    train = uneven(trial.problem.train, seed)
    rare = [row for row in trial.measured if row.language == "zh"]
    even = balance(DataSet(train, find_heads(train)), Target(power=0.5), by="language", seed=seed)
    by_text = {(row.text, row.language): row for row in train}
    rows = [by_text[row["text"], row["lang"]] for row in even.rows]
    plain = trial.figure(trial.plain(train), rare)
    yield "balanced, Chinese", trial.figure(trial.tune(rows), rare)
    yield "as they are, Chinese", plain


def windows(args: Namespace, start: Start, seed: int) -> Variants:
    """Long texts in parts, or cut."""
    task = Task("movie_reviews_long", rows=240, settings={"max_tokens": 128, "epochs": 4})
    trial = trial_of(task, args, start, seed)
    trial.measured = sample(trial.measured, 300)
    for name, changes in {
        "8 windows of 128, attention": {"windows": 8, "aggregation": "attention"},
        "8 windows of 128, mean": {"windows": 8},
        "cut at 128 tokens": {},
    }.items():
        trial.changes = changes
        yield name, trial.figure(trial.tune())


def features(args: Namespace, start: Start, seed: int) -> Variants:
    """A structured column beside the text."""
    trial = trial_of(Task("nlupp"), args, start, seed)
    plain = trial.problem.train, trial.problem.val, trial.measured
    fused = [[replace(row, features={"subset": row.data["subset"]}) for row in rows] for rows in plain]
    trial.problem.train, trial.problem.val, trial.measured = fused
    yield "text and column", trial.figure(trial.tune())
    trial.problem.train, trial.problem.val, trial.measured = plain
    yield "text alone", trial.figure(trial.tune())


ABLATIONS: dict[str, Callable[[Namespace, Start, int], Variants]] = {
    made.__name__: made
    for made in (
        pooling, layer_decay, label_vectors, pseudo_labels, teacher, language_heads, language_balance, windows, features
    )
}  # fmt: skip


def main() -> None:
    args = arguments()
    unknown = [name for name in args.only if name not in ABLATIONS]
    if unknown:
        raise InputError(f"--only: there is no {', '.join(unknown)}; known: {', '.join(ABLATIONS)}")
    start = start_from_bundle(Bundle.open(bundle_path(args)))
    table, records = [], []
    for name in args.only:
        found: dict[str, list[float]] = {}
        for seed in args.seeds:
            began = time.monotonic()
            # a name may hold a number that depends on the seed
            for place, (variant, figure) in enumerate(ABLATIONS[name](args, start, seed)):
                found.setdefault(list(found)[place] if place < len(found) else variant, []).append(figure)
                seconds = round(time.monotonic() - began)
                records.append({"mechanism": name, "variant": variant, "seed": seed, "figure": figure})
                print(f"{name}  seed {seed}  {variant}: {figure:.4f}  ({seconds} s)", flush=True)
        write_json(args, {"records": records})
        first = np.array(next(iter(found.values())))
        for variant, figures in found.items():
            gains = 100 * (first - np.array(figures))
            gain = (
                ""
                if figures is next(iter(found.values()))
                else f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f})"
            )
            table.append([name, variant, " ".join(f"{figure:.3f}" for figure in figures), gain])
    print()
    print_table(["mechanism", "variant", "by seed", "points that the first is better"], table)


def arguments() -> Namespace:
    made = parser(__doc__)
    made.add_argument("--only", type=lambda s: s.split(","), default=list(ABLATIONS), help="such as pooling,windows")
    made.add_argument("--seeds", type=lambda s: [int(one) for one in s.split(",")], default=list(SEEDS), help="1,2")
    made.add_argument("--threads", type=int, default=2, help="of PyTorch (default: %(default)s)")
    made.add_argument("--teacher", type=Path, metavar="BUNDLE", help="trained on all of banking77")
    return made.parse_args()


def trial_of(task: Task, args: Namespace, start: Start, seed: int) -> Trial:
    """A problem, and rows to measure on that it neither trains on nor stops by."""
    problem = load_problem(
        replace(task, settings={**task.settings, "threads": args.threads}), args.data, start, seed=seed
    )
    used = {row.place for row in (*problem.train, *problem.val)}
    whole = load_problem(replace(task, per_label=None, rows=None), args.data, start, seed=seed)
    rest = sample([row for row in whole.train if row.place not in used], None)
    if len(rest) < MEASURED // 5:
        measured, problem.val = problem.val[::2], problem.val[1::2]
        return Trial(problem, measured, [])
    shuffled = [rest[i] for i in np.random.default_rng(seed).permutation(len(rest))]
    return Trial(problem, shuffled[:MEASURED], shuffled[MEASURED:])


def uneven(rows: Sequence[DataRow], seed: int) -> list[DataRow]:
    """4,000 English rows and 400 Chinese ones."""
    by_language = {name: [row for row in rows if row.language == name] for name in ("en", "zh")}
    return [*sample(by_language["en"], 4000, seed), *sample(by_language["zh"], 400, seed)]


if __name__ == "__main__":
    run(main)
