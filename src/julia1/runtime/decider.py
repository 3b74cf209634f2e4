"""The one path from question to answer: encode, batch, run, calibrate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from julia1 import settings
from julia1.answers import Answer, RankAnswer, Reading, build_answer
from julia1.bundle import Bundle, Manifest
from julia1.content import Content, shown
from julia1.errors import EngineError, InputError
from julia1.questions import Choice, Question, Score, YesNo
from julia1.runtime.calibration import UNCALIBRATED, probabilities, question_kind
from julia1.runtime.cpu import probe
from julia1.runtime.engines import Engine, engine_file, open_engine
from julia1.runtime.fixed import Features, FixedScorer, Given
from julia1.runtime.plan import Plan, make_plan
from julia1.runtime.scorer import OptionScorer, context_room
from julia1.text.options import Limits, OptionsEncoding, QuestionTokens, Row
from julia1.text.tokenizer import TextTokenizer

BATCH_CONTEXT_TOKENS = 256
"""The same for tokens of option text: each stands in the batch with its keys and values of every layer, 37 kB in the
bundled model."""

OPTION_MEMORY = 512
"""Tokens of option text kept between calls: about a hundred options, 19 MB in the bundled model."""

_WARM_UP_QUESTIONS: Mapping[str, Question] = {"warm up": Choice(None, ["a", "b"])}
Request = tuple[Content, Mapping[str, Question]]
FloatArray32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Work:
    """A row and the request it belongs to."""

    request: int
    row: Row


def load(
    bundle: str | Path | None = None,
    *,
    variant: str | None = None,
    engine: str | None = None,
    threads: int | str | None = None,
    tuned: bool = True,
    option_memory: int = OPTION_MEMORY,
    warm_up: bool = True,
    questions: Mapping[str, Question] | None = None,
) -> Decider:
    """Load a bundle and return a warmed decider.

    Args:
        bundle: folder or zip, or NAME@VERSION or NAME@ALIAS of the registry; the model that ships with julia1 when
            ``None`` (and JULIA1_MODEL is not set).
        variant: name of the variant to run; chosen by the CPU when ``None``.
        engine: name of the engine to run it on; the one that the variant is made for when ``None``.
        threads: threads of the engine, or ``share`` for 75 % of the physical cores that this process may use; all of
            these (8 at most) when ``None``.
        tuned: whether a setting that ``julia1 tune`` found on this machine counts, where nothing else is asked for.
        option_memory: tokens of option text whose reading is kept for later calls, so that a question asked again costs
            only the state; 0 keeps none. The least recently used go first.
        warm_up: answer a few made-up questions first, so that the first real one is not slower than the rest.
        questions: those that will be asked, for a model that answers open questions: their options are read now, so
            that the first request pays for its text alone, like the later ones.

    Raises:
        BundleError: the bundle is missing, damaged or of another format.
        InputError: there is no such variant, or no such version in the registry, or a number makes no sense;
            ``questions`` without ``warm_up``, or for a model with fixed heads.
        TooLongError: an instruction or option over its budget.
        EngineError: nothing in it runs on this machine.
        MissingExtraError: the engine that is asked for is not installed.
    """
    opened = Bundle.open(bundle if bundle is not None else settings.model_path())
    plan = make_plan(opened, probe(), variant=variant, engine=engine, threads=threads, tuned=tuned)
    if option_memory < 0:
        raise InputError(f"option_memory is {option_memory}: a number of tokens, or 0 to keep none")
    if questions is not None and not warm_up:
        raise InputError("questions are read at the warm-up: leave warm_up=False out, or the questions")
    decider = Decider(opened.manifest, *open_plan(opened, plan), plan, option_memory)
    if warm_up:
        decider.warm_up(questions)
    return decider


def open_plan(bundle: Bundle, plan: Plan) -> tuple[TextTokenizer, Engine]:
    """The tokenizer and the engine that a plan runs a bundle with.

    Raises:
        BundleError: a file of the variant is wrong.
        EngineError: the engine cannot load it.
    """
    bundle.check_variant(plan.variant)
    tokenizer = TextTokenizer.from_file(bundle.path(bundle.manifest.tokenizer), plan.threads)
    return tokenizer, open_engine(plan.engine, bundle.path(engine_file(plan.engine, plan.variant)), plan.threads)


class Decider:
    """Answers questions about states with one loaded model.

    Safe to share between threads. Between calls it keeps what the encoder made of the option texts used last, up to a
    fixed number of tokens: no cache grows.

    Attributes:
        manifest: the bundle's manifest.
        plan: the variant, engine, threads and batches, and why.
    """

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: TextTokenizer,
        engine: Engine,
        plan: Plan,
        option_memory: int = OPTION_MEMORY,
    ) -> None:
        self.manifest = manifest
        self.plan = plan
        self._parts = (tokenizer, engine, option_memory)
        self._fixed = FixedScorer(manifest, tokenizer, engine, plan.length_step) if manifest.kind == "fixed" else None
        if self._fixed is None:
            self._encoding = OptionsEncoding(tokenizer, token_limits(manifest))
            self._scorer = OptionScorer(engine, tokenizer.pad, option_memory, plan.length_step)

    def decide(
        self,
        state: Content,
        questions: Mapping[str, Question] | None = None,
        *,
        second: Content | None = None,
        features: Features | None = None,
        strict: bool = False,
        abstain_below: float | None = None,
    ) -> dict[str, Answer]:
        """Answer every question about one state, in one row of the encoder where they fit.

        Args:
            state: text, or an object or list that is rendered to text.
            questions: by a name of your own; the names never reach the model. None for a model with fixed heads, which
                answers what it was trained to.
            second: another text, for a model with fixed heads that was trained on pairs.
            features: structured features by name, for a model that was trained with them; any may be missing.
            strict: raise instead of cutting a state that is longer than the model reads. Without it the answer's
                ``reading`` says what was read.
            abstain_below: mark answers whose confidence is under this as abstained. Without it, a model with fixed
                heads goes by the threshold that a head was given in training, if any; 0 has none abstain.

        Raises:
            InputError: an empty or unreadable state, or no questions.
            TooLongError: an instruction or option over its budget, or (``strict``) a state over its.
        """
        if questions is None:
            return self._decide_fixed([Given(state, second, features)], strict, abstain_below, None)[0]
        _check_open(second, features)
        return self.decide_requests([(state, questions)], strict=strict, abstain_below=abstain_below)[0]

    def decide_many(
        self,
        states: Sequence[Content],
        questions: Mapping[str, Question] | None = None,
        *,
        seconds: Sequence[Content | None] | None = None,
        features: Sequence[Features | None] | None = None,
        strict: bool = False,
        abstain_below: float | None = None,
        batch_tokens: int | None = None,
    ) -> list[dict[str, Answer]]:
        """Answer the same questions about many states; results in the order of ``states``.

        Rows are sorted by length and batched under ``batch_tokens`` padded tokens (the plan's without it, and a bound
        on option text). An answer never depends on what it was batched with. Arguments and errors are those of
        ``decide``.
        """
        if isinstance(states, (str, bytes, Mapping)):
            raise InputError(f"states must be a list of states, got one {type(states).__name__}: use decide for one")
        if questions is None:
            for name, rows in (("rows of features", features), ("second texts", seconds)):
                if rows is not None and len(rows) != len(states):
                    raise InputError(f"there are {len(states):,} states and {len(rows):,} {name}")
            none = [None] * len(states)
            given = [Given(*one) for one in zip(states, seconds or none, features or none, strict=True)]
            return self._decide_fixed(given, strict, abstain_below, batch_tokens)
        _check_open(seconds, features)
        requests = [(state, questions) for state in states]
        return self.decide_requests(requests, strict=strict, abstain_below=abstain_below, batch_tokens=batch_tokens)

    def rank(
        self,
        query: Content,
        candidates: Sequence[Content],
        *,
        head: str | None = None,
        strict: bool = False,
        batch_tokens: int | None = None,
    ) -> RankAnswer:
        """Order candidates by how well they fit a query, with a model that was trained to match or to rank.

        Args:
            query: a text, or data to render as text.
            candidates: likewise, at least one.
            head: by which head; may be left out where only one can.
            strict, batch_tokens: as for ``decide_many``.

        Raises:
            InputError: no candidates, an empty one, or a model or head that does not rank.
            TooLongError: ``strict`` and a text is over its token budget.
        """
        if isinstance(candidates, (str, bytes, Mapping)):
            raise InputError(f"candidates must be a list, got one {type(candidates).__name__}")
        if self._fixed is None:
            raise InputError(f"{self.manifest.name} answers open questions: ask a Choice among the candidates")
        return self._fixed.rank(query, candidates, head, strict, batch_tokens or self.plan.batch_tokens)

    def decide_requests(
        self,
        requests: Sequence[Request],
        *,
        strict: bool = False,
        abstain_below: float | None = None,
        batch_tokens: int | None = None,
    ) -> list[dict[str, Answer]]:
        """Answer requests that each bring their own questions; the form that all others are made of."""
        _check_abstain_below(abstain_below)
        if self._fixed is not None:
            heads = ", ".join(head.name for head in self.manifest.heads)
            raise InputError(f"{self.manifest.name} answers fixed questions ({heads}): leave the questions out")
        if not requests:
            return []
        logits, readings = self._run(requests, strict, batch_tokens)
        return [
            self._answers(questions, logits[index], readings[index], abstain_below)
            for index, (_, questions) in enumerate(requests)
        ]

    def logits(self, requests: Sequence[Request], batch_tokens: int | None = None) -> list[list[FloatArray32]]:
        """Raw scores, before calibration: for each request, for each question, fp32 ``[options]``."""
        return self._run(requests, False, batch_tokens)[0] if requests else []

    def head_logits(
        self,
        states: Sequence[Content],
        features: Sequence[Features | None] | None = None,
        seconds: Sequence[Content | None] | None = None,
    ) -> dict[str, list[FloatArray32]]:
        """Raw scores of a model with fixed heads, before calibration: by head, for each state, fp32 ``[outputs]``."""
        if self._fixed is None:
            raise InputError(f"{self.manifest.name} has no fixed heads")
        nothing = [None] * len(states)
        given = [Given(*one) for one in zip(states, seconds or nothing, features or nothing, strict=True)]
        outputs = (
            self._fixed.outputs(given, False, self.plan.batch_tokens)[0] if given else [[] for _ in self.manifest.heads]
        )
        return {head.name: values for head, values in zip(self.manifest.heads, outputs, strict=True)}

    def _run(
        self, requests: Sequence[Request], strict: bool, batch_tokens: int | None
    ) -> tuple[list[list[FloatArray32]], list[Reading]]:
        tokens = self._question_tokens(requests)
        trunks = self._encoding.trunks([state for state, _ in requests], strict)
        work = [
            _Work(index, row)
            for index, (trunk, _) in enumerate(trunks)
            for row in self._encoding.rows(trunk, tokens[index])
        ]
        logits = [[np.zeros(len(question.leaves), np.float32) for question in of_request] for of_request in tokens]
        for batch in _batches(work, batch_tokens or self.plan.batch_tokens):
            scores = self._scorer.scores([item.row for item in batch])
            for item, values in zip(batch, scores, strict=True):
                of_request = logits[item.request]
                own = values[: len(item.row.slots)]
                if not np.isfinite(own).all():
                    raise EngineError(
                        f"the variant {self.plan.variant.name!r} gave a score that is no number: it does not compute "
                        "rightly on this machine, try another variant"
                    )
                for (question, option), value in zip(item.row.slots, own, strict=True):
                    of_request[question][option] = value
        return logits, [reading for _, reading in trunks]

    def _decide_fixed(
        self, given: Sequence[Given], strict: bool, abstain_below: float | None, batch_tokens: int | None
    ) -> list[dict[str, Answer]]:
        _check_abstain_below(abstain_below)
        if self._fixed is None:
            raise InputError(f"{self.manifest.name} answers open questions: give it at least one")
        tokens = batch_tokens or self.plan.batch_tokens
        return self._fixed.decide(given, strict, abstain_below, tokens) if given else []

    def with_batches(self, batch_tokens: int, length_step: int) -> Decider:
        """The same loaded model with other batches, as ``Plan`` has them."""
        tokenizer, engine, option_memory = self._parts
        plan = replace(self.plan, batch_tokens=batch_tokens, length_step=length_step)
        return Decider(self.manifest, tokenizer, engine, plan, option_memory)

    def warm_up(self, questions: Mapping[str, Question] | None = None) -> None:
        """Answer about made-up texts of a few lengths, so that the engine's buffers exist before the first request.

        Args:
            questions: those that will be asked: their options are read now and kept (``load(option_memory=...)``), so
                that the first request pays for its text alone. For a model that answers open questions.

        Raises:
            InputError: ``questions`` for a model with fixed heads, or none in them.
            TooLongError: an instruction or option over its budget.
        """
        if questions is not None and self._fixed is not None:
            raise InputError(f"{self.manifest.name} answers fixed questions: there are none to get ready for")
        for words in (4, 40):
            text = "warm up " * words
            if self._fixed is not None:
                self._fixed.outputs(
                    [Given(text, text if self._fixed.reads_pairs else None)], False, self.plan.batch_tokens
                )
            else:
                self.decide(text, _WARM_UP_QUESTIONS if questions is None else questions)

    def _question_tokens(self, requests: Sequence[Request]) -> list[list[QuestionTokens]]:
        """Tokens of each request's questions; questions that several requests share are tokenized once."""
        known: dict[int, list[QuestionTokens]] = {}
        for _, questions in requests:
            if id(questions) not in known:
                _check_questions(questions)
                known[id(questions)] = [self._encoding.question_tokens(name, q) for name, q in questions.items()]
        return [known[id(questions)] for _, questions in requests]

    def _answers(
        self,
        questions: Mapping[str, Question],
        logits: Sequence[FloatArray32],
        reading: Reading,
        abstain_below: float | None,
    ) -> dict[str, Answer]:
        answers = {}
        for (name, question), values in zip(questions.items(), logits, strict=True):
            calibration = self.manifest.calibration.get(question_kind(question), UNCALIBRATED)
            answers[name] = build_answer(question, probabilities(values, calibration), reading, abstain_below)
        return answers


def _check_abstain_below(value: float | None) -> None:
    if value is not None and not 0 <= value <= 1:
        raise InputError(f"abstain_below is {value}: a confidence lies between 0 and 1")


def _check_open(second: object, features: object) -> None:
    for name, value in (("features are", features), ("a second text is", second)):
        if value is not None:
            raise InputError(f"{name} for models with fixed heads: leave the questions out, or leave it out")


def _check_questions(questions: Mapping[str, Question]) -> None:
    if not isinstance(questions, Mapping):
        raise InputError(f"questions must be a mapping name -> question, not {type(questions).__name__}")
    if not questions:
        raise InputError("no questions: ask at least one")
    for name, question in questions.items():
        if not isinstance(question, (Choice, YesNo, Score)):
            raise InputError(f"question {name!r} is {shown(question)}: use Choice, YesNo or Score")


def token_limits(manifest: Manifest) -> Limits:
    """The token budgets that a bundle was made with."""
    own = manifest.encoding
    return Limits(own.state_tokens, own.question_tokens, own.option_tokens, own.pass_tokens)


def _batches(work: Sequence[_Work], batch_tokens: int) -> Iterator[list[_Work]]:
    """Work sorted by length, cut where the padded batch would pass a budget; one row always fits.

    Rows share a batch only when their context takes the same room, as it does where all are asked the same: a row then
    lies in memory as it would alone, and its sums come out the same to the last bit.
    """
    room = {id(item): context_room(item.row) for item in work}
    batch: list[_Work] = []
    for item in sorted(work, key=lambda w: (room[id(w)], len(w.row)), reverse=True):
        number, context = len(batch) + 1, room[id(item)]
        if batch and (
            context != room[id(batch[0])]
            or len(batch[0].row) * number > batch_tokens
            or context * number > BATCH_CONTEXT_TOKENS
        ):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
