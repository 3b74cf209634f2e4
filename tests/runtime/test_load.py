"""Loading a bundle: by argument, by environment, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from julia1 import BundleError, EngineError, InputError, YesNo, load
from julia1.bundle import zip_bundle
from julia1.runtime import Cpu, decider, probe
from julia1.runtime.plan import MOST_THREADS

QUESTION = {"q": YesNo("Is it late?")}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("JULIA1_MODEL", "JULIA1_VARIANT", "JULIA1_ENGINE", "JULIA1_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "cache"))


def test_a_loaded_decider_says_what_runs_and_why(tiny_bundle: Path) -> None:
    found = load(str(tiny_bundle), variant="fp32", threads=2)
    assert (found.plan.variant.name, found.plan.reason, found.plan.threads) == ("fp32", "asked for", 2)
    assert found.manifest.name == "tiny"
    chosen = load(tiny_bundle, warm_up=False)
    assert chosen.plan.threads == min(probe().cores, MOST_THREADS)
    assert probe().architecture in chosen.plan.reason


def test_the_environment_stands_in_for_arguments(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA1_MODEL", str(tiny_bundle))
    monkeypatch.setenv("JULIA1_VARIANT", "fp32")
    monkeypatch.setenv("JULIA1_THREADS", "1")
    found = load(warm_up=False)
    assert (found.manifest.name, found.plan.variant.name, found.plan.threads) == ("tiny", "fp32", 1)
    monkeypatch.setenv("JULIA1_VARIANT", "no such")
    assert load(variant="fp32", threads=2, warm_up=False).plan.threads == 2


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "²"])
def test_a_bad_number_of_threads_in_the_environment_is_refused(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("JULIA1_THREADS", value)
    with pytest.raises(InputError, match="JULIA1_THREADS"):
        load(tiny_bundle, variant="fp32", warm_up=False)


@pytest.mark.parametrize("threads", [0, -2])
def test_threads_are_at_least_one(tiny_bundle: Path, threads: int) -> None:
    with pytest.raises(InputError, match=f"threads is {threads}"):
        load(tiny_bundle, variant="fp32", threads=threads)


def test_int8_is_refused_on_a_cpu_that_would_saturate(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decider, "probe", lambda: Cpu("x86_64", frozenset({"avx2"}), 1))
    with pytest.raises(EngineError, match="the CPU has no vnni"):
        load(tiny_bundle, variant="int8")
    assert load(tiny_bundle, warm_up=False).plan.variant.name == "fp32"


def test_a_zip_answers_as_its_folder_does(tiny_bundle: Path, tmp_path: Path) -> None:
    archive = zip_bundle(tiny_bundle, tmp_path / "tiny.zip")
    folder, zipped = (load(place, variant="fp32", threads=1, warm_up=False) for place in (tiny_bundle, archive))
    assert folder.decide("a state", QUESTION) == zipped.decide("a state", QUESTION)


def test_a_changed_graph_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))
    (copy / "model-fp32.onnx").write_bytes((copy / "model-fp32.onnx").read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match="changed"):
        load(copy, variant="fp32")


@pytest.mark.parametrize("name", ["tokenizer.json", "weights.safetensors", "model-fp32.onnx", "bundle.json"])
def test_a_missing_or_cut_file_is_named(tiny_bundle: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(BundleError, match="truncated"):
        load(copy, variant="fp32")
    (copy / name).unlink()
    with pytest.raises(BundleError, match=name):
        load(copy, variant="fp32")


def test_there_must_be_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="nowhere"):
        load(tmp_path / "nowhere")
