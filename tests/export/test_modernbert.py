"""The ModernBERT graph is the PyTorch model, in every shape, beyond its sliding window too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from julia1.bundle.heads import FeatureSpec, HeadSpec  # noqa: E402
from julia1.errors import VerificationError  # noqa: E402
from julia1.export import SharedWeights, fixed_graph, input_ranges, option_graph, require_known  # noqa: E402
from julia1.export.encoder_graph import FIXED_ENCODERS  # noqa: E402
from julia1.model import new_encoder, round_weights, save_weights  # noqa: E402
from julia1.model.fixed_model import FixedModel  # noqa: E402
from julia1.model.weights import load_fixed  # noqa: E402
from julia1.train.optimisation import parameter_groups  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402

CONFIG: dict[str, Any] = {
    "model_type": "modernbert",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "local_attention": 8,
    "global_attn_every_n_layers": 3,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS = [
    HeadSpec("topic", "choice", ("a", "b", "c")),
    HeadSpec("where", "tags", ("x",)),
    HeadSpec("m", "match", size=32),
]


def batch(lengths: list[int], seed: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    ids, mask = np.zeros((2, len(lengths), max(lengths)), np.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = random.integers(3, 64, length)
        mask[row, :length] = 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(5)
    encoder: Any = new_encoder(CONFIG)
    for name, parameter in encoder.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
        else:
            torch.nn.init.normal_(parameter, 0.0, 0.15)
    model = FixedModel(encoder, HEADS, FeatureSpec(), vectors={"topic": torch.randn(3, 32)}).eval()
    ranges = input_ranges(model, [batch([20], seed) for seed in range(8)])
    round_weights(model, ranges)
    path = tmp_path_factory.mktemp("modernbert") / "weights.safetensors"
    save_weights(model, path, ranges)
    return path


def run(path: Path, precision: str, feeds: dict[str, Any]) -> list[Any]:
    graph = path.with_name(f"{precision}.onnx")
    onnx.save_model(fixed_graph(SharedWeights(path), precision), graph)
    onnx.checker.check_model(str(graph))
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return session.run([f"head.{i}" for i in range(len(HEADS))], feeds)


@pytest.mark.parametrize("lengths", [[1], [3, 9], [30, 5, 17], [64]])
def test_the_graph_is_the_model(stored: Path, lengths: list[int]) -> None:
    feeds = batch(lengths)
    model = load_fixed(stored)
    with torch.inference_mode():
        expected = model(**{name: torch.from_numpy(value) for name, value in feeds.items()})
    inside = feeds["attention_mask"].astype(bool)
    for head, found in zip(HEADS, run(stored, "fp32", feeds), strict=True):
        wanted = expected[head.name].numpy()
        if head.kind == "tags":
            found, wanted = found[inside], wanted[inside]
        assert np.abs(found - wanted).max() < 1e-4
    for head, found in zip(HEADS, run(stored, "int8", feeds), strict=True):
        wanted = expected[head.name].numpy()
        if head.kind == "tags":
            found, wanted = found[inside], wanted[inside]
        assert np.abs(found - wanted).mean() < 0.1 * max(0.1, float(wanted.std()))


def test_padding_and_batch_change_nothing(stored: Path) -> None:
    long, short = batch([40]), batch([6], seed=2)
    together = {name: np.zeros((2, 40), np.int64) for name in long}
    for name, value in together.items():
        value[0] = long[name][0]
        value[1, :6] = short[name][0]
    for precision in ("fp32", "int8"):
        alone, padded = run(stored, precision, short), run(stored, precision, together)
        assert np.abs(alone[0][0] - padded[0][1]).max() < 1e-5


def test_all_weights_are_trained_once() -> None:
    model = FixedModel(new_encoder(CONFIG), HEADS)
    grouped = [id(p) for group in parameter_groups(model, FineTuning()) for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(p) for p in model.parameters()}


def test_what_no_graph_is_known_for_is_named(stored: Path) -> None:
    with pytest.raises(VerificationError, match="no graph is known for a modernbert encoder"):
        require_known(CONFIG)
    require_known(CONFIG, FIXED_ENCODERS)
    with pytest.raises(VerificationError, match="modernbert encoder with relu"):
        require_known({**CONFIG, "hidden_activation": "relu"}, FIXED_ENCODERS)
    weights = SharedWeights(stored)
    with pytest.raises(VerificationError, match="no graph is known for a modernbert encoder"):
        option_graph(weights, "fp32")
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    weights.config = {**weights.config, "rope_parameters": {"full_attention": scaled, "sliding_attention": scaled}}
    with pytest.raises(VerificationError, match="rotary positions of the type 'linear'"):
        fixed_graph(weights, "fp32")
