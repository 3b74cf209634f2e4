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
from julia1.model.weights import (  # noqa: E402
    LEVELS,
    SCALE_SUFFIX,
    InputRange,
    block_values,
    embeddings,
    linear_layers,
    quantize_blocks,
    quantize_rows,
)

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


def test_every_matrix_is_rounded_and_nothing_else() -> None:
    torch.manual_seed(6)
    model = OptionModel(new_encoder(CONFIG))
    before = {name: value.clone() for name, value in model.named_parameters()}
    round_weights(model)
    assert {name for name, value in model.named_parameters() if not torch.equal(value, before[name])} == {
        name for name, value in before.items() if value.ndim > 1
    }
    once = {name: value.clone() for name, value in model.named_parameters()}
    round_weights(model)
    assert all(torch.equal(value, once[name]) for name, value in model.named_parameters())


def ranges_of(model: OptionModel) -> dict[str, InputRange]:
    random = torch.Generator().manual_seed(8)
    return {
        name: InputRange(
            torch.exp2(12 * torch.rand(layers[0].in_features, generator=random) - 6),
            torch.randn(layers[0].in_features, generator=random),
        )
        for name, layers in linear_layers(model).items()
    }


def test_saving_with_input_ranges_loses_nothing(tmp_path: Path) -> None:
    torch.manual_seed(7)
    model = OptionModel(new_encoder(CONFIG))
    ranges = ranges_of(model)
    round_weights(model, ranges)
    save_weights(model, tmp_path / "weights.safetensors", ranges)
    read = load_weights(tmp_path / "weights.safetensors")
    for (name, value), found in zip(model.named_parameters(), read.parameters(), strict=True):
        assert torch.allclose(value, found, rtol=1e-6, atol=0), name


def test_input_scales_spend_precision_where_they_are_large() -> None:
    torch.manual_seed(7)
    model = OptionModel(new_encoder(CONFIG))
    exact = model.head.hidden.weight.detach().clone()
    scale = torch.ones(exact.shape[1])
    scale[3] = 64
    round_weights(model, {"head.hidden": InputRange(scale, torch.zeros_like(scale))})
    error = (model.head.hidden.weight.detach() - exact).abs().amax(0)
    assert error[3] < error.median() / 16


def test_query_key_and_value_are_one_matrix(small: OptionModel, saved: Path) -> None:
    stored = load_file(saved)["encoder.encoder.layer.0.attention.self.qkv.weight"]
    assert stored.shape == (16, 48)
    assert not any(".query." in name for name in load_file(saved))


def on_a_grid(rows: int, columns: int, seed: int) -> torch.Tensor:
    """A table as a 4-bit format would have it, some blocks with a negative scale, one of zeros."""
    random = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-7, 8, (rows, columns // 32, 32), generator=random)
    numbers[..., 11] = -8
    scale = (torch.randn(rows, columns // 32, 1, generator=random) * 0.05).half().float()
    scale[0, 0] = 0
    return (numbers * scale).flatten(1)


@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([32, 64, 384]))
def test_a_table_on_a_four_bit_grid_is_kept_exactly(seed: int, rows: int, columns: int) -> None:
    table = on_a_grid(rows, columns, seed)
    blocks = quantize_blocks(table)
    assert blocks is not None
    codes, scale = blocks
    assert (codes.dtype, codes.shape) == (torch.uint8, (rows, columns // 32, 16))
    assert (scale.dtype, scale.shape) == (torch.float16, (rows, columns // 32, 1))
    assert torch.equal(block_values(codes, scale), table)


@pytest.mark.parametrize("columns", [32, 48])
def test_a_table_off_the_grid_is_not_forced_onto_it(columns: int) -> None:
    assert quantize_blocks(torch.randn(4, columns, generator=torch.Generator().manual_seed(1))) is None


def test_a_four_bit_table_is_stored_as_such_and_read_back(tmp_path: Path) -> None:
    torch.manual_seed(9)
    model = OptionModel(new_encoder({**CONFIG, "hidden_size": 64}))
    table = model.encoder.get_input_embeddings().weight  # type: ignore[operator]
    with torch.no_grad():
        table.copy_(on_a_grid(*table.shape, seed=4))
    round_weights(model)
    save_weights(model, tmp_path / "weights.safetensors")
    stored = load_file(tmp_path / "weights.safetensors")["encoder.embeddings.word_embeddings.weight"]
    assert stored.nbytes == table.numel() // 2
    read: Any = load_weights(tmp_path / "weights.safetensors").encoder
    assert torch.equal(read.get_input_embeddings().weight, table)


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
    for name, layers in linear_layers(small).items():
        outputs = sum(layer.out_features for layer in layers)
        assert tensors[f"{name}.weight"].dtype == np.int8
        assert tensors[f"{name}.weight"].shape == (layers[0].in_features, outputs)
        assert tensors[f"{name}.weight{SCALE_SUFFIX}"].shape == tensors[f"{name}.bias"].shape == (outputs,)
    for name, table in embeddings(small).items():
        assert tensors[f"{name}.weight"].dtype == np.int8
        assert tensors[f"{name}.weight"].shape == tuple(table.weight.shape)
        assert tensors[f"{name}.weight{SCALE_SUFFIX}"].shape == (table.num_embeddings, 1)


def test_a_read_model_scores_as_before(small: OptionModel, saved: Path) -> None:
    branches = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]] * 2)
    leaves = torch.tensor([[0, 0, 0, 0, 0, 1, -1, 2, -2]] * 2)
    batch = (torch.full((2, 9), 3), torch.arange(9).repeat(2, 1), branches, leaves, torch.tensor([[5, 7]] * 2))
    with torch.inference_mode():
        assert torch.equal(small.eval()(*batch), load_weights(saved)(*batch))


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
