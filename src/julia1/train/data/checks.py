"""Look at labelled rows before training: conflicts, balance, lengths, duplicates, leakage, suspicious labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from julia1.errors import InputError
from julia1.train.data.duplicates import NEAR, content_key, content_of, exact_duplicates, near_duplicates
from julia1.train.data.pairs import Best, Match
from julia1.train.data.rows import ORDINAL_LEVELS, Answer, DataRow, DataSet, Head, is_number, kind_of, labels_of
from julia1.train.data.spans import Spans

PERCENTILES = (50, 90, 95, 99, 100)
RARE = 10
"""A label with fewer rows can hardly be learned, nor measured."""
FOLDS = 5
MOST_DOUBTED = 5_000_000
"""Labels times rows up to which labels are doubted."""
SURE = 0.7
DOUBTFUL = 0.1
"""A label is suspicious when a model that did not see the row gives it less, and another one more than ``SURE``."""


@dataclass(frozen=True)
class Conflict:
    """Rows with the same text and different answers to a question."""

    question: str
    text: str
    answers: dict[str, list[str]]
    """Answer to the places that give it."""


@dataclass(frozen=True)
class Suspicion:
    """A row whose label a model trained on the other rows does not believe."""

    place: str
    question: str
    text: str
    label: str
    probability: float
    suggestion: str
    suggested_probability: float


@dataclass(frozen=True)
class Balance:
    """Rows of each answer of a question, most frequent first, and in each language."""

    question: str
    kind: str
    counts: dict[str, int]
    by_language: dict[str, dict[str, int]]
    missing: int

    @property
    def ratio(self) -> float:
        """Rows of the most frequent answer for each of the least frequent."""
        return max(self.counts.values()) / max(1, min(self.counts.values()))


@dataclass
class DataReport:
    """What ``check_data`` found.

    Attributes:
        rows, augmented: how many.
        languages: rows by language code, '' where none is given.
        balance: of each question.
        lengths: percentile to number of tokens; empty without a tokenizer.
        limit, over_limit: tokens that training reads, and rows that have more.
        exact_duplicates, near_duplicates: rows beyond the first of each, and pairs.
        conflicts, suspicious: see their classes.
        leaks: places of rows of another file that stand in this one, exactly or nearly, with the place here.
        problems: what must be mended before training, one line each.
        warnings: what should be looked at.
    """

    rows: int
    augmented: int
    languages: dict[str, int]
    balance: list[Balance]
    lengths: dict[str, int] = field(default_factory=dict)
    limit: int = 0
    over_limit: int = 0
    exact_duplicates: int = 0
    near_duplicates: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    suspicious: list[Suspicion] = field(default_factory=list)
    leaks: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def check_data(
    data: DataSet,
    others: Mapping[str, DataSet] | None = None,
    *,
    count_tokens: Callable[[Sequence[str]], list[int]] | None = None,
    limit: int = 0,
    near: float | None = NEAR,
    suspicious: bool = True,
) -> DataReport:
    """Check a training set.

    Args:
        data: the rows to train on.
        others: validation and test sets by name: their labels must be known and their texts must not stand in ``data``.
        count_tokens: texts to numbers of tokens.
        limit: tokens that training reads of a text, or of a pair of texts in one row.
        near: likeness from which texts are near duplicates, ``None`` to look for equal ones only.
        suspicious: train small models to find doubtful labels (needs scikit-learn; seconds for 10,000 rows).
    """
    rows = data.rows
    report = DataReport(
        rows=len(rows),
        augmented=sum(row.augmented for row in rows),
        languages=dict(Counter(row.language for row in rows).most_common()),
        balance=[balance_of(head, rows) for head in data.heads.values()],
    )
    same = exact_duplicates(rows)
    report.exact_duplicates = sum(len(members) - 1 for members in same)
    report.conflicts = [conflict for members in same for conflict in conflicts_of([rows[i] for i in members])]
    if near is not None:
        report.near_duplicates = len(near_duplicates([content_of(row) for row in rows], near))
    if count_tokens is not None:
        tokens = np.asarray(count_tokens([row.text for row in rows]))
        if reads_both(data):  # in one row of the encoder, a token between them
            tokens += 1 + np.asarray(count_tokens([row.second for row in rows]))
        report.lengths = {str(p): int(np.percentile(tokens, p)) for p in PERCENTILES}
        report.limit, report.over_limit = limit, int((tokens > limit).sum())
    for head in data.heads.values():
        report.problems += _problems(head, rows)
        if suspicious and head.kind == "choice" and len(head.labels) > 1:
            report.suspicious += suspicious_labels(head, rows)
    for name, other in (others or {}).items():
        report.problems += unknown_labels(data, other, name)
        report.leaks += leaks(rows, other.rows, near)
    report.warnings = _warnings(report)
    if data.features_alone:
        report.warnings.insert(0, data.features_alone)
    return report


def reads_both(data: DataSet) -> bool:
    """Whether training, left to choose the pairing, reads both texts of a row in one."""
    return any(row.second for row in data.rows) and not any(head.kind == "rank" for head in data.heads.values())


def balance_of(head: Head, rows: Sequence[DataRow]) -> Balance:
    """How often each answer of a question stands, scores in tenths of their range."""
    answered = [(row, row.answers[head.name]) for row in rows if head.name in row.answers]
    shown = _names_of(head, [answer for _, answer in answered])
    counts: Counter[str] = Counter()
    by_language: dict[str, Counter[str]] = defaultdict(Counter)
    for row, answer in answered:
        for name in shown(answer):
            counts[name] += 1
            by_language[row.language][name] += 1
    return Balance(
        head.name,
        head.kind,
        dict(counts.most_common()),
        {language: dict(found.most_common()) for language, found in sorted(by_language.items())},
        len(rows) - len(answered),
    )


def conflicts_of(rows: Sequence[DataRow]) -> list[Conflict]:
    """Questions that rows with one text answer differently."""
    found = []
    for name in dict.fromkeys(name for row in rows for name in row.answers):
        places: dict[str, list[str]] = {}
        for row in rows:
            if name in row.answers:
                places.setdefault(_plain(row.answers[name]), []).append(row.place)
        if len(places) > 1:
            found.append(Conflict(name, rows[0].text[:200], places))
    return found


def unknown_labels(data: DataSet, other: DataSet, name: str) -> list[str]:
    """A line for each question, type of answer, label or level of ``other`` that ``data`` does not have."""
    lines = []
    for row in other.rows:
        for question, answer in row.answers.items():
            head = data.heads.get(question)
            if head is None:
                lines.append(f"{row.place}: the {name} rows answer {question!r}, which no training row does")
            elif kind_of(answer) != head.kind:
                lines.append(
                    f"{row.place}: the {name} rows answer {question!r} with values of another type than training"
                )
            else:
                missing = [label for label in labels_of(answer) if label not in head.labels]
                lines += [f"{row.place}: the label {label!r} stands in no training row" for label in missing]
    for head in data.heads.values():
        if head.kind == "score" and not is_number(head.name, data.rows):
            known = {row.answers[head.name] for row in data.rows if head.name in row.answers}
            lines += [
                f"{row.place}: the level {row.answers[head.name]:g} of {head.name!r} stands in no training row"
                for row in other.rows
                if kind_of(row.answers.get(head.name, "")) == "score" and row.answers[head.name] not in known
            ]
    return list({line.partition(": ")[2]: line for line in reversed(lines)}.values())[::-1]


def leaks(rows: Sequence[DataRow], others: Sequence[DataRow], near: float | None = NEAR) -> list[tuple[str, str]]:
    """Places of ``others`` that stand in ``rows``, exactly, nearly or by their group, each with the place there."""
    places = {content_key(content_of(row)): row.place for row in rows}
    groups = {row.group: row.place for row in rows if row.group}
    found: dict[str, str] = {}
    for row in others:
        there = places.get(content_key(content_of(row))) or groups.get(row.group)
        if there is not None:
            found[row.place] = there
    if near is not None:
        together = [*rows, *others]
        contents = [content_of(row) for row in together]
        near_keys: dict[str, str] = {}
        for first, second in near_duplicates(contents, near):
            if first < len(rows) <= second:
                near_keys.setdefault(content_key(contents[second]), together[first].place)
        for row in others:
            key = content_key(content_of(row))
            if key in near_keys:
                found.setdefault(row.place, near_keys[key])
    return sorted(found.items())


def suspicious_labels(head: Head, rows: Sequence[DataRow]) -> list[Suspicion]:
    """Rows whose label is doubted in cross-validation by a linear model on character n-grams, most doubtful first."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    answered = [row for row in rows if head.name in row.answers and row.text.strip()]
    if len(head.labels) * len(answered) > MOST_DOUBTED:
        return []  # hours of training for a hint
    counts = Counter(str(row.answers[head.name]) for row in answered)
    used = [row for row in answered if counts[str(row.answers[head.name])] >= FOLDS]
    labels = np.array([str(row.answers[head.name]) for row in used])
    if len(set(labels)) < 2:
        return []
    model = make_pipeline(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True, max_features=50_000),
        LogisticRegression(C=10.0, max_iter=300),
    )
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=1)
    probabilities = cross_val_predict(model, [row.text for row in used], labels, cv=folds, method="predict_proba")
    names = np.unique(labels)
    own = probabilities[np.arange(len(used)), np.searchsorted(names, labels)]
    best = probabilities.argmax(axis=1)
    doubtful = np.flatnonzero((own < DOUBTFUL) & (probabilities.max(axis=1) > SURE))
    return [
        Suspicion(
            used[i].place,
            head.name,
            used[i].text[:200],
            str(labels[i]),
            round(float(own[i]), 4),
            str(names[best[i]]),
            round(float(probabilities[i, best[i]]), 4),
        )
        for i in sorted(doubtful, key=lambda i: own[i])
    ]


def require_trainable(data: DataSet) -> None:
    """Raise ``InputError`` with the first thing that makes training pointless."""
    for head in data.heads.values():
        for problem in _problems(head, data.rows):
            raise InputError(problem)


def _problems(head: Head, rows: Sequence[DataRow]) -> list[str]:
    answered = [row for row in rows if head.name in row.answers]
    if head.kind in ("score", "yesno", "match"):
        if len({_plain(row.answers[head.name]) for row in answered}) == 1:
            only = answered[0].answers[head.name]
            return [f"{head.name!r}: every row has the answer {only}: there is nothing to learn"]
        return []
    if head.kind == "rank":
        return []
    if len(head.labels) < (1 if head.kind == "tags" else 2):
        only = head.labels[0] if head.labels else "no label"
        return [f"{head.name!r}: every row has {only!r}: there is nothing to learn"]
    counts: dict[str, list[str]] = defaultdict(list)
    for row in answered:
        for label in labels_of(row.answers[head.name]):
            counts[label].append(row.place)
    return [
        f"{places[0]}: the label {label!r} of {head.name!r} has one row only: add rows, or merge it into another"
        for label, places in counts.items()
        if len(places) == 1
    ]


def _warnings(report: DataReport) -> list[str]:
    lines = []
    for balance in report.balance:
        rare = [name for name, number in balance.counts.items() if 1 < number < RARE]
        if rare and balance.kind in ("choice", "labels", "soft", "tags"):
            lines.append(f"{balance.question!r}: {len(rare)} labels have fewer than {RARE} rows: {', '.join(rare[:8])}")
        if balance.ratio > 20:
            lines.append(
                f"{balance.question!r}: the most frequent answer has {balance.ratio:.0f} times the rows of the rarest"
            )
    if report.conflicts:
        lines.append(f"{len(report.conflicts)} texts stand with different answers")
    if report.over_limit:
        lines.append(f"{report.over_limit:,} texts are longer than the {report.limit} tokens that training reads")
    if report.leaks:
        lines.append(f"{len(report.leaks)} rows to evaluate on stand in the training rows too, exactly or nearly")
    if report.suspicious:
        lines.append(f"{len(report.suspicious)} labels look wrong")
    return lines


def _names_of(head: Head, answers: Sequence[Answer]) -> Callable[[Answer], tuple[str, ...]]:
    if head.kind != "score":
        return lambda answer: labels_of(answer) or (_plain(answer),)
    values = np.array([float(answer) for answer in answers])  # type: ignore[arg-type]
    if len(set(values)) <= ORDINAL_LEVELS:
        return lambda answer: (_plain(answer),)
    edges = np.linspace(values.min(), values.max(), 11)

    def tenth(answer: Answer) -> tuple[str, ...]:
        value = float(answer)  # type: ignore[arg-type]
        place = min(9, int(np.searchsorted(edges, value, side="right") - 1))
        return (f"{edges[place]:g} to {edges[place + 1]:g}",)

    return tenth


def _plain(answer: Answer) -> str:
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, tuple):
        return ", ".join(sorted(answer)) or "(none)"
    if isinstance(answer, (Spans, Match, Best)):
        return str(answer)
    if isinstance(answer, Mapping):
        return ", ".join(f"{label} {share:g}" for label, share in sorted(answer.items()))
    return f"{answer:.15g}" if isinstance(answer, float) else str(answer)
