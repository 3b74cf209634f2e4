"""What a soak says: is there a trend in memory, descriptors, threads or latency, once the process is warm?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.bench.soaking import Recording
from julia1.bench.trends import LEAST_BLOCKS, Growth, growth, quantile_ratio
from julia1.bench.verdicts import Verdict, judged
from julia1.train.scores import Interval

SHOWN_POINTS = 500
"""Of each series in a report, at most."""
MEGABYTE = 1e6
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """What counts as a trend.

    Attributes:
        warm_up: share of the run that is not judged.
        bytes: memory may grow by so many in what is judged ...
        share: ... or by this share of itself an hour, in an hour at most, where that is more.
        p50, p99: the probe is slower when its quantile in the last third, at the low end of the 95 % interval, is more
            than so many times that in the first.
        seconds: of what is judged at least; growth within less cannot be told from settling.
        probes: in a third at least, for the 50th percentile.
        tail_probes: the same for the 99th.
        busier: processors that others take more of in the last third than in the first, from which on slowness that
            takes no processor time is theirs.
    """

    warm_up: float = 0.2
    bytes: float = MEGABYTE
    share: float = 0.01
    p50: float = 1.1
    p99: float = 1.25
    seconds: float = 20.0
    probes: int = 20
    tail_probes: int = 200
    busier: float = 0.05


@dataclass(frozen=True)
class SoakReport:
    """A soak and what it says.

    Attributes:
        recording: what was seen.
        verdicts: on memory, descriptors, threads, latency, requests.
        warm_up: seconds that were not judged.
    """

    recording: Recording
    verdicts: tuple[Verdict, ...]
    warm_up: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; each series is thinned to ``SHOWN_POINTS``, what is not known is null."""
        seen = self.recording
        return {
            "minutes": round(seen.seconds / 60, 3),
            "planned_minutes": round(seen.planned / 60, 3),
            "interrupted": seen.interrupted,
            "warm_up_minutes": round(self.warm_up / 60, 3),
            "requests": seen.requests,
            "texts": seen.texts,
            "errors": seen.errors,
            "first_error": seen.first_error,
            "peak_bytes": _known(seen.peak),
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "samples": _thinned(seen.samples),
            "probes": _thinned(seen.probes),
        }


def judge(recording: Recording, limits: Limits | None = None) -> SoakReport:
    """What the series say about the time after the warm-up."""
    limits = limits or Limits()
    warm_up = recording.seconds * limits.warm_up
    samples = _after(recording.samples, warm_up)
    probes = _after(recording.probes, warm_up)
    verdicts = (
        _memory(samples, limits),
        _constant("descriptors", samples, "descriptors"),
        _constant("threads", samples, "threads"),
        _latency("latency p50", 0.5, limits.p50, limits.probes, samples, probes, limits),
        _latency("latency p99", 0.99, limits.p99, limits.tail_probes, samples, probes, limits),
        judged(
            "requests",
            recording.errors == 0,
            f"{recording.requests:,}, {recording.errors:,} failed",
            "none fails",
            recording.first_error,
            requests=recording.requests,
            errors=recording.errors,
        ),
    )
    return SoakReport(recording, verdicts, warm_up)


def _memory(samples: dict[str, FloatArray], limits: Limits) -> Verdict:
    name, limit = "memory", "no growth"
    times, resident = samples["time"], samples["resident"]
    if len(resident) and not np.isfinite(resident).any():
        return Verdict(name, "not measured", limit=limit, note="this system does not tell the resident memory")
    # what was moved to swap is still held
    held = resident + np.nan_to_num(samples["swapped"])
    judged_for = float(times[-1] - times[0]) if len(times) else 0.0
    if judged_for < limits.seconds or np.isfinite(held).sum() < LEAST_BLOCKS:
        note = f"{judged_for:.0f} s after the warm-up are too few to tell growth from settling: take more minutes"
        return Verdict(name, "not measured", limit=limit, note=note)
    allowed = max(limits.bytes, limits.share * float(np.nanmedian(held)) * min(1.0, judged_for / 3600))
    found = growth(times, held, allowed / judged_for)
    first, last = (float(np.nanmedian(part)) for part in (held[: len(held) // 10 + 1], held[-(len(held) // 10 + 1) :]))
    rate = 60 / MEGABYTE
    numbers = {
        "bytes_first": first,
        "bytes_last": last,
        "shared_out_bytes_last": _known(float(samples["shared_out"][-1])),
        "bytes_a_minute": _interval(found.slope, 60),
        "bytes_a_minute_steady": found.steady * 60,
        "bytes_a_minute_ahead": found.ahead * 60,
        "smallest_found_bytes_a_minute": _known(found.smallest * 60),
    }
    slope = found.slope
    figure = (
        f"{first / MEGABYTE:,.1f} to {last / MEGABYTE:,.1f} MB, {slope.value * rate:+.2f} MB/min "
        f"({slope.low * rate:+.2f} to {slope.high * rate:+.2f})"
    )
    return judged(name, not found.grows, figure, limit, _memory_note(found, last - first, allowed), **numbers)


def _memory_note(found: Growth, rise: float, allowed: float) -> str:
    if found.grows:
        return f"rises all along, by {found.ahead * 60 / MEGABYTE:.2f} MB/min at the end"
    sight = f"growth under {found.smallest * 60 / MEGABYTE:.2f} MB/min cannot be seen in so short a run"
    if rise <= allowed:
        return sight
    kind = "in steps" if found.steady * 2 < found.slope.value else "ever more slowly"
    return f"rose by {rise / MEGABYTE:.1f} MB, {kind}, which is not called growth: a longer run tells more; {sight}"


def _constant(name: str, samples: dict[str, FloatArray], key: str) -> Verdict:
    """A number that must not be higher all through the last third than it ever was in the first."""
    first, last = (part[np.isfinite(part)] for part in _thirds(samples[key], samples["time"]))
    if not len(first) or not len(last):
        known = np.isfinite(samples[key]).any()
        note = "the run was too short" if known or not len(samples[key]) else f"this system does not tell the {name}"
        return Verdict(name, "not measured", limit="constant", note=note)
    before, after = int(first.max()), int(last.min())
    figure = f"{before:,}" if before == after else f"{before:,} at first, {after:,} at last"
    return judged(name, after <= before, figure, "constant", first=before, last=after)


def _latency(
    name: str,
    quantile: float,
    most: float,
    least: int,
    samples: dict[str, FloatArray],
    probes: dict[str, FloatArray],
    limits: Limits,
) -> Verdict:
    times = probes["time"]
    first, last = _thirds(probes["wall"], times)
    limit = f"at most x{most:g}"
    if min(len(first), len(last)) < least:
        number = min(len(first), len(last))
        note = f"{number:,} probes in a third of the run, {least:,} are needed: take more minutes"
        return Verdict(name, "not measured", limit=limit, note=note)
    found = quantile_ratio(first, last, quantile, scale=_thirds(probes["steady"], times))
    low, high = float(np.quantile(first, quantile)), float(np.quantile(last, quantile))
    slower = found.low > most
    figure = f"{low * 1000:.2f} to {high * 1000:.2f} ms, x{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
    numbers = {"first_seconds": low, "last_seconds": high, "ratio": _interval(found)}
    if slower:
        took = quantile_ratio(*_thirds(probes["cpu"], times), 0.5, scale=_thirds(probes["steady"], times))
        others = _others(samples)
        numbers |= {"cpu_ratio": _interval(took), "others_busier": [_known(one) for one in others]}
        if took.low <= most and others[1] - others[0] > limits.busier:
            note = (
                f"other processes took {others[0]:.2f} processors at first and {others[1]:.2f} at last, and a probe "
                f"takes x{took.value:.2f} of the processor time: run it again on a machine that is idle"
            )
            return Verdict(name, "not measured", figure, limit, note, numbers)
    change = _steady_change(probes)
    note = f"beside a machine that became x{change:.2f} slower" if change > most else ""
    return judged(name, not slower, figure, limit, note, **numbers)


def _others(samples: dict[str, FloatArray]) -> tuple[float, float]:
    """Processors that other processes took in the first third and in the last; NaN where the system does not tell."""
    times = samples["time"]
    taken = samples["machine_busy"] - samples["own_busy"]
    found = []
    for values, when in zip(_thirds(taken, times), _thirds(times, times), strict=True):
        long_enough = len(when) > 1 and when[-1] > when[0]
        found.append(float((values[-1] - values[0]) / (when[-1] - when[0])) if long_enough else math.nan)
    return found[0], found[1]


def _steady_change(probes: dict[str, FloatArray]) -> float:
    first, last = _thirds(probes["steady"], probes["time"])
    return float(np.median(last) / np.median(first))


def _after(series: dict[str, FloatArray], start: float) -> dict[str, FloatArray]:
    kept = series["time"] >= start
    return {name: values[kept] for name, values in series.items()}


def _thirds(values: FloatArray, times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The values of the first third of the time, and of the last."""
    if not len(times):
        return values, values
    step = (times[-1] - times[0]) / 3
    return values[times <= times[0] + step], values[times >= times[-1] - step]


def _interval(found: Interval, scale: float = 1.0) -> list[float | None]:
    return [_known(one * scale) for one in (found.value, found.low, found.high)]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _thinned(series: dict[str, FloatArray]) -> dict[str, Sequence[float | None]]:
    number = len(series["time"])
    places = np.unique(np.linspace(0, max(0, number - 1), min(number, SHOWN_POINTS)).astype(int))
    return {name: [_known(float(f"{values[i]:.6g}")) for i in places] for name, values in series.items()}
