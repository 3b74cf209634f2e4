"""Zero-shot quality: sets whose labels, languages or texts were held out of training, all labels offered at once.

Prints accuracy, macro-F1 and ECE (15 equal-width bins of the top probability) of a bundle, beside three baselines:

  majority   the most frequent label of the rows themselves
  TF-IDF     the option nearest in character n-grams (weights from the options and the texts)
  backbone   the option nearest in cosine of the untrained backbone, mean-pooled, "query: " prefix (--backbone)

The question is the set's own; options are shown with or without their descriptions, to the baselines too. Macro-F1 is
scikit-learn's: the mean over the labels that stand in the rows or were answered.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score

import julia1
from _common import Progress, parser, print_table, run, sample, write_json
from julia1 import Choice, ChoiceAnswer, Decider, InputError
from julia1.train.calibrate import expected_calibration_error
from julia1.train.sources import LabelledSet, read_set, text_key

CHUNK = 128
Row = dict[str, Any]
Predict = Callable[[Sequence[str], Choice], list[str]]


@dataclass(frozen=True)
class Evaluation:
    """One test split and the parts of it that get a line of their own.

    Attributes:
        split: ``set/split``.
        languages: read these only; all when empty.
        parts: name to a function that says which rows belong to it, made from the data folder.
        by_language: also print a table with a line a language.
    """

    split: str
    languages: tuple[str, ...] = ()
    parts: Callable[[Path], Mapping[str, Callable[[Row], bool]]] = lambda data: {}
    by_language: bool = False

    def rows(self, data: Path) -> LabelledSet:
        """The rows to answer."""
        name, _, split = self.split.partition("/")
        labelled = read_set(data / name, [split])
        if self.languages:
            labelled.rows = [row for row in labelled.rows if row.get("lang") in self.languages]
        return labelled


def not_in_massive(data: Path) -> Mapping[str, Callable[[Row], bool]]:
    """The hwu64 rows whose text stands nowhere in MASSIVE, which was trained on and shares 44 % of the texts."""
    known = {text_key(row["text"]) for row in read_set(data / "massive", ["train", "val", "test"]).rows}
    return {"not in MASSIVE": lambda row: text_key(row["text"]) not in known}


EVALUATIONS = {
    "banking77": Evaluation("banking77/test"),
    "sib200": Evaluation("sib200/test", ("it", "uk", "vi"), by_language=True),
    "hwu64": Evaluation("hwu64/test", parts=not_in_massive),
    "xsid": Evaluation("xsid/test", by_language=True),
    "xstest": Evaluation("xstest/test"),
}


def main() -> None:
    args = arguments()
    unknown = [name for name in args.sets if name not in EVALUATIONS]
    if unknown:
        raise InputError(f"--sets: there is no {', '.join(unknown)}; known: {', '.join(EVALUATIONS)}")
    decider = julia1.load(args.model, variant=args.variant, threads=args.threads)
    baselines: dict[str, Predict] = {"majority": lambda texts, question: [], "TF-IDF": tfidf_nearest}
    if args.backbone:
        baselines["backbone"] = Backbone(args.backbone).nearest
    print(f"{decider.manifest.name} {decider.manifest.version}, {decider.plan.variant.name}, options: {args.options}\n")
    lines: list[dict[str, Any]] = []
    for name in args.sets:
        lines += measure(decider, name, EVALUATIONS[name], args, baselines)
    print_lines([line for line in lines if not line["language"]])
    for name in args.sets:
        of_languages = [line for line in lines if line["language"] and line["set"] == name]
        if of_languages:
            print(f"{EVALUATIONS[name].split} by language\n")
            print_lines(of_languages)
    write_json(args, {"variant": decider.plan.variant.name, "lines": lines})


def arguments() -> Namespace:
    made = parser(__doc__)
    made.add_argument("--sets", type=lambda s: s.split(","), default=list(EVALUATIONS), help="such as banking77,xsid")
    made.add_argument("--options", choices=("described", "names"), default="described", help="how options are shown")
    made.add_argument("--rows", type=int, metavar="N", help="a seeded sample of N rows a set (default: all)")
    made.add_argument("--backbone", type=Path, metavar="FOLDER", help="Hugging Face folder of the untrained backbone")
    made.add_argument("--variant", help="variant to run (default: the one that julia1 chooses)")
    made.add_argument("--threads", type=int, help="threads of the engine (default: the physical cores)")
    return made.parse_args()


def measure(
    decider: Decider, name: str, evaluation: Evaluation, args: Namespace, baselines: Mapping[str, Predict]
) -> list[dict[str, Any]]:
    """Answer a set and return the figures of it and of each of its parts."""
    labelled = evaluation.rows(args.data)
    rows = sample(labelled.rows, args.rows)
    texts = [row["text"] for row in rows]
    labels = labelled.labels
    question = Choice(labelled.meta["question"], labels if args.options == "described" else list(labels))
    gold = np.array([row["label"] for row in rows])
    found, sure = answers(decider, texts, question, name)
    others = {baseline: np.array(predict(texts, question)) for baseline, predict in baselines.items()}
    everything = np.ones(len(rows), bool)
    parts: list[tuple[str, str, npt.NDArray[np.bool_]]] = [(evaluation.split, "", everything)]
    for part, belongs in evaluation.parts(args.data).items():
        parts.append((f"{evaluation.split}, {part}", "", np.array([belongs(row) for row in rows])))
    if evaluation.by_language:
        spoken = np.array([row["lang"] for row in rows])
        parts += [(language, language, spoken == language) for language in sorted(set(spoken.tolist()))]
    lines = []
    for title, language, inside in parts:
        if not inside.any():
            continue
        kept = gold[inside]
        line = {"set": name, "title": title, "language": language, "rows": len(kept), "options": len(labels)}
        ece = expected_calibration_error(sure[inside], found[inside] == kept)
        line["julia1"] = {**quality(kept, found[inside]), "ece": ece}
        for baseline, predictions in others.items():
            top = Counter(kept.tolist()).most_common(1)[0][0]
            line[baseline] = quality(kept, predictions[inside] if len(predictions) else np.full(len(kept), top))
        lines.append(line)
    return lines


def answers(
    decider: Decider, texts: Sequence[str], question: Choice, name: str
) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.float64]]:
    """The option chosen for each text, and its probability."""
    progress = Progress(name, len(texts))
    chosen: list[str] = []
    sure: list[float] = []
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        for found in decider.decide_many(chunk, {"label": question}):
            answer = found["label"]
            assert isinstance(answer, ChoiceAnswer)
            chosen.append(answer.choice)
            sure.append(answer.probabilities[answer.choice])
        progress.step(len(chunk))
    return np.array(chosen), np.array(sure)


def quality(gold: npt.NDArray[np.str_], found: npt.NDArray[np.str_]) -> dict[str, float]:
    """Accuracy and macro-F1."""
    return {
        "accuracy": float((gold == found).mean()),
        "macro_f1": float(f1_score(gold, found, average="macro", zero_division=0)),
    }


def tfidf_nearest(texts: Sequence[str], question: Choice) -> list[str]:
    """The option with the highest TF-IDF cosine over character n-grams."""
    options = question.option_texts()
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    vectorizer.fit([*options, *texts])
    likeness = (vectorizer.transform(texts) @ vectorizer.transform(options).T).toarray()
    return nearest(likeness, question)


class Backbone:
    """The encoder as it was before training."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        from julia1.model import load_encoder

        self.encoder = load_encoder(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def nearest(self, texts: Sequence[str], question: Choice) -> list[str]:
        """The option with the highest cosine."""
        options = self.vectors(question.option_texts())
        return nearest(self.vectors(texts) @ options.T, question)

    def vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Unit vectors ``[texts, width]``."""
        import torch

        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found: list[Any] = [None] * len(texts)
        progress = Progress("backbone", len(texts))
        for batch in chunks(order, 32):
            words = [f"query: {texts[i]}" for i in batch]
            tokens = self.tokenizer(words, padding=True, truncation=True, max_length=512, return_tensors="pt")
            mask = tokens["attention_mask"]
            with torch.inference_mode():
                states = self.encoder(input_ids=tokens["input_ids"], attention_mask=mask).last_hidden_state
            summed = (states * mask[:, :, None]).sum(1)  # a sum points where a mean does
            for i, vector in zip(batch, torch.nn.functional.normalize(summed, dim=-1).numpy(), strict=True):
                found[i] = vector
            progress.step(len(batch))
        return np.stack(found)


def nearest(likeness: npt.NDArray[Any], question: Choice) -> list[str]:
    """The name of the likeliest option for each row."""
    names = list(question.options)
    return [names[i] for i in likeness.argmax(axis=1)]


def chunks(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Runs of ``size`` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def print_lines(lines: Sequence[Mapping[str, Any]]) -> None:
    """A row a line; a baseline as ``accuracy / macro-F1``."""
    header = ["rows of", "rows", "options", "accuracy", "macro-F1", "ECE", "majority", "TF-IDF", "backbone"]
    table = []
    for line in lines:
        own = [f"{line['julia1'][key]:.3f}" for key in ("accuracy", "macro_f1", "ece")]
        others = [line.get(name) for name in header[6:]]
        cells = [f"{found['accuracy']:.3f} / {found['macro_f1']:.3f}" if found else "-" for found in others]
        table.append([line["title"], f"{line['rows']:,}", str(line["options"]), *own, *cells])
    print_table(header, table)


if __name__ == "__main__":
    run(main)
