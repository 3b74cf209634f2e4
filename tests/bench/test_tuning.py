"""The search for the fastest way to run a bundle: on made-up timings, and once for real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import Choice, EngineError, InputError
from julia1.bench import tuning
from julia1.bench.trial import Load, Trial, TrialFailed, Way
from julia1.bench.tuning import Measured, Setting, Wanted, agreement, front, search, thread_counts, tuned
from julia1.bundle import Bundle
from julia1.runtime import Cpu, load, probe
from julia1.runtime.fixed import Given
from julia1.runtime.tuned import write_tuned

CPU = Cpu("x86_64", frozenset({"sse4_2", "vnni"}), 4, "CPU", 4, 4, None, 16 << 30)
WORK = Load([Given("a"), Given("where is my order")], {"q": Choice("Which?", ["a", "b"])})


class FakeTrial:
    """Stands in for a process: its times come from a function of the setting."""

    cost: Callable[[Way, int, int], float]
    said: dict[str, str]
    open: set[Way]

    def __init__(self, bundle: Path, way: Way, work: Load) -> None:
        if way.variant in FakeTrial.said and FakeTrial.said[way.variant] == "dies":
            raise TrialFailed("died of SIGILL")
        self.way, self.load_seconds = way, 0.1
        FakeTrial.open.add(way)

    def singles(self, step: int) -> list[float]:
        return [FakeTrial.cost(self.way, 1024, step)] * 3

    def together(self, batch_tokens: int, step: int) -> float:
        return 1 / FakeTrial.cost(self.way, batch_tokens, step)

    def answers(self) -> list[dict[str, Any]]:
        return [{"q": FakeTrial.said.get(self.way.variant, "a")}] * 10

    def memory(self) -> int:
        return (100 if self.way.variant == "int8" else 300) << 20

    def close(self) -> None:
        FakeTrial.open.discard(self.way)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeTrial]]:
    monkeypatch.setattr(tuning, "Trial", FakeTrial)
    FakeTrial.said, FakeTrial.open = {}, set()
    yield FakeTrial
    assert not FakeTrial.open, "every process is ended, whatever happens"


def batch_penalty(way: Way, batch: int, step: int) -> float:
    """The best: int8, 2 threads, batches of 512, padded to 16."""
    base = 1.0 if way.variant == "int8" else 2.0
    return base * (1 + 0.2 * abs(way.threads - 2)) * (1 if batch == 512 else 1.5) * (1 if step == 16 else 1.3)


@pytest.mark.parametrize("goal", ["latency", "throughput"])
@pytest.mark.parametrize("exhaustive", [False, True])
def test_the_best_setting_is_found(
    tiny_bundle: Path, fake: type[FakeTrial], goal: tuning.Goal, exhaustive: bool
) -> None:
    fake.cost = staticmethod(batch_penalty)
    found = search(Bundle.open(tiny_bundle), CPU, WORK, Wanted(goal, exhaustive=exhaustive, rounds=2))
    best = found[0].setting
    assert (best.way.variant, best.way.threads, best.length_step) == ("int8", 2, 16)
    if goal == "throughput":
        assert best.batch_tokens == 512
    kept = tuned(found[0], goal)
    assert (kept.variant, kept.threads, kept.length_step, kept.goal) == ("int8", 2, 16, goal)
    assert kept.measured["agreement"] == 1.0


def test_what_answers_otherwise_than_fp32_is_never_chosen(tiny_bundle: Path, fake: type[FakeTrial]) -> None:
    fake.cost, fake.said = staticmethod(batch_penalty), {"int8": "b"}
    found = search(Bundle.open(tiny_bundle), CPU, WORK, Wanted(rounds=1))
    assert found[0].setting.way.variant == "fp32"
    assert any("0.0% of its answers" in one.problem for one in found)


def test_what_dies_is_reported_and_passed_over(tiny_bundle: Path, fake: type[FakeTrial]) -> None:
    fake.cost, fake.said = staticmethod(batch_penalty), {"int8": "dies"}
    lines: list[str] = []
    found = search(Bundle.open(tiny_bundle), CPU, WORK, Wanted(rounds=1), lines.append)
    assert found[0].setting.way.variant == "fp32"
    assert any("died of SIGILL" in line for line in lines)


def test_where_nothing_runs_one_error_says_so(tiny_bundle: Path, fake: type[FakeTrial]) -> None:
    fake.cost, fake.said = staticmethod(batch_penalty), {"int8": "dies", "fp32": "dies"}
    with pytest.raises(EngineError, match="died of SIGILL"):
        search(Bundle.open(tiny_bundle), CPU, WORK, Wanted())


def test_a_bound_on_memory_is_kept(tiny_bundle: Path, fake: type[FakeTrial]) -> None:
    fake.cost = staticmethod(lambda way, batch, step: 1.0 if way.variant == "fp32" else 1.1)
    bundle = Bundle.open(tiny_bundle)
    assert search(bundle, CPU, WORK, Wanted(rounds=1))[0].setting.way.variant == "fp32"
    assert search(bundle, CPU, WORK, Wanted(rounds=1, most_memory=200 << 20))[0].setting.way.variant == "int8"
    with pytest.raises(EngineError, match="take more memory"):
        search(bundle, CPU, WORK, Wanted(rounds=1, most_memory=1 << 20))


def test_an_exhaustive_search_does_not_fill_the_memory(tiny_bundle: Path, fake: type[FakeTrial]) -> None:
    fake.cost = staticmethod(batch_penalty)
    with pytest.raises(InputError, match="keeps 6 models loaded, memory is for 2"):
        wanted = Wanted(engines=["onnxruntime"], exhaustive=True)
        search(Bundle.open(tiny_bundle), replace(CPU, memory=2 << 30), WORK, wanted)


def test_a_variant_that_this_cpu_cannot_run_is_never_started(tiny_bundle: Path, fake: type[FakeTrial]) -> None:
    fake.cost = staticmethod(batch_penalty)
    old = replace(CPU, features=frozenset({"sse4_2"}))
    found = search(Bundle.open(tiny_bundle), old, WORK, Wanted(rounds=1))
    assert {one.setting.way.variant for one in found} == {"fp32"}


@given(st.integers(1, 200))
def test_thread_counts_reach_from_one_to_the_cores(cores: int) -> None:
    counts = thread_counts(cores)
    assert counts[0] == 1 and counts[-1] == cores == max(counts) and counts == sorted(set(counts))


FIGURE = st.floats(0.1, 100)


@given(st.lists(st.tuples(FIGURE, FIGURE, st.integers(1, 1000)), min_size=1, max_size=20))
def test_nothing_on_the_front_is_beaten(figures: list[tuple[float, float, int]]) -> None:
    measured = [
        Measured(Setting(Way("v", "e", n), 1), [latency], [rate], memory)
        for n, (latency, rate, memory) in enumerate(figures)
    ]
    on_front = front(measured)
    assert on_front
    for one in measured:
        beaten = any(
            other.latency <= one.latency
            and other.rate >= one.rate
            and other.memory <= one.memory
            and (other.latency, other.rate, other.memory) != (one.latency, one.rate, one.memory)
            for other in measured
        )
        assert (one.setting in on_front) != beaten


def test_agreement_counts_answers() -> None:
    assert agreement([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], [{"a": 1, "b": "x"}, {"a": 2, "b": "z"}]) == 0.75
    assert agreement([{"v": 1.0}], [{"v": 1.04}]) == 1.0
    assert agreement([{"v": 1.0}], [{"v": 1.2}]) == 0.0


def test_an_engine_gets_only_what_it_computes_rightly_in_paddings_that_bound_its_memory(
    tiny_bundle: Path, fake: type[FakeTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "missing_engine", lambda name: "")
    fake.cost = staticmethod(lambda way, batch, step: 1.0)
    found = search(Bundle.open(tiny_bundle), CPU, WORK, Wanted(engines=["openvino"], rounds=1))
    assert {(one.setting.way.variant, one.setting.way.engine) for one in found} == {("fp32", "openvino")}
    assert {one.setting.length_step for one in found} == {8, 16, 64}


def test_a_real_bundle_is_tuned_and_loaded_so(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path))
    bundle = Bundle.open(tiny_bundle)
    found = search(bundle, probe(), WORK, Wanted(engines=["onnxruntime"], threads=[1], rounds=1))
    write_tuned(bundle, probe(), tuned(found[0], "latency"))
    plan = load(tiny_bundle, warm_up=False).plan
    assert "tuned on this machine" in plan.reason
    assert (plan.variant.name, plan.batch_tokens) == (found[0].setting.way.variant, found[0].setting.batch_tokens)
    assert all(one.memory > 0 for one in found if one.singles) or not Path("/proc/self/status").exists()


def test_a_trial_that_is_killed_says_of_what(tiny_bundle: Path) -> None:
    trial = Trial(tiny_bundle, Way("fp32", "onnxruntime", 1), WORK)
    trial._process.kill()
    with pytest.raises(TrialFailed, match="SIGKILL"):
        trial.singles(1)
    trial.close()
    with pytest.raises(TrialFailed, match="no variant 'none'"):
        Trial(tiny_bundle, Way("none", "onnxruntime", 1), WORK)


def test_sizes_of_batches_share_what_was_measured_of_single_texts(tiny_bundle: Path, fake: type[FakeTrial]) -> None:
    times = iter(range(1, 10_000))
    fake.cost = staticmethod(lambda way, batch, step: float(next(times)))
    found = search(Bundle.open(tiny_bundle), CPU, WORK, Wanted(threads=[1], exhaustive=True, rounds=2))
    by_step: dict[tuple[Way, int], set[float]] = {}
    for one in found:
        by_step.setdefault((one.setting.way, one.setting.length_step), set()).add(one.latency)
    assert all(len(latencies) == 1 for latencies in by_step.values()) and len(by_step) > 1
