"""Keeps a decider busy for a while and records what becomes of the process and of one request that never changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from julia1.bench.process import ProcessSample, peak_memory, sample_process
from julia1.bench.workload import Workload
from julia1.errors import InputError, Julia1Error
from julia1.runtime.decider import Decider

FloatArray = npt.NDArray[np.float64]

SAMPLE_SECONDS, PROBE_SECONDS = 1.0, 0.25
MOST_SAMPLES, MOST_PROBES = 20_000, 40_000
LEAST_SAMPLES, LEAST_PROBES = 120, 400
"""Of a short run, which is looked at more often."""
STEADY_WORK = 32_768
_SAMPLE = ("time", *ProcessSample._fields, "own_busy")
_PROBE = ("time", "wall", "cpu", "steady")

Report = Callable[["Moment"], None]


@dataclass(frozen=True)
class Moment:
    """How far a soak is: seconds, of how many, requests, resident bytes (NaN if unknown), milliseconds of the probe."""

    seconds: float
    of: float
    requests: int
    resident: float
    probe: float


@dataclass(frozen=True)
class Recording:
    """What was seen. Times are seconds since the start.

    Attributes:
        planned, seconds: how long it was to last, and did.
        interrupted: it was stopped by Ctrl-C.
        requests, texts: asked at random, beside the probes.
        errors: requests that failed.
        first_error: of them, '' for none.
        samples: by field of ``ProcessSample``; ``time``; ``own_busy``, CPU seconds that this process has taken; float64
            ``[samples]``.
        probes: ``time``; ``wall`` and ``cpu``, the seconds of a probe by the clock and by this process's processors;
            ``steady``, the seconds of a piece of arithmetic that never changes; float64 ``[probes]``.
        peak: largest resident memory of the process, NaN if unknown.
    """

    planned: float
    seconds: float
    interrupted: bool
    requests: int
    texts: int
    errors: int
    first_error: str
    samples: dict[str, FloatArray]
    probes: dict[str, FloatArray]
    peak: float


def soak(
    decider: Decider,
    workload: Workload,
    seconds: float,
    report: Report | None = None,
    sample: Callable[[], ProcessSample] = sample_process,
) -> Recording:
    """Ask for so many seconds; Ctrl-C ends it early, with what was seen so far.

    One thread asks. Memory is looked at between two requests, where what a request needs for itself is free again.

    Args:
        decider: what is asked.
        workload: what it is asked.
        seconds: for how long.
        report: called after each sample.
        sample: how the process is looked at.

    Raises:
        InputError: ``seconds`` is not above 0.
        Julia1Error: the probe cannot be answered.
    """
    if not 0 < seconds < math.inf:
        raise InputError(f"a soak of {seconds:g} seconds: give a time above 0")
    workload.probe(decider)
    sample_gap = max(min(SAMPLE_SECONDS, seconds / LEAST_SAMPLES), seconds / MOST_SAMPLES)
    probe_gap = max(min(PROBE_SECONDS, seconds / LEAST_PROBES), seconds / MOST_PROBES)
    samples = _Table(_SAMPLE, round(seconds / sample_gap) + 2)
    probes = _Table(_PROBE, round(seconds / probe_gap) + 2)
    steady = _Steady()
    requests = texts = errors = 0
    first_error, interrupted = "", False
    start = time.perf_counter()
    next_sample, next_probe, now, last = sample_gap, 0.0, 0.0, math.nan
    try:
        while now < seconds:
            if now >= next_probe:
                unit = steady.seconds()
                cpu, wall = time.process_time(), time.perf_counter()
                workload.probe(decider)
                last = time.perf_counter() - wall
                probes.add(now, last, time.process_time() - cpu, unit)
                next_probe = _next(next_probe, probe_gap, now)
            if now >= next_sample:
                seen = sample()
                samples.add(now, *seen, time.process_time())
                next_sample = _next(next_sample, sample_gap, now)
                if report is not None:
                    report(Moment(now, seconds, requests, seen.resident, last * 1000))
            try:
                texts += workload.ask(decider)
            except Julia1Error as error:
                errors += 1
                first_error = first_error or str(error)
            requests += 1
            now = time.perf_counter() - start
    except KeyboardInterrupt:
        interrupted = True
        now = time.perf_counter() - start
    return Recording(
        seconds,
        now,
        interrupted,
        requests,
        texts,
        errors,
        first_error,
        samples.columns(),
        probes.columns(),
        peak_memory(),
    )


def _next(due: float, gap: float, now: float) -> float:
    """When to look again: after a long request once, and not for every time that was missed."""
    return max(due + gap, now + gap / 2)


class _Table:
    """Rows of numbers in memory that was taken and touched at the start: recording must not look like a leak."""

    def __init__(self, names: tuple[str, ...], rows: int) -> None:
        self._names = names
        self._values = np.full((rows, len(names)), math.nan)
        self._used = 0

    def add(self, *values: float) -> None:
        if self._used < len(self._values):
            self._values[self._used] = values
            self._used += 1

    def columns(self) -> dict[str, FloatArray]:
        return {name: self._values[: self._used, i].copy() for i, name in enumerate(self._names)}


class _Steady:
    """A piece of arithmetic on one core, about as long as it takes to see whether the machine has become slower."""

    def __init__(self) -> None:
        self._values = np.linspace(-1, 1, STEADY_WORK, dtype=np.float32)
        self._room = np.empty_like(self._values)

    def seconds(self) -> float:
        start = time.perf_counter()
        for _ in range(8):
            np.exp(self._values, out=self._room)
        return time.perf_counter() - start
