"""PyTorch as an engine: devices, precisions, threads, and what it needs beside itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from engine_samples import FP32, furthest, loaded, opened, requests

from julia1 import Decider, EngineError, MissingExtraError, load
from julia1.bundle import Bundle

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("package", ["transformers", "safetensors"])
def test_what_pytorch_needs_beside_itself_is_named(
    package: str, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf'{package} is not installed: run  pip install "julia1\[pytorch\]"'):
        load(tiny_bundle, engine="pytorch")


def test_pytorch_leaves_the_threads_of_the_process_as_they_are(tiny_bundle: Path) -> None:
    before = torch.get_num_threads()
    seen = []
    engine = opened(Bundle.open(tiny_bundle), "pytorch")
    engine._threads = before + 1  # type: ignore[attr-defined]
    with engine._own_threads():  # type: ignore[attr-defined]
        seen.append(torch.get_num_threads())
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("gpu", "bf16", "device", "precision", "chosen"),
    [
        (False, False, None, None, ("cpu", "f32")),
        (False, False, "cpu", "bf16", ("cpu", "bf16")),
        (True, True, None, None, ("cuda", "bf16")),
        (True, False, None, None, ("cuda", "fp16")),
        (True, True, None, "f32", ("cuda", "f32")),
        (True, True, "cpu", None, ("cpu", "f32")),
    ],
)
def test_a_gpu_is_taken_where_there_is_one_in_half_precision(
    monkeypatch: pytest.MonkeyPatch,
    gpu: bool,
    bf16: bool,
    device: str | None,
    precision: str | None,
    chosen: tuple[str, str],
) -> None:
    from julia1.runtime.engines.pytorch import choose_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)
    assert choose_device(device, precision) == chosen


def test_a_gpu_that_is_not_there_is_refused(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineError, match="finds no GPU here"):
        opened(Bundle.open(tiny_bundle), "pytorch", device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old GPU")
    with pytest.raises(EngineError, match="Old GPU has no bf16: take fp16 or f32"):
        opened(Bundle.open(tiny_bundle), "pytorch", precision="bf16")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("precision", ["f32", "bf16", "fp16"])
def test_answers_on_a_gpu(tiny_bundle: Path, precision: str, texts: list[str]) -> None:
    assert_half_close(tiny_bundle, "pytorch", texts, FP32 if precision == "f32" else 0.5, precision=precision)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_stays_close_in_pytorch(tiny_bundle: Path, precision: str, texts: list[str]) -> None:
    assert_half_close(tiny_bundle, "pytorch", texts, 0.5, device="cpu", precision=precision)


def assert_half_close(bundle: Path, engine: str, texts: list[str], limit: float, **settings: str) -> None:
    """Logits move, by less than the limit and by no more than a tenth of their spread."""
    exact = loaded(bundle, "onnxruntime")
    half = opened(Bundle.open(bundle), engine, **settings)
    decider = Decider(exact.manifest, exact._encoding.tokenizer, half, exact.plan)
    asked = requests(texts[:20])
    first, second = exact.logits(asked), decider.logits(asked)
    assert furthest(first, second) < limit
    if settings["precision"] != "f32":
        assert furthest(first, second) > 1e-5, "that was not computed in half precision"
