"""The acceptance table: every criterion passes, fails or says why it was not measured."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_samples import QUESTIONS, open_rows

pytest.importorskip("torch")
pytest.importorskip("onnx")

from julia1 import Decider
from julia1.bench import acceptance
from julia1.bench.acceptance import Acceptance, accept
from julia1.bench.labelled import Labelled, Outputs, label
from julia1.bundle import Bundle

NAMES = ("export error", "quantization loss", "F1 beside PyTorch", "single decision", "soak")


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


@pytest.fixture
def labelled(bundle: Bundle, texts: list[str], tmp_path: Path) -> Labelled:
    return label(bundle, open_rows(tmp_path, texts[:12]), QUESTIONS)


def checked(bundle: Bundle, decider: Decider, labelled: Labelled, **settings: Any) -> Acceptance:
    return accept(bundle, decider, labelled, QUESTIONS, **{"soak_minutes": 0.0, **settings})


def by_name(found: Acceptance) -> dict[str, Any]:
    return {verdict.name: verdict for verdict in found.verdicts}


def test_all_of_it_is_measured(bundle: Bundle, decider_int8: Decider, labelled: Labelled) -> None:
    said: list[str] = []
    found = checked(bundle, decider_int8, labelled, soak_minutes=0.01, progress=said.append)
    rows = by_name(found)
    assert tuple(rows) == NAMES
    assert rows["export error"].status == "pass" and 0 < rows["export error"].numbers["largest"] < 1e-4
    assert rows["export error"].numbers["compared"] == 12 * 8
    assert rows["single decision"].numbers["median_seconds"] <= rows["single decision"].numbers["p95_seconds"]
    assert set(found.figures) == {"int8", "fp32", "torch"}
    before, after = found.figures["fp32"]["team"]["macro_f1"], found.figures["int8"]["team"]["macro_f1"]
    assert rows["quantization loss"].numbers["heads"]["team"] == {
        "figure": "macro_f1",
        "before": before,
        "after": after,
    }
    assert "worth about 8.3 points" in rows["quantization loss"].note
    assert rows["soak"].status == "not measured" and "1,440 min" in rows["soak"].note
    assert found.soak is not None and found.soak.recording.requests > 0
    assert any("PyTorch" in line for line in said)
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_variant_in_fp32_has_nothing_to_lose(bundle: Bundle, decider_fp32: Decider, labelled: Labelled) -> None:
    rows = by_name(checked(bundle, decider_fp32, labelled))
    assert rows["quantization loss"].status == "not measured" and "not quantized" in rows["quantization loss"].note
    assert rows["F1 beside PyTorch"].status == "pass"
    assert rows["F1 beside PyTorch"].numbers["points"] == 0
    assert rows["soak"].note.startswith("left out; the mission's own figure is 1,440 min")


class Spoiled:
    """Labelled rows of which one side gives something else."""

    def __init__(self, labelled: Labelled, torch: bool, change: float) -> None:
        self._own, self._torch, self._change = labelled, torch, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def outputs(self, decider: Decider) -> Outputs:
        return self._spoiled(self._own.outputs(decider)) if not self._torch else self._own.outputs(decider)

    def reference(self, bundle: Bundle) -> Outputs:
        return self._spoiled(self._own.reference(bundle)) if self._torch else self._own.reference(bundle)

    def _spoiled(self, outputs: Outputs) -> Outputs:
        return {name: [rows[0] + np.float32(self._change), *rows[1:]] for name, rows in outputs.items()}


def test_a_graph_that_departs_fails(bundle: Bundle, decider_fp32: Decider, labelled: Labelled) -> None:
    found = checked(bundle, decider_fp32, Spoiled(labelled, torch=True, change=2e-4))  # type: ignore[arg-type]
    error = by_name(found)["export error"]
    assert error.status == "fail" and error.numbers["largest"] == pytest.approx(2e-4, rel=0.3)


def test_points_that_are_lost_fail(
    bundle: Bundle, decider_int8: Decider, labelled: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([0.90, 0.915, 0.906])

    def figures_of(outputs: Outputs) -> dict[str, dict[str, float]]:
        return {"team": {"macro_f1": next(figures)}, "late": {"f1": 0.5}}

    monkeypatch.setattr(labelled, "figures", figures_of)
    rows = by_name(checked(bundle, decider_int8, labelled))
    loss, beside = rows["quantization loss"], rows["F1 beside PyTorch"]
    assert (loss.status, loss.figure) == ("fail", "+1.50 points") and loss.note.startswith("team: macro_f1 0.9150")
    assert (beside.status, beside.figure) == ("fail", "+0.60 points")


def test_better_is_no_loss(
    bundle: Bundle, decider_int8: Decider, labelled: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([0.95, 0.90, 0.90])
    monkeypatch.setattr(labelled, "figures", lambda outputs: {"team": {"macro_f1": next(figures)}})
    rows = by_name(checked(bundle, decider_int8, labelled))
    assert rows["quantization loss"].status == rows["F1 beside PyTorch"].status == "pass"
    assert rows["quantization loss"].numbers["points"] == pytest.approx(-5)


def test_slow_decisions_fail(
    bundle: Bundle, decider_fp32: Decider, labelled: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "DECISION_SECONDS", 1e-9)
    assert by_name(checked(bundle, decider_fp32, labelled))["single decision"].status == "fail"


def test_without_torch_the_recorded_error_is_told(
    tiny_bundle: Path, decider_fp32: Decider, labelled: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(bundle: Bundle) -> Outputs:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(labelled, "reference", missing)
    plain = Bundle.open(tiny_bundle)
    rows = by_name(checked(plain, decider_fp32, labelled))
    assert rows["export error"].status == rows["F1 beside PyTorch"].status == "not measured"
    assert 'torch is not installed: pip install "julia1[train]"' in rows["export error"].note
    for largest, status in ((2e-5, "pass"), (2e-3, "fail")):
        measured = {"largest logit difference to PyTorch": largest}
        variants = tuple(
            replace(one, measured=measured if one.precision == "fp32" else {}) for one in plain.manifest.variants
        )
        recorded = replace(plain, manifest=replace(plain.manifest, variants=variants))
        error = by_name(checked(recorded, decider_fp32, labelled))["export error"]
        assert (error.status, error.numbers["source"]) == (status, "recorded")
        assert "not measured here: torch is not installed" in error.note


def test_a_bundle_without_its_checkpoint_says_so(bundle: Bundle, decider_fp32: Decider, labelled: Labelled) -> None:
    bare = replace(bundle, manifest=replace(bundle.manifest, checkpoint=None))
    rows = by_name(checked(bare, decider_fp32, labelled))
    assert rows["F1 beside PyTorch"].status == "not measured"
    assert "has no checkpoint" in rows["F1 beside PyTorch"].note


def test_a_bundle_without_fp32_says_so(bundle: Bundle, decider_int8: Decider, labelled: Labelled) -> None:
    variants = tuple(one for one in bundle.manifest.variants if one.precision == "int8")
    only = replace(bundle, manifest=replace(bundle.manifest, variants=variants))
    rows = by_name(checked(only, decider_int8, labelled))
    assert rows["quantization loss"].status == rows["export error"].status == "not measured"
    assert "no fp32 variant" in rows["quantization loss"].note
    assert rows["F1 beside PyTorch"].status != "not measured"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_soak_that_fails_fails_the_table(
    bundle: Bundle, decider_fp32: Decider, labelled: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    from julia1.errors import EngineError

    def broken(self: object, decider: Decider) -> int:
        raise EngineError("a score that is no number")

    monkeypatch.setattr("julia1.bench.workload.Workload.ask", broken)
    found = by_name(checked(bundle, decider_fp32, labelled, soak_minutes=0.005))["soak"]
    assert found.status == "fail" and "a score that is no number" in found.note
