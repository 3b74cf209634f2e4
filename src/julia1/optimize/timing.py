"""What each stage of an optimization costs: size, time of a load, times of a row, in turn on the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from julia1.optimize.graph import Arrays, new_session, run

ROUNDS, MOST_ROWS = 5, 40


@dataclass(frozen=True)
class Stage:
    """What a model costs on one thread of this machine.

    Attributes:
        name: of the stage.
        bytes: of the file.
        load_seconds: to make a session.
        p50, p95: seconds of a row by itself.
        rows_a_second: one after another.
        faster: median, over rows and rounds, of the baseline's seconds by these.
    """

    name: str
    bytes: int
    load_seconds: float
    p50: float
    p95: float
    rows_a_second: float
    faster: float


def measure(models: Mapping[str, onnx.ModelProto], rows: Sequence[Arrays], tell: Callable[[str], None]) -> list[Stage]:
    """Time every model on the same rows; in each round the models take turns row by row, in an order drawn anew.

    Args:
        models: by name of the stage, the baseline first.
        rows: of which at most ``MOST_ROWS`` are used.
        tell: is told a line a stage.
    """
    sessions, loads, sizes = {}, {}, {}
    for name, model in models.items():
        began = time.perf_counter()
        sessions[name] = new_session(model, optimised=True)
        loads[name] = time.perf_counter() - began
        sizes[name] = len(model.SerializeToString())
    used = rows[:: max(1, len(rows) // MOST_ROWS)][:MOST_ROWS]
    seconds = {name: np.zeros((ROUNDS, len(used))) for name in models}
    order = np.random.default_rng(0)
    for turn in range(-1, ROUNDS):  # the first round warms up
        for place, feeds in enumerate(used):
            for name in order.permutation(list(models)):
                began = time.perf_counter()
                run(sessions[name], None, feeds)
                if turn >= 0:
                    seconds[name][turn, place] = time.perf_counter() - began
    baseline = seconds[next(iter(models))]
    stages = []
    for name, own in seconds.items():
        p50, p95 = (float(value) for value in np.percentile(own, (50, 95)))
        stage = Stage(name, sizes[name], loads[name], p50, p95, float(1 / own.mean()), float(np.median(baseline / own)))
        stages.append(stage)
        tell(f"{name}: {stage.bytes / 1e6:.1f} MB, {p50 * 1e3:.2f} ms a row, {stage.faster:.2f} times as fast")
    return stages
