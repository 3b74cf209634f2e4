"""Rows with the right answers: what a model gives for them, and how good that is.

Rows are those of ``julia1 train``. Of a model with fixed heads, answers go by the head. Of an open model they go by the
question: the name of an option (or probabilities by name), true or false, the level of a score by number or by text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from julia1.bundle import Bundle
from julia1.bundle.heads import HeadSpec
from julia1.content import shown
from julia1.errors import InputError
from julia1.questions import Choice, Question, Score, YesNo
from julia1.runtime.decider import Decider
from julia1.runtime.fixed import Given
from julia1.text.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from julia1.train.data.rows import Answer, DataRow
    from julia1.train.items import Item

Outputs = Mapping[str, list[npt.NDArray[np.float32]]]
"""Raw outputs by head or question, for each row."""
AtOnce = Callable[[], object]


class Labelled(Protocol):
    """Rows with the right answers, for one kind of model."""

    @property
    def rows(self) -> int:
        """How many."""
        ...

    def given(self) -> list[Given]:
        """What the model is given of each row."""
        ...

    def calls(self, decider: Decider) -> list[AtOnce]:
        """For each row, the call that decides on it alone."""
        ...

    def outputs(self, decider: Decider) -> Outputs:
        """What a decider gives."""
        ...

    def reference(self, bundle: Bundle) -> Outputs:
        """What PyTorch gives, by the checkpoint of the bundle; needs the extra ``train``."""
        ...

    def figures(self, outputs: Outputs) -> dict[str, dict[str, float]]:
        """Figures by head or question, of those that rows answer; see ``julia1.train.metrics``."""
        ...

    def kinds(self) -> dict[str, str]:
        """The kind of each."""
        ...


def label(bundle: Bundle, rows: Sequence[DataRow], questions: Mapping[str, Question] | None) -> Labelled:
    """Rows for the model of a bundle.

    Args:
        bundle: the model.
        rows: with answers.
        questions: of an open model; None for one with fixed heads.

    Raises:
        InputError: rows answer what the model is not asked, or with what cannot be an answer; no row answers anything.
    """
    manifest = bundle.manifest
    known = [head.name for head in manifest.heads] if questions is None else list(questions)
    kind = "head" if questions is None else "question"
    for row in rows:
        for name in row.answers:
            if name not in known:
                raise InputError(
                    f"{row.place}: it answers {name!r}, and there is no such {kind}; there are: {', '.join(known)}"
                )
    return FixedRows(bundle, rows) if questions is None else OpenRows(rows, questions)


class FixedRows:
    """Rows for a model with fixed heads; see ``Labelled``."""

    def __init__(self, bundle: Bundle, rows: Sequence[DataRow]) -> None:
        self._data = rows
        self._manifest = bundle.manifest
        self._pairs = self._manifest.encoding.type == "pair"
        self._tokenizer = TextTokenizer.from_file(bundle.path(self._manifest.tokenizer))
        for row in rows:
            if self._pairs and not row.second:
                raise InputError(f"{row.place}: the model reads two texts, and the row has no second one")
        self._items = self._made_items()

    @property
    def rows(self) -> int:
        return len(self._data)

    def given(self) -> list[Given]:
        compares = self._manifest.compares()
        seconds = [row.second or next(iter(row.candidates), None) if compares else None for row in self._data]
        return [Given(row.text, second, row.features or None) for row, second in zip(self._data, seconds, strict=True)]

    def calls(self, decider: Decider) -> list[AtOnce]:
        def ranks(row: DataRow) -> AtOnce:
            return lambda: decider.rank(row.text, row.candidates)

        def decides(one: Given) -> AtOnce:
            return lambda: decider.decide(one.state, second=one.second, features=one.features)

        return [
            ranks(row) if row.candidates else decides(one) for row, one in zip(self._data, self.given(), strict=True)
        ]

    def outputs(self, decider: Decider) -> Outputs:
        def run(given: Sequence[Given]) -> Outputs:
            states, seconds, features = zip(*given, strict=True) if given else ((), (), ())
            return decider.head_logits(states, features, seconds)

        return self._outputs(run)

    def reference(self, bundle: Bundle) -> Outputs:
        from julia1.export.running import ModuleEngine
        from julia1.export.standalone import weight_file
        from julia1.model.weights import load_fixed
        from julia1.runtime.fixed import FixedScorer
        from julia1.runtime.plan import BATCH_TOKENS

        heads = self._manifest.heads
        engine = ModuleEngine(load_fixed(weight_file(bundle)), heads)
        scorer = FixedScorer(self._manifest, self._tokenizer, engine)

        def run(given: Sequence[Given]) -> Outputs:
            if not given:
                return {head.name: [] for head in heads}
            values, _ = scorer.outputs(given, False, BATCH_TOKENS)
            return {head.name: of_head for head, of_head in zip(heads, values, strict=True)}

        return self._outputs(run)

    def figures(self, outputs: Outputs) -> dict[str, dict[str, float]]:
        from julia1.train.metrics import figures_of

        return figures_of(self._manifest.heads, dict(outputs), self._items, self._manifest.calibration)

    def kinds(self) -> dict[str, str]:
        return {head.name: head.kind for head in self._manifest.heads}

    def _outputs(self, run: Callable[[Sequence[Given]], Outputs]) -> Outputs:
        from julia1.train.served import outputs_of_rows

        return outputs_of_rows(run, self._manifest.heads, self._pairs, self._data)

    def _made_items(self) -> list[Item]:
        from julia1.train.items import make_items
        from julia1.train.recipe import FineTuning

        own = self._manifest.encoding
        settings = FineTuning(max_tokens=own.state_tokens, windows=max(1, own.windows), overlap=own.overlap)
        features = self._manifest.features
        return make_items(self._data, self._manifest.heads, self._tokenizer, settings, features, self._pairs)


class OpenRows:
    """Rows for a model that answers open questions; see ``Labelled``."""

    def __init__(self, rows: Sequence[DataRow], questions: Mapping[str, Question]) -> None:
        from julia1.train.items import target_of

        self._data, self._questions = rows, questions
        self._specs = {name: _spec(name, question) for name, question in questions.items()}
        self._targets: dict[str, dict[int, npt.NDArray[np.float32]]] = {name: {} for name in questions}
        for number, row in enumerate(rows):
            for name, answer in row.answers.items():
                right = _right(self._specs[name], questions[name], answer, f"{row.place}: {name!r}")
                self._targets[name][number] = target_of(self._specs[name], right, row.place, 0.0)

    @property
    def rows(self) -> int:
        return len(self._data)

    def given(self) -> list[Given]:
        return [Given(row.text) for row in self._data]

    def calls(self, decider: Decider) -> list[AtOnce]:
        def decides(text: str) -> AtOnce:
            return lambda: decider.decide(text, self._questions)

        return [decides(row.text) for row in self._data]

    def outputs(self, decider: Decider) -> Outputs:
        found = decider.logits([(row.text, self._questions) for row in self._data])
        return {name: [of_row[i] for of_row in found] for i, name in enumerate(self._questions)}

    def reference(self, bundle: Bundle) -> Outputs:
        from julia1.export.running import ModuleScorer
        from julia1.export.standalone import weight_file
        from julia1.model.weights import load_weights
        from julia1.runtime.decider import token_limits
        from julia1.text.options import OptionsEncoding

        tokenizer = TextTokenizer.from_file(bundle.path(bundle.manifest.tokenizer))
        encoding = OptionsEncoding(tokenizer, token_limits(bundle.manifest))
        scorer = ModuleScorer(load_weights(weight_file(bundle)), encoding)
        numbers = [len(question.option_texts()) for question in self._questions.values()]
        found: dict[str, list[npt.NDArray[np.float32]]] = {name: [] for name in self._questions}
        for row in self._data:
            values = [np.zeros(number, np.float32) for number in numbers]
            for part in encoding.encode(row.text, self._questions)[0]:
                scores = scorer.scores([part])[0]
                for (question, option), score in zip(part.slots, scores, strict=False):
                    values[question][option] = score
            for of_question, own in zip(found.values(), values, strict=True):
                of_question.append(own)
        return found

    def figures(self, outputs: Outputs) -> dict[str, dict[str, float]]:
        from julia1.train.metrics import head_figures

        return {
            name: head_figures(
                self._specs[name], np.stack([outputs[name][i] for i in targets]), np.stack(list(targets.values()))
            )
            for name, targets in self._targets.items()
            if targets
        }

    def kinds(self) -> dict[str, str]:
        return {name: spec.kind for name, spec in self._specs.items()}


def _spec(name: str, question: Question) -> HeadSpec:
    """A question as a head with its options, by which figures are taken."""
    if isinstance(question, YesNo):
        return HeadSpec(name, "yesno", ("no", "yes"))
    if isinstance(question, Score):
        return HeadSpec(name, "score", tuple(str(level) for level in range(len(question.levels))))
    # labels in rows are read with single blanks
    return HeadSpec(name, "choice", tuple(" ".join(option.split()) for option in question.options))


def _right(spec: HeadSpec, question: Question, answer: Answer, where: str) -> Answer:
    """The answer in the form that a head's target is made of."""
    if isinstance(question, YesNo):
        if isinstance(answer, bool):
            return answer
        wanted = "true or false"
    elif isinstance(question, Score):
        texts = [" ".join(text.split()) for text in question.option_texts()]
        if isinstance(answer, str) and answer in texts:
            return float(texts.index(answer))
        if isinstance(answer, float) and 0 <= answer <= len(texts) - 1:
            return answer
        wanted = f"a level from 0 to {len(texts) - 1}, or one of {', '.join(texts)}"
    else:
        assert isinstance(question, Choice)
        named = [answer] if isinstance(answer, str) else list(answer) if isinstance(answer, Mapping) else []
        if named and all(name in spec.labels for name in named):
            return answer
        wanted = f"one of {', '.join(spec.labels):.200}"
    raise InputError(f"{where} is {shown(answer)}: give {wanted}")


def one_question(rows: Sequence[DataRow], questions: Mapping[str, Question]) -> list[DataRow]:
    """Rows that call their one answer ``label``, ``labels`` or ``score``, where there is one question: it is meant."""
    if len(questions) != 1:
        return list(rows)
    (name,) = questions
    renamed = []
    for row in rows:
        own = row.answers
        if name not in own and len(own) == 1 and next(iter(own)) in ("label", "score"):
            row = replace(row, answers={name: next(iter(own.values()))})
        renamed.append(row)
    return renamed
