"""What is said of a machine: what runs, what does not, and why."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from julia1.bundle import Bundle
from julia1.runtime import Cpu, machine, probe
from julia1.runtime.machine import examine, notes, try_variant

OLD = Cpu("x86_64", frozenset({"sse4_2", "avx2"}), 2, "Old CPU", 4, 2, None, 8 << 30)


@pytest.fixture
def bundle(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bundle:
    for name in ("VARIANT", "ENGINE", "THREADS"):
        monkeypatch.delenv(f"JULIA1_{name}", raising=False)
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path))
    return Bundle.open(tiny_bundle)


def test_what_cannot_run_is_not_tried(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(machine, "try_variant", lambda _, variant, engine: tried.append(variant) or "")
    report = examine(bundle, OLD)
    assert tried == ["fp32"]
    assert {v.name: (v.runs, v.chosen) for v in report.variants} == {"int8": (False, False), "fp32": (True, True)}
    assert report.instructions["AVX2"] and not report.instructions["AVX-512 VNNI"]
    assert any("no 8-bit dot product" in note for note in report.notes)
    assert report.runs and report.to_dict()["runs"]


def test_a_variant_is_really_loaded(bundle: Bundle) -> None:
    report = examine(bundle, probe())
    assert [v.why for v in report.variants if v.name == "fp32"] == ["loaded and tried"]
    assert report.engines["onnxruntime"]["version"]


def test_a_variant_that_is_broken_says_so(bundle: Bundle, tmp_path: Path) -> None:
    import shutil

    copy = Path(shutil.copytree(bundle.folder, tmp_path / "copy"))
    (copy / "model-fp32.onnx").write_bytes(b"x" * (copy / "model-fp32.onnx").stat().st_size)
    assert "changed" in try_variant(copy, "fp32", "onnxruntime")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGILL, "illegal instruction"),
        (128 + signal.SIGILL, "illegal instruction"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (1, "the last line"),
    ],
)
def test_how_a_trial_died_is_told(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    done = SimpleNamespace(returncode=code, stderr="Traceback\nthe last line\n\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert words in try_variant(bundle.folder, "fp32", "onnxruntime")
    report = examine(bundle, OLD)
    assert not report.runs
    assert any(words in note for note in report.notes)


def test_a_trial_that_hangs_is_ended(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRIAL_SECONDS", 0.05)
    assert "did not answer within" in try_variant(bundle.folder, "fp32", "onnxruntime")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": frozenset({"pni"})}, "no SSE4.2"),
        ({"features": frozenset()}, "does not tell"),
        ({"architecture": "riscv64"}, "no packages of the engines for riscv64"),
        ({"quota": 0.5}, "grants 0.5 of a CPU"),
        ({"quota": 1.0, "physical": 2}, "grants 1 CPUs of 2"),
        ({"memory": 256 << 20}, "256 MB of memory is little"),
        ({}, "4 logical CPUs are 2 cores"),
    ],
)
def test_notes_name_the_value(change: dict[str, Any], words: str) -> None:
    assert any(words in note for note in notes(replace(OLD, **change), [], "glibc", "2.36"))


@pytest.mark.parametrize(("libc", "version", "words"), [("", "", "musl"), ("glibc", "2.17", "glibc 2.17 is older")])
def test_an_old_or_other_c_library_is_named(
    monkeypatch: pytest.MonkeyPatch, libc: str, version: str, words: str
) -> None:
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    assert any(words in note for note in notes(OLD, [], libc, version))
    assert not any(words in note for note in notes(OLD, [], "glibc", "2.28"))


def test_a_good_machine_has_nothing_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys, "maxsize", 1 << 62)
    for name in ("VARIANT", "ENGINE", "THREADS"):
        monkeypatch.delenv(f"JULIA1_{name}", raising=False)
    good = Cpu("x86_64", frozenset({"sse4_2", "vnni"}), 2, "Good", 2, 2, None, 8 << 30)
    assert notes(good, [], "glibc", "2.36") == []
