"""Quality of ``julia1 train`` on real sets, beside what people usually do with the same rows.

  julia1       heads on the bundled model's encoder, default settings; measured in PyTorch
  TF-IDF       word and character n-grams, logistic regression; of a pair their cosine
  frozen       mean vectors of the same encoder, not trained, logistic regression; of a pair their cosine
  [CLS]        the same encoder fine-tuned as is usual: [CLS], one linear layer, one rate, the same rows and epochs
  majority     for tags: what each piece of the vocabulary is most often

Every set is trained on its train split (its val split where it has none), stopped by its val split (a tenth of what is
trained on where it has none) and measured on its test split, once. The first figure is macro-F1 for choices, F1 for
spam, micro-F1 for labels, quadratic kappa for scores, area under the ROC curve for pairs, span F1 for tags.
"""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import replace
from typing import Any

import numpy as np

from _common import bundle_path, parser, print_table, run, write_json
from _contenders import CONTENDERS
from _problems import Outputs, Problem, Task, load_problem
from julia1 import InputError
from julia1.bundle import Bundle
from julia1.train.metrics import MAIN
from julia1.train.start import start_from_bundle

TASKS = {
    "banking77": Task("banking77"),
    "banking77, 10 a class": Task("banking77", per_label=10),
    "massive": Task("massive", by_language=True),
    "nlupp": Task("nlupp"),
    "it_tickets": Task("it_tickets", settings={"max_tokens": 160}),
    "sms_spam": Task("sms_spam"),
    "asap_sample": Task("asap_sample", settings={"max_tokens": 256}),
    "told_br score": Task("told_br", answer="score", rows=4000),
    "pawsx_zh": Task("pawsx_zh", settings={"max_tokens": 128}),
    "banking77 pairs": Task("banking77", pairs=2000),
    "xsid_slots": Task("xsid_slots"),
}


def main() -> None:
    args = arguments()
    unknown = [name for name in args.tasks if name not in TASKS]
    if unknown:
        raise InputError(f"--tasks: there is no {', '.join(unknown)}; known: {', '.join(TASKS)}")
    start = start_from_bundle(Bundle.open(bundle_path(args)))
    table, records = [], []
    for name in args.tasks:
        problem = load_problem(TASKS[name], args.data, start, args.rows)
        problem.settings = replace(problem.settings, threads=args.threads)
        cells = []
        for contender in args.contenders:
            if not able(contender, problem):
                cells.append("-")
                continue
            began = time.monotonic()
            outputs = CONTENDERS[contender](problem)(problem.val if args.validation else problem.test)
            seconds = time.monotonic() - began
            measured = problem.val if args.validation else problem.test
            figures = problem.figures(outputs, measured)
            record: dict[str, Any] = {"task": name, "contender": contender, "seconds": round(seconds, 1), **figures}
            if name == "sms_spam":
                record["spam_f1"] = one_label_f1(problem, outputs, "spam", measured)
            if TASKS[name].by_language:
                record["accuracy_by_language"] = accuracy_by_language(problem, outputs, measured)
            records.append(record)
            print(record, flush=True)
            cells.append(f"{figures[MAIN[problem.spec.kind]]:.3f}")
        table.append([name, MAIN[problem.spec.kind], f"{len(problem.train):,}", f"{len(problem.test):,}", *cells])
        write_json(args, {"records": records})
    print()
    print_table(["task", "figure", "train", "test", *args.contenders], table)


def able(contender: str, problem: Problem) -> bool:
    """Whether the contender can answer such a question."""
    tags = problem.spec.kind == "tags"
    return tags if contender == "majority" else not tags or contender in ("julia1", "[CLS]")


def arguments() -> Namespace:
    made = parser(__doc__)
    made.add_argument(
        "--tasks", type=lambda s: [t.strip() for t in s.split(";")], default=list(TASKS), help="between ;"
    )
    made.add_argument(
        "--contenders", type=lambda s: s.split(","), default=list(CONTENDERS), help="such as julia1,TF-IDF"
    )
    made.add_argument("--rows", type=int, metavar="N", help="at most N training rows, for a look")
    made.add_argument("--threads", type=int, default=2, help="of PyTorch (default: %(default)s)")
    made.add_argument("--validation", action="store_true", help="measure on validation rows: for choosing settings")
    return made.parse_args()


def one_label_f1(problem: Problem, outputs: Outputs, label: str, rows: list[Any]) -> float:
    """F1 of one label."""
    from sklearn.metrics import f1_score

    number = problem.spec.labels.index(label)
    found = np.stack(outputs).argmax(axis=1) == number
    return float(f1_score([row.answers["answer"] == label for row in rows], found))


def accuracy_by_language(problem: Problem, outputs: Outputs, rows: list[Any]) -> dict[str, float]:
    """Accuracy of a choice for each language."""
    wanted = np.array([problem.spec.labels.index(str(row.answers["answer"])) for row in rows])
    right = np.stack(outputs).argmax(axis=1) == wanted
    languages = np.array([row.language for row in rows])
    return {str(language): round(float(right[languages == language].mean()), 4) for language in np.unique(languages)}


if __name__ == "__main__":
    run(main)
