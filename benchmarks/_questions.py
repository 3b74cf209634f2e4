"""Real requests for benchmarks that need no gold labels: texts of many sets, with questions of every type.

They are built here and not by ``julia1.train.views``, so that what is measured is not drawn by what was trained with.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _common import SEED
from julia1 import Choice, Question, Score, YesNo
from julia1.content import Content
from julia1.train.sources import LabelledSet, read_set

Request = tuple[Content, dict[str, Question]]

SPLITS = (
    "banking77/test",
    "hwu64/test",
    "xsid/test",
    "sib200/test",
    "massive/val",
    "clinc150/val",
    "nlupp/test",
    "bitext_support/test",
    "it_tickets/test",
    "crosswoz/test",
    "xed/test",
    "told_br/test",
    "coldataset/test",
    "openai_moderation/test",
    "sms_spam/test",
    "pros_cons/test",
    "movie_reviews_long/test",
    "asap_sample/test",
    "obd_codes/test",
    "maintie/test",
    "pawsx_zh/test",
    "xcopa/test",
    "bbh/test",
)
OPTION_COUNTS = (2, 3, 4, 4, 5, 6, 8, 10, 16, 24)
YESNO = ("Is this about: {label}?", "Does '{label}' fit this text?", "Should this be labelled '{label}'?")
YESNO_ZH = ("这是关于“{label}”的吗？", "“{label}”适合这段文字吗？")
SAME = "Do these two sentences mean the same?"
SCALES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("How upset is the writer?", ("calm", "annoyed", "furious")),
    ("How positive is the text?", ("very negative", "negative", "neutral", "positive", "very positive")),
    ("How urgent is it?", ("can wait", "should be done soon", "must be done at once")),
    ("How satisfied is the writer?", ("not at all", "a little", "mostly", "completely")),
    ("How rude is the text?", ("polite", "blunt", "rude", "hateful")),
)
SCALES_ZH: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("作者有多生气？", ("平静", "不满", "愤怒")),
    ("情感有多正面？", ("非常负面", "负面", "中性", "正面", "非常正面")),
)


def draw_requests(data: Path, questions: int, seed: int = SEED) -> list[Request]:
    """Requests of one to four questions, ``questions`` in all, every set and type in turn."""
    rng = random.Random(seed)
    sets = [read_set(data / name, [split]) for name, _, split in (text.partition("/") for text in SPLITS)]
    requests: list[Request] = []
    left = questions
    while left > 0:
        labelled = sets[len(requests) % len(sets)]
        request = _request(labelled, rng.choice(labelled.rows), rng, min(left, rng.choice((1, 2, 3, 4))))
        if request is not None:
            requests.append(request)
            left -= len(request[1])
    return requests


def _request(labelled: LabelledSet, row: dict[str, Any], rng: random.Random, number: int) -> Request | None:
    if not row["text"].strip():
        return None
    state: Content = row["text"]
    makers = [_choice, _yesno, _score]
    if "text_b" in row:
        state = {"first": row["text"], "second": row["text_b"]}  # a JSON state
    kinds = rng.sample(makers, min(number, len(makers)))
    kinds += rng.choices(makers, k=number - len(kinds))
    questions = [make(labelled, row, rng) for make in kinds]
    distinct = {(str(q.instructions), frozenset(q.option_texts())): q for q in questions}  # nobody asks a thing twice
    return state, {str(i): question for i, question in enumerate(distinct.values())}


def _choice(labelled: LabelledSet, row: dict[str, Any], rng: random.Random) -> Question:
    if "options" in row:  # the row brings its own question
        options = list(dict.fromkeys(" ".join(option.split()) for option in row["options"] if option.strip()))
        if len(options) > 1 and max(map(len, options)) <= 120 and len(row["question"]) <= 120:
            return Choice(row["question"], options)
    labels = labelled.labels or {"good": "something good", "bad": "something bad", "neither": "neither of the two"}
    number = len(labels) if rng.random() < 0.1 else min(len(labels), rng.choice(OPTION_COUNTS))
    names = list(labels)
    rng.shuffle(names)
    given = [label for label in (row.get("label"), *row.get("labels", ())[:1]) if label in labels]
    names = list(dict.fromkeys([*given, *names]))[:number]
    rng.shuffle(names)
    if _chinese(row) and labelled.labels_zh and rng.random() < 0.6:
        return Choice(labelled.meta.get("question_zh"), dict.fromkeys(labelled.labels_zh[name] for name in names))
    described = rng.random() < 0.5
    return Choice(labelled.meta.get("question"), {name: labels[name] if described else None for name in names})


def _yesno(labelled: LabelledSet, row: dict[str, Any], rng: random.Random) -> Question:
    if "text_b" in row:
        return YesNo(SAME)
    labels = labelled.labels or {"a cause": "why something happens", "an effect": "what comes of something"}
    own = [label for label in (row.get("label"), *row.get("labels", ())) if label in labels]
    label = own[0] if own and rng.random() < 0.5 else rng.choice(list(labels))
    if _chinese(row) and labelled.labels_zh:
        return YesNo(rng.choice(YESNO_ZH).format(label=labelled.labels_zh[label]))
    criteria = {"true": labels[label], "false": "anything else"} if rng.random() < 0.3 else {}
    return YesNo(rng.choice(YESNO).format(label=label), **criteria)


def _score(labelled: LabelledSet, row: dict[str, Any], rng: random.Random) -> Question:
    if labelled.meta["task"] == "score" and rng.random() < 0.6:
        return Score(labelled.meta["question"], list(labelled.labels.values()))
    instructions, levels = rng.choice(SCALES_ZH if _chinese(row) and rng.random() < 0.6 else SCALES)
    return Score(instructions, levels)


def _chinese(row: Mapping[str, Any]) -> bool:
    return str(row.get("lang", "en")).startswith("zh")
