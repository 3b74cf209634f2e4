"""How a bundle is run on this machine: which variant, on which engine, with how many threads, in which batches.

What the caller or the environment asks for comes first, then what ``julia1 tune`` found on this machine, then what the
probe of the CPU suggests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from julia1 import settings
from julia1.bundle import Bundle, Variant
from julia1.errors import EngineError, InputError
from julia1.runtime.cpu import Cpu
from julia1.runtime.engines import LENGTH_STEPS, missing_engine, require_engine
from julia1.runtime.tuned import Tuned, read_tuned
from julia1.runtime.variants import choose_variant

BATCH_TOKENS = 512
"""Padded tokens in one engine call at most; more fills no core better and only takes memory: 2,048 took 15 to 20 % more
CPU time on two cores, for texts of 10 and 40 words, and 60 MB."""

MOST_THREADS = 8
"""A single short text has too little to compute for more; ``julia1 tune`` measures whether it holds."""

SHARE = 0.75
"""Of the cores, where the machine is shared with others."""


@dataclass(frozen=True)
class Plan:
    """How a bundle is run.

    Attributes:
        variant: what is loaded.
        engine: what runs it.
        threads: of the engine.
        batch_tokens: padded tokens in one engine call at most.
        length_step: rows are padded to a multiple of so many tokens; 1 pads to the longest row of a batch.
        reason: why, in words.
    """

    variant: Variant
    engine: str
    threads: int
    batch_tokens: int = BATCH_TOKENS
    length_step: int = 1
    reason: str = "asked for"


def make_plan(
    bundle: Bundle,
    cpu: Cpu,
    *,
    variant: str | None = None,
    engine: str | None = None,
    threads: int | str | None = None,
    tuned: bool = True,
) -> Plan:
    """Choose how to run a bundle.

    Args:
        bundle: what is run.
        cpu: the probed CPU.
        variant, engine, threads: what the caller asks for, as ``julia1.load`` has it.
        tuned: whether what ``julia1 tune`` found here counts.

    Raises:
        EngineError: nothing of the bundle runs here, or not what is asked for.
        MissingExtraError: the engine is not installed.
        InputError: there is no such variant, or ``threads`` is no number and not ``share``.
    """
    variant, engine = variant or settings.variant(), engine or settings.engine()
    threads = settings.threads() if threads is None else threads
    found, note = _tuned(bundle, cpu) if tuned else (None, "")
    if found is not None and variant in (None, found.variant) and engine in (None, found.engine):
        plan = Plan(
            bundle.variant(found.variant),
            found.engine,
            found.threads,
            found.batch_tokens,
            found.length_step,
            f"tuned on this machine for {found.goal} on {found.date}",
        )
    else:
        chosen, reason = choose_variant(bundle, cpu, variant, engine)
        runs = engine or chosen.engine
        step, number = LENGTH_STEPS.get(runs, 1), min(cpu.cores, MOST_THREADS)
        plan = Plan(chosen, runs, number, length_step=step, reason=reason + note)
    if threads is not None:
        plan = replace(plan, threads=thread_count(threads, cpu))
    require_engine(plan.engine)
    return plan


def thread_count(wanted: int | str, cpu: Cpu) -> int:
    """The threads that are meant: a number, or ``share`` for 75 % of the cores, at least one.

    Raises:
        InputError: it is neither.
    """
    if wanted == "share":
        return max(1, int(SHARE * cpu.cores))
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        raise InputError(f"threads is {wanted!r}: give a whole number of at least 1, or 'share', or leave it out")
    return wanted


def _tuned(bundle: Bundle, cpu: Cpu) -> tuple[Tuned | None, str]:
    """What was found here, where it still can be used, and else a note of why not."""
    found, problem = read_tuned(bundle, cpu)
    if found is None:
        return None, f"; {problem}" if problem else ""
    try:
        choose_variant(bundle, cpu, found.variant, found.engine)
    except (EngineError, InputError) as error:
        return None, f"; not as tuned: {error}"
    missing = missing_engine(found.engine)
    return (None, f"; not as tuned: {missing}") if missing else (found, "")
