"""From a recipe to a bundle, on made-up data: the whole way that the shipped model goes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from julia1 import Choice, Score, YesNo, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.model import load_weights, new_encoder  # noqa: E402
from julia1.train import Recipe, calibrate, train_and_release  # noqa: E402
from julia1.train.recipe import Source, Vocabulary  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture
def backbone(tmp_path: Path, tokenizer_file: Path) -> Path:
    """A Hugging Face folder of a random encoder with three layers."""
    torch.manual_seed(2)
    config = {
        "model_type": "bert",
        "vocab_size": 448,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 512,
    }
    encoder: object = new_encoder(config)
    encoder.save_pretrained(tmp_path / "backbone")  # type: ignore[attr-defined]
    shutil.copyfile(tokenizer_file, tmp_path / "backbone/tokenizer.json")
    return tmp_path / "backbone"


def test_a_recipe_becomes_a_bundle_that_decides_without_pytorch(
    data: Path,
    backbone: Path,
    tmp_path: Path,
    make_recipe: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibrate, "DRAWN_EXAMPLES", 60)
    recipe = make_recipe(
        layers=2,
        held_out=["held/test"],
        held_out_languages=["it"],
        development=["intents/val"],
        calibration=[Source("intents", "choice", 1, splits=["val"]), Source("stars", "score", 1)],
        vocabulary=Vocabulary(size=80),
    )
    output = tmp_path / "run"
    made = train_and_release(recipe, data, backbone, output, "1")

    assert made.parity["fp32"].largest < 1e-4
    assert made.bundle.folder == (output / "bundle").resolve()
    manifest = made.bundle.manifest
    assert [variant.name for variant in manifest.variants] == ["int8", "fp32"]
    assert {check.status for check in made.bundle.verify()} == {"ok"}
    assert set(manifest.calibration) == {"choice", "yesno", "score"}
    assert manifest.provenance["held_out"] == ["held/test"]
    card = (made.bundle.folder / "card.md").read_text(encoding="utf-8")
    assert "CC0 1.0" in card
    assert "intents" in card

    stored = load_weights(made.bundle.folder / "weights.safetensors")
    assert stored.encoder.config.vocab_size == 80  # type: ignore[union-attr]
    assert stored.encoder.config.num_hidden_layers == 2  # type: ignore[union-attr]

    decider = load(made.bundle.folder, variant="fp32", threads=1)
    answers = decider.decide(
        "set an alarm for 5",
        {"c": Choice(None, ["alarm", "music"]), "y": YesNo("Alarm?"), "s": Score("How?", ["bad", "good"])},
    )
    assert set(answers) == {"c", "y", "s"}

    # A second call takes the finished run up, trains nothing, and gives the same numbers.
    records = (output / "log.jsonl").read_text(encoding="utf-8")
    assert "development" in json.loads(records.split("\n")[-2])
    weights = (made.bundle.folder / "weights.safetensors").read_bytes()
    again = train_and_release(replace(recipe, description="again"), data, backbone, output, "2")
    assert (output / "log.jsonl").read_text(encoding="utf-8") == records
    assert (again.bundle.folder / "weights.safetensors").read_bytes() == weights
    assert Bundle.open(output / "bundle").manifest.version == "2"
