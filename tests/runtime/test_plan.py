"""How a bundle is run here: what is asked for, what was tuned, what the CPU suggests."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from julia1 import Choice, EngineError, InputError, load, settings
from julia1.bundle import Bundle
from julia1.runtime import Cpu, Decider
from julia1.runtime.plan import MOST_THREADS, make_plan, thread_count
from julia1.runtime.tuned import Tuned, read_tuned, tuned_file, write_tuned

CPU = Cpu("x86_64", frozenset({"avx2", "avx512_vnni", "vnni"}), 4, "Some CPU")
FOUND = Tuned("fp32", "onnxruntime", 3, 1024, 16, "throughput", "2026-11-30", {"latency_ms": 7.5})


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    for name in ("VARIANT", "ENGINE", "THREADS"):
        monkeypatch.delenv(f"JULIA1_{name}", raising=False)
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "cache"))
    return Bundle.open(tiny_bundle)


def test_without_anything_the_cpu_decides(bundle: Bundle) -> None:
    plan = make_plan(bundle, CPU)
    assert (plan.variant.name, plan.engine, plan.threads, plan.length_step) == ("int8", "onnxruntime", 4, 1)
    assert make_plan(bundle, replace(CPU, cores=96)).threads == MOST_THREADS


def test_what_was_tuned_on_this_machine_is_taken(bundle: Bundle) -> None:
    place = write_tuned(bundle, CPU, FOUND)
    assert place == tuned_file(bundle, CPU)
    assert not place.is_relative_to(bundle.folder)
    plan = make_plan(bundle, CPU)
    assert (plan.variant.name, plan.threads, plan.batch_tokens, plan.length_step) == ("fp32", 3, 1024, 16)
    assert "tuned on this machine for throughput on 2026-11-30" in plan.reason
    assert make_plan(bundle, CPU, tuned=False).variant.name == "int8"
    write_tuned(bundle, CPU, replace(FOUND, threads=2))
    assert make_plan(bundle, CPU).threads == 2


@pytest.mark.parametrize(
    "other",
    [
        replace(CPU, name="Another CPU"),
        replace(CPU, cores=2),
        replace(CPU, features=CPU.features | {"amx_int8"}),
        replace(CPU, architecture="aarch64"),
    ],
)
def test_a_setting_of_another_machine_is_not_taken(bundle: Bundle, other: Cpu) -> None:
    write_tuned(bundle, CPU, FOUND)
    assert read_tuned(bundle, other) == (None, "")


def test_a_setting_of_other_engine_versions_is_not_taken(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tuned(bundle, CPU, FOUND)
    monkeypatch.setattr("julia1.runtime.tuned.engine_version", lambda engine: "99")
    assert read_tuned(bundle, CPU) == (None, "")


def test_what_is_asked_for_comes_before_what_was_tuned(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tuned(bundle, CPU, FOUND)
    assert make_plan(bundle, CPU, threads=1).threads == 1
    assert make_plan(bundle, CPU, threads=1).batch_tokens == 1024
    asked = make_plan(bundle, CPU, variant="int8")
    assert (asked.variant.name, asked.threads, asked.reason) == ("int8", 4, "asked for")
    assert make_plan(bundle, CPU, variant="fp32").threads == 3
    monkeypatch.setenv("JULIA1_VARIANT", "int8")
    monkeypatch.setenv("JULIA1_THREADS", "share")
    assert (make_plan(bundle, CPU).variant.name, make_plan(bundle, CPU).threads) == ("int8", 3)


def test_a_tuned_setting_that_no_longer_runs_is_not_taken(bundle: Bundle) -> None:
    plain = replace(CPU, features=frozenset({"avx2"}))
    write_tuned(bundle, plain, replace(FOUND, variant="int8"))
    plan = make_plan(bundle, plain)
    assert plan.variant.name == "fp32"
    assert "not as tuned" in plan.reason and "no vnni" in plan.reason
    write_tuned(bundle, CPU, replace(FOUND, variant="gone"))
    assert "no variant 'gone'" in make_plan(bundle, CPU).reason
    write_tuned(bundle, CPU, replace(FOUND, engine="steam"))
    assert "no engine 'steam'" in make_plan(bundle, CPU).reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"variant": "fp32"}',
        json.dumps({**asdict(FOUND), "threads": 0}),
        json.dumps({**asdict(FOUND), "threads": True}),
        json.dumps({**asdict(FOUND), "batch_tokens": "many"}),
        json.dumps({**asdict(FOUND), "engine": 7}),
        json.dumps({**asdict(FOUND), "more": 1}),
    ],
)
def test_a_broken_setting_is_passed_over_and_told(bundle: Bundle, text: str) -> None:
    write_tuned(bundle, CPU, FOUND).write_text(text)
    plan = make_plan(bundle, CPU)
    assert plan.variant.name == "int8"
    assert "tune again" in plan.reason


def test_a_cache_that_cannot_be_written_is_one_error(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="set JULIA1_CACHE to a writable folder"):
        write_tuned(bundle, CPU, FOUND)
    assert make_plan(bundle, CPU).variant.name == "int8"


def test_an_unknown_engine_is_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="no engine 'steam'; julia1 knows: onnxruntime"):
        make_plan(bundle, CPU, engine="steam")
    monkeypatch.setenv("JULIA1_ENGINE", "steam")
    with pytest.raises(EngineError, match="no engine 'steam'"):
        load(bundle.folder)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 3), (8, 6), (10, 7)])
def test_a_shared_machine_is_left_a_quarter(cores: int, threads: int) -> None:
    assert thread_count("share", replace(CPU, cores=cores)) == threads


@pytest.mark.parametrize("wanted", [0, -1, "half", "2", 1.5, True])
def test_threads_that_make_no_sense_are_refused(wanted: int | str) -> None:
    with pytest.raises(InputError, match="threads is"):
        thread_count(wanted, CPU)


def test_threads_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA1_THREADS", "share")
    assert settings.threads() == "share"
    monkeypatch.setenv("JULIA1_THREADS", "")
    assert settings.threads() is None


def test_padding_to_a_step_changes_no_answer(bundle: Bundle) -> None:
    texts, questions = ["a", "where is my order", "late " * 30], {"q": Choice("Which?", ["order", "refund", "other"])}
    plain = load(bundle.folder, variant="fp32", threads=1)
    engine, tokenizer = plain._scorer._engine, plain._encoding.tokenizer
    stepped = Decider(plain.manifest, tokenizer, engine, replace(plain.plan, length_step=32))
    for one, other in zip(plain.decide_many(texts, questions), stepped.decide_many(texts, questions), strict=True):
        assert list(one["q"].probabilities.values()) == pytest.approx(list(other["q"].probabilities.values()), abs=1e-5)
