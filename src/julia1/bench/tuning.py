"""The fastest safe way to run a bundle on this machine, found by measuring.

Every way to load the bundle (variant, engine, threads) is tried in a process of its own, briefly; the best go on to
padding and batches, and the best of these are compared round by round, in turn, so that what else the machine does
meets all alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from statistics import median
from typing import Any, Literal

from julia1.bench.trial import Load, Trial, TrialFailed, Way
from julia1.bundle import Bundle
from julia1.errors import EngineError, InputError
from julia1.runtime.cpu import Cpu
from julia1.runtime.engines import ENGINES, LENGTH_STEPS, cannot_run, missing_engine
from julia1.runtime.golden.checking import SAME_VALUE
from julia1.runtime.tuned import Tuned
from julia1.runtime.variants import missing_needs

Goal = Literal["latency", "throughput"]
Say = Callable[[str], None]

BATCHES = (256, 512, 1024, 2048, 4096)
STEPS = (1, 16, 64)
LEAST_AGREEMENT = 0.97
"""Of the answers of fp32: a way that gives fewer is not safe."""
_KEPT = 4
_NEAR = 1.25
"""How far from the best a way may be after the first look."""
_MEMORY_EACH = 600 << 20


@dataclass(frozen=True)
class Setting:
    """All that is chosen: what is loaded, and its batches and padding."""

    way: Way
    batch_tokens: int
    length_step: int = 1


@dataclass
class Measured:
    """What was seen of a setting.

    Attributes:
        setting: what was measured.
        singles: seconds of each text asked alone, over all rounds.
        rates: texts a second of each round of all texts at once.
        memory: peak resident bytes of its process, which had seen smaller batches before; 0 if unknown.
        agreement: share of the answers that are those of fp32.
        problem: why it was given up, else ''.
    """

    setting: Setting
    singles: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    memory: int = 0
    agreement: float = math.nan
    problem: str = ""

    @property
    def latency(self) -> float:
        """Median milliseconds of one text; infinite where nothing was measured."""
        return 1000 * median(self.singles) if self.singles else math.inf

    @property
    def p95(self) -> float:
        """Of the same, the 95th percentile."""
        return 1000 * sorted(self.singles)[int(0.95 * (len(self.singles) - 1))] if self.singles else math.inf

    @property
    def rate(self) -> float:
        """Median texts a second, 0 where nothing was measured."""
        return median(self.rates) if self.rates else 0.0

    def cost(self, goal: Goal) -> float:
        """What is made small."""
        return self.latency if goal == "latency" else 1 / self.rate if self.rate else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what was not measured is ``None``."""
        return {
            **asdict(self.setting.way),
            "batch_tokens": self.setting.batch_tokens,
            "length_step": self.setting.length_step,
            "latency_ms": round(self.latency, 3) if self.singles else None,
            "p95_ms": round(self.p95, 3) if self.singles else None,
            "texts_per_second": round(self.rate, 1) if self.rates else None,
            "memory_bytes": self.memory or None,
            "agreement": None if math.isnan(self.agreement) else round(self.agreement, 4),
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Wanted:
    """What the user asks of a search.

    Attributes:
        goal: what is made small or large.
        most_memory: bytes that the process may take; any when ``None``.
        engines, threads: those to try; every one that is installed, and 1, 2, 4 … up to the cores, when empty.
        exhaustive: measure every combination, round by round.
        rounds: of the last comparison.
    """

    goal: Goal = "latency"
    most_memory: int | None = None
    engines: Sequence[str] = ()
    threads: Sequence[int] = ()
    exhaustive: bool = False
    rounds: int = 5


def ways(bundle: Bundle, cpu: Cpu, wanted: Wanted) -> list[Way]:
    """Every way to load the bundle that this machine allows."""
    engines = [name for name in (wanted.engines or ENGINES) if not missing_engine(name)]
    counts = sorted(set(wanted.threads)) or thread_counts(cpu.cores)
    return [
        Way(variant.name, engine, threads)
        for variant in bundle.manifest.variants
        if not missing_needs(variant, cpu)
        for engine in engines
        if not cannot_run(engine, variant)
        for threads in counts
    ]


def steps_of(engine: str) -> list[int]:
    """The paddings to try; none under what bounds the memory of an engine that keeps something for each shape."""
    least = LENGTH_STEPS.get(engine, 1)
    return sorted({least, *(step for step in STEPS if step > least)})


def thread_counts(cores: int) -> list[int]:
    """1, 2, 4 … and the cores themselves."""
    return sorted({*(1 << power for power in range(cores.bit_length()) if 1 << power <= cores), cores})


def search(bundle: Bundle, cpu: Cpu, work: Load, wanted: Wanted, say: Say = lambda _: None) -> list[Measured]:
    """Measure ways to run the bundle, and return all that was measured, the best first.

    Raises:
        EngineError: none of them runs here, agrees with fp32 and takes no more memory than is allowed.
        InputError: there is not memory enough to keep every way loaded, as an exhaustive search does.
    """
    most = _trials_at_once(cpu)
    able = ways(bundle, cpu, wanted)
    if wanted.exhaustive and len(able) > most:
        raise InputError(f"an exhaustive search keeps {len(able)} models loaded, memory is for {most}: try fewer ways")
    tried, alive = _first_look(bundle, able, work, wanted, min(most, _KEPT), say)
    others: list[Measured] = []
    try:
        if wanted.exhaustive:
            finalists = [
                Measured(Setting(way, size, step)) for size in BATCHES for way in alive for step in steps_of(way.engine)
            ]
        else:
            finalists = []
            for way, trial in alive.items():
                best, rest = _sweep(trial, wanted.goal)
                size, step = best.setting.batch_tokens, best.setting.length_step
                say(f"{_named(way)}: batches of {size} tokens, padded to a multiple of {step}")
                # figures that chose a setting may not judge it
                finalists.append(Measured(best.setting, memory=best.memory))
                others += rest
        for number in range(wanted.rounds):
            for one in finalists if number % 2 == 0 else reversed(finalists):
                _round(alive[one.setting.way], one)
            say(f"round {number + 1} of {wanted.rounds}")
        if wanted.exhaustive:
            _pool(finalists)
        for one in [*finalists, *others]:
            one.agreement = tried[one.setting.way].agreement
    finally:
        for trial in alive.values():
            trial.close()
    dropped = [one for way, one in tried.items() if way not in alive]
    if not any(allowed(one, wanted) for one in finalists):
        told = "; ".join(f"{_named(one.setting.way)}: {one.problem}" for one in [*finalists, *dropped] if one.problem)
        raise EngineError(f"no way to run {bundle.manifest.name} is allowed here: {told or 'all take more memory'}")
    finalists.sort(key=lambda one: (not allowed(one, wanted), one.cost(wanted.goal)))
    return [*finalists, *sorted([*others, *dropped], key=lambda one: one.cost(wanted.goal))]


def allowed(one: Measured, wanted: Wanted) -> bool:
    """Whether a setting may be chosen."""
    fits = wanted.most_memory is None or one.memory <= wanted.most_memory
    return not one.problem and one.agreement >= LEAST_AGREEMENT and fits and one.cost(wanted.goal) < math.inf


def front(measured: Sequence[Measured]) -> set[Setting]:
    """Settings that no other beats in latency, throughput and memory at once."""

    def better(one: Measured, other: Measured) -> bool:
        mine, theirs = (one.latency, -one.rate, one.memory), (other.latency, -other.rate, other.memory)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    whole = [one for one in measured if not one.problem and one.singles and one.rates]
    return {one.setting for one in whole if not any(better(other, one) for other in whole)}


def tuned(best: Measured, goal: Goal) -> Tuned:
    """What is kept of the best."""
    way = best.setting.way
    measured: Mapping[str, Any] = {
        key: value for key, value in best.to_dict().items() if key.endswith(("ms", "second", "bytes", "agreement"))
    }
    sizes = best.setting.batch_tokens, best.setting.length_step
    return Tuned(way.variant, way.engine, way.threads, *sizes, goal, date.today().isoformat(), measured)


def _first_look(
    bundle: Bundle, able: Sequence[Way], work: Load, wanted: Wanted, most: int, say: Say
) -> tuple[dict[Way, Measured], dict[Way, Trial]]:
    """Each way for a round or two; those near the best stay loaded."""
    tried: dict[Way, Measured] = {}
    alive: dict[Way, Trial] = {}
    expected = _reference(bundle, able, work)
    for way in able:
        step = steps_of(way.engine)[0]
        one = tried[way] = Measured(Setting(way, BATCHES[0], step))
        try:
            trial = Trial(bundle.source, way, work)
            one.agreement = agreement(expected, trial.answers())
            trial.singles(step)
            for _ in range(2):
                _round(trial, one)
        except TrialFailed as error:
            one.problem = str(error)
        if not one.problem and one.agreement < LEAST_AGREEMENT:
            one.problem = f"only {one.agreement:.1%} of its answers are those of fp32"
            trial.close()
        say(f"{_named(way)}: {one.problem or f'{one.latency:.2f} ms, {one.rate:.0f} texts/s'}")
        if not one.problem:
            alive[way] = trial
            if not wanted.exhaustive:
                _drop(tried, alive, wanted, most)
    return tried, alive


def _drop(tried: Mapping[Way, Measured], alive: dict[Way, Trial], wanted: Wanted, most: int) -> None:
    """Close those that are far from the best, and the worst of those that are too many; none that fits for one that
    takes too much memory."""
    order = sorted(alive, key=lambda way: (not allowed(tried[way], wanted), tried[way].cost(wanted.goal)))
    least = tried[order[0]].cost(wanted.goal)
    for place, way in enumerate(order):
        if place >= most or tried[way].cost(wanted.goal) > _NEAR * least:
            alive.pop(way).close()


def _sweep(trial: Trial, goal: Goal) -> tuple[Measured, list[Measured]]:
    """Batches, then padding: the best of both, and the rest of what was measured."""
    paddings = steps_of(trial.way.engine)
    sizes = [Measured(Setting(trial.way, size, paddings[0])) for size in BATCHES]
    for _ in range(2):
        for one in sizes:  # in this order: memory that was once taken shows from then on
            _round(trial, one)
    size = max(sizes, key=lambda one: one.rate).setting.batch_tokens
    steps = [Measured(Setting(trial.way, size, step)) for step in paddings]
    for _ in range(2):
        for one in steps:
            _round(trial, one)
    best = min(steps, key=lambda one: one.cost(goal))
    seen = [*steps, *(one for one in sizes if one.setting.batch_tokens != size)]
    for one in steps:
        one.memory = next(other.memory for other in sizes if other.setting.batch_tokens == size)
    return best, [one for one in seen if one is not best]


def _round(trial: Trial, one: Measured) -> None:
    """The first texts alone, and all at once; the first time the memory too."""
    if one.problem:
        return
    try:
        one.singles += trial.singles(one.setting.length_step)
        one.rates.append(trial.together(one.setting.batch_tokens, one.setting.length_step))
        one.memory = one.memory or trial.memory()
    except TrialFailed as error:
        one.problem = str(error)


def _pool(measured: Sequence[Measured]) -> None:
    """A batch is nothing to a text alone: what was measured of it with any size of batches holds for all."""
    pools: dict[tuple[Way, int], list[float]] = {}
    for one in measured:
        pools.setdefault((one.setting.way, one.setting.length_step), []).extend(one.singles)
    for one in measured:
        one.singles = pools[one.setting.way, one.setting.length_step]


def _reference(bundle: Bundle, able: Sequence[Way], work: Load) -> list[dict[str, Any]]:
    """The answers of the most exact variant, on its own engine."""
    if not able:
        raise EngineError(f"no variant of {bundle.manifest.name} runs here: see  julia1 doctor")
    variants = [bundle.variant(name) for name in {way.variant: None for way in able}]
    exact = next((variant for variant in variants if variant.precision == "fp32"), variants[-1])
    try:
        trial = Trial(bundle.source, Way(exact.name, exact.engine, max(way.threads for way in able)), work)
    except TrialFailed as error:
        raise EngineError(f"the variant {exact.name!r}, which others are compared with, {error}") from None
    try:
        return trial.answers()
    except TrialFailed as error:
        raise EngineError(f"the variant {exact.name!r}, which others are compared with, {error}") from None
    finally:
        trial.close()


def agreement(expected: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> float:
    """Share of the answers that are the same; numbers within a twentieth of their deviation."""
    same = [
        abs(value - other[name]) <= SAME_VALUE if isinstance(value, float) else value == other[name]
        for one, other in zip(expected, found, strict=True)
        for name, value in one.items()
    ]
    return sum(same) / len(same) if same else 1.0


def _trials_at_once(cpu: Cpu) -> int:
    return _KEPT if cpu.memory is None else max(1, cpu.memory // _MEMORY_EACH - 1)


def _named(way: Way) -> str:
    return f"{way.variant} on {way.engine}, {way.threads} thread{'s' if way.threads > 1 else ''}"
