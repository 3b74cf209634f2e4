"""What a config is warned about, and that each warning is true of the exporter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from export_samples import CONFIGS  # noqa: E402

from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.errors import VerificationError  # noqa: E402
from julia1.export import SharedWeights, fixed_graph  # noqa: E402
from julia1.export.operator_check import Finding, check_operators, require_exportable  # noqa: E402
from julia1.model import load_encoder, new_encoder, round_weights, save_weights  # noqa: E402
from julia1.model.backbone import backbone_config, complete_config  # noqa: E402
from julia1.model.fixed_model import FixedModel  # noqa: E402
from julia1.train.start import find_start  # noqa: E402

BERT, MODERNBERT = CONFIGS["bert"], CONFIGS["modernbert"]
SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}


def findings(config: dict[str, Any], max_tokens: int = 8) -> dict[str, Finding]:
    return {finding.field: finding for finding in check_operators(complete_config(config), max_tokens)}


@pytest.mark.parametrize("config", [BERT, MODERNBERT], ids=["bert", "modernbert"])
def test_a_plain_encoder_is_not_warned_about(config: dict[str, Any]) -> None:
    assert findings(config) == {}
    require_exportable(complete_config(config))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**BERT, "is_decoder": True}, "is_decoder"),
        ({**BERT, "is_decoder": True, "add_cross_attention": True}, "add_cross_attention"),
        ({**BERT, "pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({**BERT, "quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
        (
            {**MODERNBERT, "rope_parameters": {"full_attention": SCALED, "sliding_attention": SCALED}},
            "rope_parameters.full_attention.rope_type",
        ),
    ],
)
def test_what_stops_an_export_is_an_error_before_training(config: dict[str, Any], field: str) -> None:
    found = findings(config)
    assert found[field].stops and field in str(found[field])
    with pytest.raises(VerificationError, match="this encoder cannot be exported: "):
        require_exportable(complete_config(config))


@pytest.mark.parametrize("change", [{"hidden_act": "relu"}, {"model_type": "t5"}])
def test_an_unknown_encoder_is_an_error_too(change: dict[str, Any]) -> None:
    with pytest.raises(VerificationError, match="no graph is known"):
        require_exportable({**BERT, **change})


def test_what_only_costs_is_no_error() -> None:
    config = {**BERT, "position_embedding_type": "relative_key", "auto_map": {"AutoModel": "own.Model"}}
    config = {**config, "vocab_size": 250_002, "hidden_size": 384}
    found = findings(config)
    assert list(found) == ["position_embedding_type", "auto_map", "vocab_size"]
    assert "97 MB of the bundle" in found["vocab_size"].effect
    require_exportable(complete_config(config))


@given(st.integers(1, 200))
def test_sliding_windows_are_told_of_beyond_their_reach_only(max_tokens: int) -> None:
    assert ("local_attention" in findings(MODERNBERT, max_tokens)) == (max_tokens > MODERNBERT["local_attention"])
    assert findings(BERT, max_tokens) == {}


def departs(config: dict[str, Any], tmp_path: Path) -> float:
    """How far the graph of an encoder departs from PyTorch."""
    torch.manual_seed(1)
    encoder: Any = new_encoder(config)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    model = FixedModel(encoder, [HeadSpec("x", "yesno", ("no", "yes"))]).eval()
    round_weights(model)
    save_weights(model, tmp_path / "weights.safetensors")
    onnx.save_model(fixed_graph(SharedWeights(tmp_path / "weights.safetensors"), "fp32"), tmp_path / "x.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    feeds = {"input_ids": np.arange(5, 15)[None], "attention_mask": np.ones((1, 10), np.int64)}
    with torch.inference_mode():
        expected = model(**{name: torch.from_numpy(value) for name, value in feeds.items()})["x"].numpy()
    return float(np.abs(session.run(["head.0"], feeds)[0] - expected).max())


def test_a_decoder_is_another_model_in_the_graph(tmp_path: Path) -> None:
    assert departs(BERT, tmp_path) < 1e-4
    assert departs({**BERT, "is_decoder": True}, tmp_path) > 1e-3


def test_the_embedding_table_is_as_large_as_told(tmp_path: Path) -> None:
    model = FixedModel(new_encoder({**BERT, "vocab_size": 9000}), [HeadSpec("x", "value")])
    round_weights(model)
    save_weights(model, tmp_path / "weights.safetensors")
    table = SharedWeights(tmp_path / "weights.safetensors").table
    name = "encoder.embeddings.word_embeddings.weight"
    assert table[name].length + table[f"{name}.scale"].length == 9000 * (32 + 4)


def test_what_a_folder_says_reaches_the_check_and_its_code_is_not_run(tmp_path: Path, tokenizer_file: Path) -> None:
    torch.manual_seed(1)
    encoder: Any = new_encoder(BERT).eval()
    encoder.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"position_embedding_type": "relative_key", "auto_map": {"AutoModel": "own.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text("raise SystemExit('run')")
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    assert [f.field for f in check_operators(find_start(tmp_path).config, 8)] == ["position_embedding_type", "auto_map"]
    assert backbone_config(tmp_path)["auto_map"] == {"AutoModel": "own.Model"}
    ids = torch.arange(5, 15)[None]
    with torch.inference_mode():
        found = load_encoder(tmp_path).eval()(input_ids=ids).last_hidden_state
        assert torch.allclose(found, encoder(input_ids=ids).last_hidden_state, atol=1e-5), "read as absolute positions"
