"""Keeps a decider busy: random requests of every kind that its model takes, and one that is always the same."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from julia1.bench.texts import LONGEST_WORDS, made_up_questions, made_up_state, made_up_text
from julia1.bundle import Manifest
from julia1.bundle.heads import PAIR_KINDS
from julia1.questions import Choice, Question
from julia1.runtime.decider import Decider
from julia1.runtime.fixed import Given

BATCHES = (1, 1, 1, 1, 2, 3, 5, 8, 16, 32)
REQUEST_TOKENS = 600
"""Of a batch at most, counted roughly, so that no request holds up the next probe for long; one text may be longer."""
OPTION_TOKENS = 6
OVER = 1.5
"""The longest texts have so many times the words that a model reads tokens."""
PROBE = (
    "I was charged twice for one order, the second time a day later, and nobody has answered my mails since. "
    "Please refund the 49.90 today. 请尽快退款，谢谢。"
)
PROBE_QUESTIONS: Mapping[str, Question] = {
    "team": Choice("Which team?", ["billing", "shipping", "accounts", "other"]),
}
OWN_SHARE = 0.75
"""Of the requests, where the user gives rows; the others are made up, over the limit too."""


class Workload:
    """Requests for a model, drawn from a seed.

    Args:
        manifest: of the model.
        rows: of the user; made-up texts alone without them.
        questions: asked of an open model; made-up ones without them.
        seed: of all that is drawn.
    """

    def __init__(
        self,
        manifest: Manifest,
        rows: Sequence[Given] = (),
        questions: Mapping[str, Question] | None = None,
        seed: int = 1,
    ) -> None:
        self._rng = random.Random(seed)
        self._fixed = manifest.kind == "fixed"
        self._features = manifest.features
        self._compares = manifest.compares()
        self._ranks = any(head.kind in PAIR_KINDS for head in manifest.heads)
        self._rows, self._questions = rows, questions
        encoding = manifest.encoding
        self._longest = min(LONGEST_WORDS, int(OVER * encoding.state_tokens * max(1, encoding.windows)))
        self._option_words = max(1, encoding.option_tokens // 32)
        self._probe = (
            sorted(rows, key=lambda row: len(str(row.state)))[len(rows) // 2] if rows else self._made_up_probe()
        )
        self._begun = 0

    def probe(self, decider: Decider) -> None:
        """The request that is always the same: one text of middling length."""
        self._ask(decider, [self._probe], self._questions or PROBE_QUESTIONS)

    def ask(self, decider: Decider) -> int:
        """One random request, the first few the largest there are; returns how many texts it had."""
        rng = self._rng
        number = rng.choice(BATCHES)
        if self._begun < len(BATCHES):
            number = BATCHES[-1 - self._begun]
            words = self._longest if number == 1 else min(self._longest, REQUEST_TOKENS // number)
            self._begun += 1
        else:
            # as many short texts as long ones, on the scale of ratios
            words = round(self._longest ** rng.random())
        questions = self._questions
        if not self._fixed and questions is None:
            questions = made_up_questions(rng, self._option_words, rng.choice((1, 1, 1, 2, 3)))
        options = sum(len(question.option_texts()) for question in (questions or {}).values())
        number = max(1, min(number, REQUEST_TOKENS // (words + OPTION_TOKENS * options)))
        own = bool(self._rows) and rng.random() < OWN_SHARE
        given = rng.choices(self._rows, k=number) if own else [self._made_up(words) for _ in range(number)]
        if self._ranks and not own and rng.random() < 0.25:
            decider.rank(given[0].state, [one.state for one in given])
            return number
        self._ask(decider, given, questions)
        return number

    def _ask(self, decider: Decider, given: Sequence[Given], questions: Mapping[str, Question] | None) -> None:
        if not self._fixed:
            if len(given) == 1:
                decider.decide(given[0].state, questions)
            else:
                decider.decide_many([one.state for one in given], questions)
        elif len(given) == 1:
            decider.decide(given[0].state, second=given[0].second, features=given[0].features)
        else:
            states, seconds, features = zip(*given, strict=True)
            decider.decide_many(states, seconds=seconds, features=features)

    def _made_up(self, words: int) -> Given:
        rng = self._rng
        second = made_up_text(rng, max(1, words // 2)) if self._compares else None
        if not self._features:
            return Given(made_up_state(rng, words), second)
        values: dict[str, float | str | None] = {
            name: rng.choice((None, rng.gauss(mean, spread), mean + 1000 * spread))
            for name, (mean, spread) in self._features.numbers.items()
        }
        for name, known in self._features.categories.items():
            values[name] = rng.choice([*known, "never seen", None])
        return Given(made_up_state(rng, words), second, values)

    def _made_up_probe(self) -> Given:
        numbers = {name: mean for name, (mean, _) in self._features.numbers.items()}
        return Given(PROBE, PROBE if self._compares else None, numbers or None)
