"""A soak asks for as long as it should and records what it sees, whatever happens."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from bench_samples import Failing, Toy, manifest

from julia1.bench.process import ProcessSample
from julia1.bench.soaking import Moment, soak
from julia1.bench.workload import Workload
from julia1.errors import InputError


def test_it_lasts_as_long_as_it_should_and_looks_often() -> None:
    moments: list[Moment] = []
    began = time.monotonic()
    found = soak(Toy(), Workload(manifest()), 1.0, moments.append)
    assert 1.0 <= time.monotonic() - began < 5.0
    assert 1.0 <= found.seconds < 4.0 and found.planned == 1.0 and not found.interrupted
    assert found.requests > 5 and found.texts > found.requests and found.errors == 0
    # a busy machine does less, and never looks more often
    assert 5 < len(found.samples["time"]) <= 122 and 5 < len(found.probes["time"]) <= 402
    for series in (found.samples, found.probes):
        assert (np.diff(series["time"]) > 0).all()
        assert len({len(values) for values in series.values()}) == 1
    assert (found.probes["wall"] > 0.001).all() and (found.probes["steady"] > 0).all()
    assert [moment.of for moment in moments] == [1.0] * len(found.samples["time"])
    assert moments[-1].requests <= found.requests


def test_what_the_system_does_not_tell_is_recorded_as_such() -> None:
    found = soak(Toy(), Workload(manifest()), 0.3, sample=ProcessSample)
    assert len(found.samples["resident"]) and np.isnan(found.samples["resident"]).all()


def test_ctrl_c_keeps_what_was_seen() -> None:
    class Stopped(Toy):
        def work(self) -> None:
            super().work()
            if time.monotonic() - self.began > 0.3:
                raise KeyboardInterrupt

    found = soak(Stopped(), Workload(manifest()), 60.0)
    assert found.interrupted and 0.2 < found.seconds < 5
    assert found.planned == 60 and found.requests > 1 and len(found.probes["time"])


def test_requests_that_fail_are_counted_and_the_soak_goes_on() -> None:
    found = soak(Failing(), Workload(manifest()), 0.5)
    assert 0 < found.errors < found.requests
    assert found.first_error == "this one cannot be answered"


def test_a_long_request_is_not_followed_by_all_that_was_missed() -> None:
    class Slow(Toy):
        def work(self) -> None:
            time.sleep(0.05)

    found = soak(Slow(), Workload(manifest()), 1.0)
    assert len(found.probes["time"]) <= found.requests + 1


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="above 0"):
        soak(Toy(), Workload(manifest()), seconds)


def test_recording_takes_no_memory_while_it_runs() -> None:
    looks = itertools.count()
    seen: list[float] = []

    def sample() -> ProcessSample:
        from julia1.bench.process import sample_process

        found = sample_process()
        if next(looks) % 20 == 0:
            seen.append(found.resident)
        return found

    toy = Toy()
    toy.seen = type("Nothing", (list,), {"append": lambda self, item: None})()
    soak(toy, Workload(manifest()), 1.5, sample=sample)
    assert math.isnan(seen[0]) or seen[-1] - seen[len(seen) // 3] < 1e6
