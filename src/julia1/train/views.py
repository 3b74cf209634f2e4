"""Views: how a labelled row becomes open questions whose options are drawn anew every time.

A view takes a row and returns an example: the state, and questions with a target distribution each. Drawing options,
wordings and label forms anew is what teaches the model to read options instead of remembering a label set.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from julia1.content import Content
from julia1.questions import Choice, Question, Score, YesNo
from julia1.train.likeness import nearest_labels, overlap, text_grams
from julia1.train.recipe import Source
from julia1.train.sources import GroupKey, LabelledSet, group_key
from julia1.train.view_tables import (
    ANSWER_KINDS,
    QUESTION_WORDS,
    SENTIMENT_EN,
    SENTIMENT_LEVELS_EN,
    SENTIMENT_LEVELS_ZH,
    SENTIMENT_ZH,
    UPSET_EN,
    UPSET_ZH,
    LevelTable,
    Target,
)


@dataclass(frozen=True)
class Example:
    """A state with its questions and, for each, the wanted probability of every option."""

    state: Content
    questions: list[tuple[Question, Target]]


class Drawing:
    """What the views of one source share: its labels, their neighbours, the wordings and a random generator."""

    def __init__(self, labelled: LabelledSet, source: Source, wordings: dict[str, dict[str, list[str]]]) -> None:
        self.labelled = labelled
        self.source = source
        self.wordings = wordings
        self.labels = list(labelled.labels)
        self.neighbours = {label: nearest_labels(label, labelled) for label in self.labels}

    @cached_property
    def translations(self) -> dict[GroupKey, dict[str, list[str]]]:
        """Of a parallel set: group to language to the texts that say the same."""
        found: dict[GroupKey, dict[str, list[str]]] = {}
        for row in self.labelled.rows:
            if "group" in row:
                of_group = found.setdefault(group_key(row), {})
                of_group.setdefault(row.get("lang", "en"), []).append(row["text"])
        return found

    def wording(self, rng: random.Random, kind: str, language: str, **values: str) -> str:
        """A question wording of a kind, in the row's language family or (one time in five) the other one."""
        by_language = self.wordings[kind]
        chinese = language.startswith("zh") != (rng.random() < 0.2)
        templates = by_language.get("zh" if chinese else "en") or by_language["en"]
        return rng.choice(templates).format(**values)

    def set_question(self, rng: random.Random, language: str, kind: str) -> str | None:
        """The set's own question, a general wording of the same kind, or (rarely) none at all."""
        draw = rng.random()
        if draw < 0.08:
            return None
        if draw < 0.6:
            own = self.labelled.meta.get("question_zh") if language.startswith("zh") and rng.random() < 0.7 else None
            return str(own or self.labelled.meta["question"])
        return self.wording(rng, kind, language)

    def style(self, rng: random.Random, language: str) -> Style:
        """How all labels of one question are written."""
        chinese = bool(self.labelled.labels_zh) and rng.random() < (0.6 if language.startswith("zh") else 0.1)
        return Style(chinese, rng.choice(("name", "name", "both", "both", "text")), rng.choice(_CASINGS), self)

    def others(self, rng: random.Random, taken: Sequence[str], number: int) -> list[str]:
        """Labels to stand beside the right ones: about half near neighbours, the rest anywhere."""
        near = [n for label in taken for n in self.neighbours[label] if n not in taken]
        picked: dict[str, None] = {}
        for candidate in rng.sample(near, min(len(near), (number + 1) // 2)):
            picked[candidate] = None
        far = [label for label in self.labels if label not in taken and label not in picked]
        for candidate in rng.sample(far, max(0, min(len(far), number - len(picked)))):
            picked[candidate] = None
        return list(picked)[:number]


_CASINGS: tuple[Callable[[str], str], ...] = (
    str,
    str,
    str,
    str.capitalize,
    str.title,
    str.upper,
    lambda name: name.replace(" ", "_"),
    lambda name: name.replace(" ", "-"),
)


@dataclass(frozen=True)
class Style:
    """The form in which one question shows its labels."""

    chinese: bool
    form: str
    casing: Callable[[str], str]
    drawing: Drawing

    def option(self, rng: random.Random, label: str) -> tuple[str, str | None]:
        """``(name, description or None)`` of a label."""
        labelled = self.drawing.labelled
        if self.chinese:
            return labelled.labels_zh[label], None
        name, text = label, labelled.labels[label]
        synonyms = self.drawing.source.names.get(label)
        if synonyms and rng.random() < 0.5:
            name = rng.choice(synonyms)
        if self.form == "text":
            return text, None
        return self.casing(name), text if self.form == "both" else None


def choice_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example:
    """Single label or label list: one choice, often with a yes/no question about the same text."""
    language = row.get("lang", "en")
    positives = [row["label"]] if "label" in row else list(row["labels"])
    unknown = set(row.get("unknown", ()))
    questions: list[tuple[Question, Target]] = []
    if positives:
        gold = rng.choice(positives)
        number = _option_count(rng, len(draw.labels))
        blocked = [*positives, *unknown]
        others = draw.others(rng, blocked, number - 1)
        question = _choice(draw, rng, language, gold, others)
        if question:
            questions.append(question)
    if rng.random() < 0.45 or not questions:
        questions.append(_membership(draw, rng, language, positives, unknown))
    return Example(row["text"], questions)


def _choice(
    draw: Drawing, rng: random.Random, language: str, gold: str, others: list[str]
) -> tuple[Question, Target] | None:
    style = draw.style(rng, language)
    options = {label: style.option(rng, label) for label in [gold, *others]}
    right = options[gold][0]
    none_draw = rng.random()
    named = dict(options.values())
    if len(named) < len(options):
        return None  # two labels came out under one name
    if none_draw < 0.12 and len(draw.labels) > 2:
        name = draw.wording(rng, "none", language)
        if none_draw < 0.06 and len(named) > 2:
            del named[right]
            right = name
        named[name] = None
    if len(named) < 2:
        return None
    items = list(named.items())
    rng.shuffle(items)
    question = Choice(draw.set_question(rng, language, "choice"), dict(items))
    return question, [float(name == right) for name, _ in items]


def _membership(
    draw: Drawing, rng: random.Random, language: str, positives: Sequence[str], unknown: set[str]
) -> tuple[Question, Target]:
    """Does this label apply? Half yes, half no; wrong labels are mostly near ones."""
    says_yes = bool(positives) and rng.random() < 0.5
    if says_yes:
        label = rng.choice(positives)
    else:
        blocked = [*positives, *unknown]
        near = [n for p in positives for n in draw.neighbours[p][:8] if n not in blocked]
        far = [x for x in draw.labels if x not in blocked]
        label = rng.choice(near if near and rng.random() < 0.6 else far or draw.labels)
        says_yes = label in positives
    chinese = bool(draw.labelled.labels_zh) and language.startswith("zh") and rng.random() < 0.6
    name = draw.labelled.labels_zh[label] if chinese else label
    text = draw.labelled.labels[label]
    form = rng.random()
    if form < 0.5 or chinese:
        question = YesNo(draw.wording(rng, "yesno", "zh" if chinese else language, label=name))
    elif form < 0.75:
        question = YesNo(draw.wording(rng, "yesno", "en", label=text))
    else:
        question = YesNo(
            draw.wording(rng, "yesno", language, label=name), true=text, false=rng.choice((None, "anything else"))
        )
    return question, [0.0, 1.0] if says_yes else [1.0, 0.0]


def area_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example | None:
    """Labels grouped into coarse areas: a choice among areas."""
    areas = draw.source.areas
    gold = next((a for a, prefixes in areas.items() if row["label"].startswith(tuple(prefixes))), None)
    if gold is None:
        return None
    others = rng.sample([a for a in areas if a != gold], min(len(areas) - 1, rng.randint(2, 9)))
    return Example(row["text"], [_plain_choice(draw, rng, row, "area", gold, others)])


def sentiment_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example | None:
    """Labels with a polarity: positive/negative as a choice, a yes/no question, or levels in either direction."""
    language = row.get("lang", "en")
    labels = [row["label"]] if "label" in row else row["labels"]
    kinds = {draw.source.polarity.get(label) for label in labels} - {None} if labels else {"neutral"}
    if len(kinds) != 1:
        return None
    kind = str(next(iter(kinds)))
    text = _piece(row["text"], rng)
    form = rng.random()
    if form < 0.4:
        wanted = ["positive", "negative"] + (["neutral"] if kind == "neutral" or rng.random() < 0.4 else [])
        words = SENTIMENT_ZH if language.startswith("zh") and rng.random() < 0.6 else rng.choice(SENTIMENT_EN)
        rng.shuffle(wanted)
        question: Question = Choice(draw.wording(rng, "sentiment", language), [words[w] for w in wanted])
        return Example(text, [(question, [float(w == kind) for w in wanted])])
    if form < 0.6 and kind != "neutral":
        asked = rng.choice(("positive", "negative"))
        question = YesNo(draw.wording(rng, f"is_{asked}", language))
        return Example(text, [(question, [0.0, 1.0] if asked == kind else [1.0, 0.0])])
    chinese = language.startswith("zh") and rng.random() < 0.6
    levels, targets = _levels(rng, SENTIMENT_LEVELS_ZH if chinese else SENTIMENT_LEVELS_EN, kind)
    return Example(text, [(Score(draw.wording(rng, "sentiment_level", language), levels), targets)])


def upset_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example | None:
    """Emotion labels as a scale of how upset the writer is."""
    language = row.get("lang", "en")
    labels = set(row["labels"])
    if labels & {"anger", "disgust"} and not labels & {"joy", "trust"}:
        kind = "upset"
    elif not labels & {"anger", "disgust", "fear", "sadness"}:
        kind = "calm"
    else:
        return None
    chinese = language.startswith("zh") and rng.random() < 0.6
    levels, targets = _levels(rng, UPSET_ZH if chinese else UPSET_EN, kind)
    return Example(row["text"], [(Score(draw.wording(rng, "upset", language), levels), targets)])


def score_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example:
    """Rows with a number: levels from the set's labels, in English or Chinese, sometimes highest first."""
    chinese = bool(draw.labelled.labels_zh) and rng.random() < 0.6
    texts = draw.labelled.labels_zh if chinese else draw.labelled.labels
    levels = list(texts.values())
    low = int(draw.labelled.meta["score"]["min"])
    value = float(row["score"]) - low
    targets = [max(0.0, 1.0 - abs(i - value)) for i in range(len(levels))]
    if rng.random() < 0.3:
        levels, targets = levels[::-1], targets[::-1]
    question = Score(draw.set_question(rng, row.get("lang", "en"), "choice"), levels)
    return Example(_piece(row["text"], rng, 160), [(question, targets)])


def language_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example | None:
    """In which language is this written?"""
    names = draw.source.names
    gold = row.get("lang", "en")
    if gold not in names:
        return None
    others = rng.sample([code for code in names if code != gold], min(len(names) - 1, rng.randint(1, 8)))
    return Example(
        row["text"], [_plain_choice(draw, rng, row, "language", names[gold][0], [names[o][0] for o in others])]
    )


def answer_kind_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example | None:
    """Which kind of answer does this question ask for? Weak labels from its question words."""
    found = [kind for kind, pattern in QUESTION_WORDS if pattern.search(row["text"])]
    if len(found) != 1:
        return None
    gold = found[0]
    form = rng.randrange(4)
    kinds = [gold, *rng.sample([k for k in ANSWER_KINDS if k != gold], rng.randint(2, 7))]
    rng.shuffle(kinds)
    options = dict(ANSWER_KINDS[k][form % len(ANSWER_KINDS[k])] for k in kinds)
    question = Choice(draw.wording(rng, "answer_kind", row.get("lang", "en")), options)
    return Example(row["text"], [(question, [float(k == gold) for k in kinds])])


def pair_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example:
    """Two texts: do they mean the same?"""
    same = row["label"] == "same meaning"
    names = rng.choice((("first", "second"), ("a", "b"), ("text", "other text"), ("句子一", "句子二")))
    texts = [row["text"], row["text_b"]]
    if rng.random() < 0.5:
        texts.reverse()
    state = dict(zip(names, texts, strict=True))
    return Example(
        state, [(YesNo(draw.wording(rng, "same", row.get("lang", "en"))), [0.0, 1.0] if same else [1.0, 0.0])]
    )


def open_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example | None:
    """Rows that bring their own question and options."""
    options = list(dict.fromkeys(o.strip() for o in row["options"] if o.strip()))
    gold = row["options"][row["answer"]].strip()
    if not gold or len(options) < 2 or len(options) > 12 or max(map(len, options)) > 160 or not row["text"].strip():
        return None
    if row["question"].strip() and len(row["question"]) > 160:
        return None
    rng.shuffle(options)
    return Example(row["text"], [(Choice(row["question"], options), [float(o == gold) for o in options])])


def parallel_view(row: dict[str, Any], draw: Drawing, rng: random.Random) -> Example | None:
    """Rows that stand in several languages: which of these texts, in other languages, says the same?

    Labels are not read. Half of the wrong texts are in the language of the text itself, so that the language of an
    option gives nothing away; half are those that look most like the right one.
    """
    language = row.get("lang", "en")
    groups = draw.translations
    own = groups.get(group_key(row), {}) if "group" in row else {}
    others = [spoken for spoken in own if spoken != language]
    if not others:
        return None
    main = [spoken for spoken in others if spoken in ("en", "zh")]
    wanted = rng.choice(main if main and rng.random() < 0.5 else others)
    right = rng.choice(own[wanted])
    number = rng.choice((3, 4, 5, 6, 8)) if len(right) < 90 else rng.choice((2, 3, 4))
    wrong: list[str] = []
    for key in rng.sample(list(groups), min(len(groups), 40)):
        if groups[key] is not own:
            wrong += groups[key].get(rng.choice((wanted, language)), ())
    grams = {text: text_grams(text) for text in (right, row["text"])}
    alike = sorted(wrong, key=lambda text: max(overlap(text_grams(text), of) for of in grams.values()), reverse=True)
    options = {right: True}
    for text in [*alike[: number // 2], *wrong]:
        if len(options) < number:
            options.setdefault(text, False)
    if len(options) < 2:
        return None
    items = list(options.items())
    rng.shuffle(items)
    question = Choice(draw.wording(rng, "parallel", language), [text for text, _ in items])
    return Example(row["text"], [(question, [float(says_the_same) for _, says_the_same in items])])


VIEWS: dict[str, Callable[[dict[str, Any], Drawing, random.Random], Example | None]] = {
    "choice": choice_view,
    "area": area_view,
    "sentiment": sentiment_view,
    "upset": upset_view,
    "score": score_view,
    "language": language_view,
    "answer_kind": answer_kind_view,
    "pair": pair_view,
    "open": open_view,
    "parallel": parallel_view,
}


def _levels(rng: random.Random, table: LevelTable, kind: str) -> tuple[list[str], Target]:
    levels, targets = table[rng.choice([n for n, (_, by_kind) in table.items() if kind in by_kind])]
    target = [float(t) for t in targets[kind]]
    return (levels[::-1], target[::-1]) if rng.random() < 0.25 else (levels, target)


def _plain_choice(
    draw: Drawing, rng: random.Random, row: dict[str, Any], kind: str, gold: str, others: Sequence[str]
) -> tuple[Question, Target]:
    options = [gold, *others]
    rng.shuffle(options)
    return Choice(draw.wording(rng, kind, row.get("lang", "en")), options), [float(o == gold) for o in options]


def _option_count(rng: random.Random, labels: int) -> int:
    """2 to 20, mostly few."""
    return min(labels, rng.choice((2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 8, 10, 12, 15, 20)))


def _piece(text: str, rng: random.Random, words: int = 90) -> str:
    """A random run of a long text, so that a review is not always read from its start."""
    parts = text.split(" ")
    if len(parts) <= words:
        return text
    length = rng.randint(words // 3, words)
    start = rng.choice((0, rng.randint(0, len(parts) - length), len(parts) - length))
    return " ".join(parts[start : start + length])
