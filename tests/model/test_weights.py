"""Eight-bit storage: rounding, saving and reading back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from safetensors.numpy import load_file, save_file  # noqa: E402

from julia1 import BundleError  # noqa: E402
from julia1.model import OptionModel, load_weights, new_encoder, round_weights, save_weights  # noqa: E402
from julia1.model.weights import LEVELS, SCALE_SUFFIX, matrix_modules, quantize_rows  # noqa: E402

if TYPE_CHECKING:
    from conftest import Exported

CONFIG = {
    "model_type": "bert",
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="module")
def small() -> OptionModel:
    """One layer, hidden width 16, rounded."""
    torch.manual_seed(5)
    model = OptionModel(new_encoder(CONFIG))
    round_weights(model)
    return model


@pytest.fixture
def saved(small: OptionModel, tmp_path: Path) -> Path:
    save_weights(small, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def edited(path: Path, change: Any) -> Path:
    """The file with its tensors changed by a function of the dictionary."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=metadata)
    return path


@given(st.integers(0, 10_000), st.floats(1e-6, 1e4), st.integers(1, 9), st.integers(1, 40))
def test_rounding_is_idempotent_and_close(seed: int, scale: float, rows: int, columns: int) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale
    codes, steps = quantize_rows(weight)
    assert codes.dtype == torch.int8
    assert codes.abs().max() == LEVELS
    rounded = codes.float() * steps[:, None]
    assert (rounded - weight).abs().max() <= steps.max() / 2 * 1.0001
    again, same_steps = quantize_rows(rounded)
    assert torch.equal(again, codes)
    assert torch.equal(same_steps, steps)


def test_rows_of_zeros_stay_zeros() -> None:
    codes, steps = quantize_rows(torch.zeros(3, 4))
    assert not codes.any()
    assert torch.isfinite(steps).all()


def test_every_matrix_is_rounded_and_nothing_else(small: OptionModel) -> None:
    torch.manual_seed(6)
    model = OptionModel(new_encoder(CONFIG))
    before = {name: value.clone() for name, value in model.named_parameters()}
    round_weights(model)
    matrices = matrix_modules(model)
    assert {name for name, value in before.items() if value.ndim > 1} == set(matrices)
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name]) is (name not in matrices)
    once = {name: value.clone() for name, value in model.named_parameters()}
    round_weights(model)
    assert all(torch.equal(value, once[name]) for name, value in model.named_parameters())


def test_saving_a_rounded_model_loses_nothing(small: OptionModel, saved: Path) -> None:
    read = load_weights(saved)
    assert not read.training
    for (name, value), (other, found) in zip(small.named_parameters(), read.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(value, found), name


def test_the_same_weights_make_the_same_file(saved: Path) -> None:
    read = load_weights(saved)
    for i in range(6):
        save_weights(read, saved.with_name(f"again-{i}.safetensors"))
        assert saved.read_bytes() == saved.with_name(f"again-{i}.safetensors").read_bytes()


def test_matrices_take_one_byte_a_weight(small: OptionModel, saved: Path) -> None:
    tensors = load_file(saved)
    for name, module in matrix_modules(small).items():
        shape = tuple(module.weight.shape)
        assert tensors[name].dtype == np.int8
        if isinstance(module, torch.nn.Linear):
            assert tensors[name].shape == shape[::-1]
            assert tensors[name + SCALE_SUFFIX].shape == shape[:1]
        else:
            assert tensors[name].shape == shape
            assert tensors[name + SCALE_SUFFIX].shape == (shape[0], 1)


def test_a_read_model_scores_as_before(small: OptionModel, saved: Path) -> None:
    from julia1.export.onnx_graph import example_batch

    with torch.inference_mode():
        assert torch.equal(small.eval()(*example_batch()), load_weights(saved)(*example_batch()))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"none\.safetensors is not a readable weight file"):
        load_weights(tmp_path / "none.safetensors")


@pytest.mark.parametrize("content", [b"", b"not tensors", b"\xff" * 64])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(BundleError, match="not a readable weight file"):
        load_weights(tmp_path / "weights.safetensors")


def test_a_cut_file_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(BundleError, match="not a readable weight file"):
        load_weights(saved)


def test_another_safetensors_file_is_refused(tmp_path: Path) -> None:
    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "x.safetensors")
    with pytest.raises(BundleError, match="names no encoder_config"):
        load_weights(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["head.score.weight", "head.hidden.bias", "head.hidden.weight.scale"])
def test_a_missing_tensor_is_named(saved: Path, name: str) -> None:
    edited(saved, lambda tensors: tensors.pop(name))
    with pytest.raises(BundleError, match=f"the tensor {name} is missing"):
        load_weights(saved)


def test_a_tensor_of_another_shape_is_named(saved: Path) -> None:
    edited(saved, lambda tensors: tensors.update({"head.hidden.bias": np.zeros(3, np.float32)}))
    with pytest.raises(BundleError, match=r"head.hidden.bias has shape \(3,\), the model needs \(16,\)"):
        load_weights(saved)


def test_the_encoder_config_travels_with_the_weights(exported: Exported) -> None:
    from safetensors import safe_open

    with safe_open(exported.weights, framework="numpy") as file:
        config = json.loads(file.metadata()["encoder_config"])
    assert config["model_type"] == "bert"
    assert config["num_hidden_layers"] == 2
    assert not any("path" in key or str(value).startswith("/") for key, value in config.items() if value)
