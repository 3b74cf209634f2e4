"""The card of a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from julia1.bundle import Bundle, Manifest, render_card


def card(folder: Path, **provenance: Any) -> str:
    return render_card(replace(Bundle.open(folder).manifest, provenance=provenance))


def header(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return loaded


def test_the_header_is_yaml_that_a_hub_reads(folder: Path) -> None:
    text = card(folder, license="Apache-2.0", languages=["en", "no"], datasets=["clinc: oos", {"name": "banking77"}])
    assert header(text) == {
        "license": "apache-2.0",
        "language": ["en", "no"],
        "library_name": "julia1",
        "pipeline_tag": "zero-shot-classification",
        "datasets": ["clinc: oos", "banking77"],
    }


def test_sizes_figures_and_limits_are_shown(folder: Path) -> None:
    text = card(
        folder,
        description="Small and fast.",
        figures={"Accuracy": [{"set": "massive", "accuracy": 0.81234}, {"set": "a|b"}], "Speed": {"p50 ms": 3.2}},
        datasets=[{"name": "massive", "license": "CC-BY-4.0", "use": "training"}],
        limits=["No poetry."],
    )
    for line in [
        "Small and fast.",
        "| int8 | onnxruntime | int8 | 4.1 kB | x86_64 sse4_2 or aarch64 |",
        "| fp32 | onnxruntime | fp32 | 4.1 kB | any CPU |",
        "Variants share files: together they take 4.1 kB.",
        "| p50_ms |  | 3.25 |",
        "| massive | 0.8123 |",
        "| a\\|b |  |",
        "| p50 ms | 3.2 |",
        "| massive | CC-BY-4.0 | training |",
        "| choice | 1.3 | 0.1 |",
        "- No poetry.",
        "up to 384 tokens",
    ]:
        assert line in text


def test_a_manifest_with_nothing_to_tell_still_has_a_card(folder: Path) -> None:
    manifest = Bundle.open(folder).manifest
    bare: Manifest = replace(manifest, variants=(), calibration={}, provenance={})
    text = render_card(bare)
    assert header(text)["license"] == "other"
    assert "Probabilities are not calibrated." in text
    assert "## Variants" not in text and "## Figures" not in text


def test_odd_provenance_does_not_break_the_card(folder: Path) -> None:
    text = card(
        folder, license={"weights": "MIT"}, languages="en", figures=3, datasets={"name": "x"}, limits="one\ntwo"
    )
    assert header(text)["language"] == ["en"]
    assert "- one two" in text


def test_a_run_is_told_with_its_data_settings_and_machine(folder: Path) -> None:
    text = card(
        folder,
        base_model="some/encoder",
        parent="tickets@1",
        seed=20261130,
        rows={"train": 12000, "left out": 3},
        data_sha256={"train": "a" * 64, "all": "b" * 64},
        hyper_parameters={"learning_rate": 1.2345678e-5, "bf16": True, "pairing": "auto"},
        run={"finished": "2026-11-30", "seconds": 61.5, "environment": {"cpu": "Abacus", "packages": {"torch": "2.9"}}},
    )
    for line in [
        "## Training",
        "| base model | some/encoder |",
        "| parent | tickets@1 |",
        "| seed | 20261130 |",
        f"| train | 12,000 | {'a' * 64} |",
        "| left out | 3 |  |",
        f"| all |  | {'b' * 64} |",
        "| learning_rate | 1.2345678e-05 |",
        "| bf16 | true |",
        "| pairing | auto |",
        "| seconds of training | 61.5 |",
        "| cpu | Abacus |",
        "| packages | torch 2.9 |",
    ]:
        assert line in text, line
    assert "## Training" not in card(folder, hyper_parameters=3, run=[], rows="x", data_sha256=None)
