"""Runs a golden file's requests on this machine and finds the first tensor that departs from what the file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from julia1.bundle import Bundle
from julia1.errors import EngineError, InputError, MissingExtraError
from julia1.runtime.golden.file import Golden, Identity, Made, Recorded, files_of
from julia1.runtime.golden.making import environment, made_of, plan_of, recording
from julia1.runtime.golden.recording import OPTION_TEXTS, FloatArray
from julia1.runtime.golden.requests import Request, Said
from julia1.runtime.plan import Plan
from julia1.runtime.tuned import engine_version
from julia1.text.tokenizer import TextTokenizer

TOLERANCE = 1e-4
"""Of an fp32 variant: largest difference of a logit and of a probability; of a tensor on the way in units of its root
mean square, where that is over 1."""
SAME_ANSWERS = 0.99
"""Share of answers that must be the same. Of a rounded variant nothing else is asked: a sum that ends in another bit
may round to the next step."""
LEAST_SNR = 15.0
"""Decibels: below, a tensor of a rounded variant is said to depart, as in ``julia1 diagnose``."""
SAME_VALUE = 0.05
"""A number that is answered is the same within this share of its deviation in training."""

IDS, PROBABILITIES, ANSWERS = "token ids", "probabilities", "answers"


@dataclass(frozen=True)
class VariantCheck:
    """What was found of one variant.

    Attributes:
        name: of the variant.
        engine: that ran it, with its version.
        status: ``same``, ``departs`` or ``not run``.
        first: where it departs first: ``token ids``, a tensor, an output, ``probabilities`` or ``answers``; else ''.
        message: in words.
        answers, same_answers: how many there are, and how many are the same.
        largest_output, largest_probability: how far one moves at most.
    """

    name: str
    engine: str
    status: Literal["same", "departs", "not run"]
    first: str = ""
    message: str = ""
    answers: int = 0
    same_answers: int = 0
    largest_output: float = 0.0
    largest_probability: float = 0.0


@dataclass(frozen=True)
class GoldenCheck:
    """What was found.

    Attributes:
        bundle: name and version.
        made, here: the machine that the file was made on, and this one.
        requests: how many were asked.
        variants: in the order of the file.
    """

    bundle: str
    made: Mapping[str, str]
    here: Mapping[str, str]
    requests: int
    variants: tuple[VariantCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether a variant could be checked and none departs."""
        found = {variant.status for variant in self.variants}
        return "same" in found and "departs" not in found

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"ok": self.ok, **asdict(self)}


def check_golden(
    golden: Golden,
    bundle: Bundle,
    variant: str | None = None,
    *,
    engine: str | None = None,
    threads: int | str | None = None,
) -> GoldenCheck:
    """Ask a bundle what a golden file asked, and compare.

    A variant that this machine cannot run, or that the bundle was packed without, is reported as not run.

    Args:
        golden: what is right.
        bundle: the same that the file was made from.
        variant: only this one; all of the file when ``None``.
        engine, threads: as ``julia1.load`` has them.

    Raises:
        InputError: the bundle is another one, or the file has no such variant.
        BundleError: a file of the bundle is damaged.
    """
    found = Identity.of(bundle.manifest)
    if found != golden.bundle:
        why = "another tokenizer, calibration or heads" if str(found) == str(golden.bundle) else "another bundle"
        raise InputError(f"the golden file was made from {golden.bundle}, and this is {found}, {why}: make a new one")
    if variant is not None and variant not in golden.variants:
        has = ", ".join(golden.variants)
        raise InputError(f"the golden file has no variant {variant!r}; it has: {has}")
    names = list(golden.variants) if variant is None else [variant]
    checks = tuple(_check(name, golden, bundle, engine, threads) for name in names)
    return GoldenCheck(str(found), golden.environment, environment(), len(golden.requests), checks)


def _check(name: str, golden: Golden, bundle: Bundle, engine: str | None, threads: int | str | None) -> VariantCheck:
    recorded = golden.variants[name]
    own = next((one for one in bundle.manifest.variants if one.name == name), None)
    if own is None:
        return VariantCheck(name, "", "not run", message="the bundle has no such variant")
    if files_of(own) != recorded.sha256:
        raise InputError(
            f"the golden file was made from other files of the variant {name!r} of {golden.bundle}: make a new one"
        )
    try:
        plan = plan_of(bundle, name, engine, threads)
    except (EngineError, MissingExtraError) as error:
        return VariantCheck(name, engine or own.engine, "not run", message=str(error))
    return _run(plan, recorded, golden.requests, bundle)


def _run(plan: Plan, recorded: Recorded, requests: Sequence[Request], bundle: Bundle) -> VariantCheck:
    name, engine = plan.variant.name, f"{plan.engine} {engine_version(plan.engine)}"
    loaded = False
    made: list[Made] = []
    try:
        with recording(bundle, plan) as (decider, recorder):
            loaded = True
            for number, request in enumerate(requests):
                made.append(made_of(request, decider, recorder, number))
                different = _other_ids(request, recorded.made[number], made[-1], bundle)
                if different:
                    return VariantCheck(name, engine, "departs", IDS, different)
    except (EngineError, MissingExtraError) as error:
        if not loaded:
            return VariantCheck(name, engine, "not run", message=str(error))
        return VariantCheck(name, engine, "departs", ANSWERS, f"it fails at {requests[len(made)].name!r}: {error}")
    except InputError as error:
        raise InputError(f"the golden file asks what this model cannot answer: {error}") from None
    return replace(compare(name, recorded, requests, made, bundle), engine=engine)


def compare(
    name: str, recorded: Recorded, requests: Sequence[Request], made: Sequence[Made], bundle: Bundle
) -> VariantCheck:
    """What a variant made here against what the file holds; the token ids are the same."""
    exact = recorded.precision == "fp32"
    spreads = {head.name: head.spread for head in bundle.manifest.heads if head.kind == "value"}
    movement = _Movement()
    for request, expected, found in zip(requests, recorded.made, made, strict=True):
        movement.add(request, expected, found, spreads)
    outputs, probabilities = movement.outputs, movement.probabilities
    rate = movement.same / movement.answers if movement.answers else 1.0
    departed = [
        *(_departed_outputs(outputs) if exact else ()),
        *((PROBABILITIES,) if exact and not probabilities.largest <= TOLERANCE else ()),
        *((ANSWERS,) if rate < SAME_ANSWERS else ()),
    ]
    largest = max((one.largest for one in outputs.values()), default=0.0)
    figures: dict[str, Any] = {
        "answers": movement.answers,
        "same_answers": movement.same,
        "largest_output": _finite(largest),
        "largest_probability": _finite(probabilities.largest),
    }
    told = f"{movement.same:,} of {movement.answers:,} answers the same; "
    told += f"logits move by {largest:.1e} at most, probabilities by {probabilities.largest:.1e}"
    if not departed:
        return VariantCheck(name, "", "same", message=told, **figures)
    first, where = next(
        ((tensor, one) for tensor, one in movement.tensors.items() if one.departs(exact)), (departed[0], None)
    )
    if where is None:
        where = {PROBABILITIES: probabilities, ANSWERS: movement.said}.get(first) or outputs[first]
        how = "" if first == ANSWERS else f" by {where.largest:.1e}"
    else:
        how = f" by {where.largest:.1e}" if exact else f", {where.snr:.1f} dB of signal over the difference"
    message = f"departs first at {first}{how}, most in the request {where.request!r}; {told}"
    return VariantCheck(name, "", "departs", first, message, **figures)


@dataclass
class _Difference:
    """How far one thing moves over all requests.

    Attributes:
        largest: of its numbers; of a tensor in units of its root mean square where that is over 1.
        request: name of the request where that is.
        power, noise: sums of squares, of what is right and of the difference.
    """

    largest: float = 0.0
    request: str = ""
    power: float = 0.0
    noise: float = 0.0

    def add(self, request: str, expected: FloatArray, found: FloatArray, unit: float = 1.0) -> None:
        if expected.shape != found.shape:
            moved = np.inf
        elif not expected.size:
            moved = 0.0
        else:
            difference = found - expected
            moved = float(np.abs(difference).max()) / unit
            with np.errstate(over="ignore", invalid="ignore"):
                self.power += float(np.square(expected).sum())
                self.noise += float(np.square(difference).sum())
        if not self.request or not moved <= self.largest:  # what is no number counts as the largest
            self.largest, self.request = (moved if np.isfinite(moved) else np.inf), request

    @property
    def snr(self) -> float:
        if not np.isfinite(self.largest) or not np.isfinite(self.noise):
            return -np.inf
        return 10 * float(np.log10(max(self.power, 1e-300) / self.noise)) if self.noise else np.inf

    def departs(self, exact: bool) -> bool:
        return self.largest > TOLERANCE if exact else self.snr < LEAST_SNR


@dataclass
class _Movement:
    """How far everything moves over all requests."""

    tensors: dict[str, _Difference] = field(default_factory=dict)
    outputs: dict[str, _Difference] = field(default_factory=dict)
    probabilities: _Difference = field(default_factory=_Difference)
    said: _Difference = field(default_factory=_Difference)
    answers: int = 0
    same: int = 0

    def add(self, request: Request, expected: Made, found: Made, spreads: Mapping[str, float]) -> None:
        for one, other in zip(expected.passes, found.passes, strict=True):
            for name, values in one.tensors.items():
                where = f"{name} of the {one.reads}" if one.reads == OPTION_TEXTS else name
                unit = max(1.0, float(values[0]))
                own = other.tensors.get(name, np.zeros(0))
                self.tensors.setdefault(where, _Difference()).add(request.name, values, own, unit)
            if one.reads != OPTION_TEXTS:  # whose outputs are tensors on the way
                for name, values in one.outputs.items():
                    own = other.outputs.get(name, np.zeros(0))
                    self.outputs.setdefault(name, _Difference()).add(request.name, values, own)
        for name, answer in expected.said.items():
            other_answer = found.said.get(name, Said(None))
            same = same_answer(answer, other_answer, spreads.get(name, 0.0))
            self.answers += 1
            self.same += same
            self.said.add(request.name, np.zeros(1), np.full(1, float(not same)))
            if same or not isinstance(answer.answer, list):  # other spans have other probabilities
                expected_ones, found_ones = (np.array(of_one.probabilities) for of_one in (answer, other_answer))
                self.probabilities.add(request.name, expected_ones, found_ones)


def same_answer(expected: Said, found: Said, spread: float = 0.0) -> bool:
    """Whether two answers are the same: a number within ``SAME_VALUE`` of ``spread``, and where two are equally likely
    within ``TOLERANCE``, either of them."""
    if expected.abstained != found.abstained:
        return False
    numbers = [expected.answer, found.answer]
    if all(isinstance(value, float) for value in numbers):
        return bool(abs(numbers[0] - numbers[1]) <= SAME_VALUE * spread)
    return bool(expected.answer == found.answer) or (_tied(expected) and _tied(found))


def _tied(said: Said) -> bool:
    """Whether the likeliest answer is no likelier than another."""
    if isinstance(said.answer, bool):
        return abs(said.probabilities[0] - 0.5) <= TOLERANCE if said.probabilities else False
    *_, second, first = [0.0, 0.0, *sorted(said.probabilities)]
    return isinstance(said.answer, (str, int)) and first - second <= 2 * TOLERANCE < first


def _departed_outputs(outputs: Mapping[str, _Difference]) -> Iterator[str]:
    return (name for name, one in outputs.items() if not one.largest <= TOLERANCE)


def _other_ids(request: Request, expected: Made, found: Made, bundle: Bundle) -> str:
    """The first token id that differs, in words; '' for none."""
    calls = [[one.ids for one in made.passes] for made in (expected, found)]
    if calls[0] == calls[1]:
        return ""
    rows = [[row for call in of_one for row in call] for of_one in calls]
    for one, other in zip(*rows, strict=False):
        place = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
        if one != other:
            tokenizer = TextTokenizer.from_file(bundle.path(bundle.manifest.tokenizer))
            seen = [
                f"{tokenizer.piece(ids[place])!r} ({ids[place]})" if place < len(ids) else "the end"
                for ids in (one, other)
            ]
            return f"the token ids of {request.name!r} depart at token {place}: {seen[0]} in the file, {seen[1]} here"
    told = [f"{len(of_one)} rows in {len(of_call)} calls" for of_one, of_call in zip(rows, calls, strict=True)]
    return f"the token ids of {request.name!r} are {told[0]} in the file, {told[1]} here: make a new file"


def _finite(value: float) -> float:
    """A number that JSON can hold."""
    return value if np.isfinite(value) else float(np.finfo(np.float32).max)
