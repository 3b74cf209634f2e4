"""Input ranges change nothing but where eight bits are spent."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from julia1.export.rounding import input_ranges  # noqa: E402
from julia1.model.weights import InputRange  # noqa: E402


class Layer(nn.Module):
    """One linear layer, which is all that is needed to have inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(64, 32)

    def forward(self, value: Tensor) -> Tensor:
        return self.dense(value)


def inputs(seed: int) -> Tensor:
    """Rows as encoders have them: one channel that is always large, one that is large at times."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.randn(300, 64, generator=random)
    rows[:, 5] = rows[:, 5] * 0.5 + 40
    rows[:, 9] *= 12
    return rows


def rounding_error(rows: Tensor, layer: nn.Linear, found: InputRange) -> float:
    """Root mean square of what rounding the inputs by row to eight bits changes in the outputs."""
    scaled = (rows - found.shift) / found.scale
    step = scaled.abs().amax(1, keepdim=True) / 127
    rounded = torch.round(scaled / step) * step * found.scale + found.shift
    return float((layer(rounded) - layer(rows)).square().mean().sqrt())


@pytest.fixture
def layer() -> Layer:
    torch.manual_seed(3)
    return Layer().requires_grad_(False)


def test_ranges_spend_the_levels_where_they_are_needed(layer: Layer) -> None:
    found = input_ranges(layer, [{"value": inputs(1).numpy()}])["dense"]
    plain = InputRange(torch.ones(64), torch.zeros(64))
    other_rows = inputs(2)
    assert rounding_error(other_rows, layer.dense, found) < 0.25 * rounding_error(other_rows, layer.dense, plain)


def test_scales_and_shifts_follow_the_channel(layer: Layer) -> None:
    found = input_ranges(layer, [{"value": inputs(1).numpy()}])["dense"]
    assert found.scale[9] > 4 * found.scale.median()
    assert found.shift[5] == pytest.approx(40, abs=3)


def test_a_channel_that_was_never_used_stays_usable(layer: Layer) -> None:
    rows = inputs(1)
    rows[:, 20] = 0
    found = input_ranges(layer, [{"value": rows.numpy()}])["dense"]
    assert torch.isfinite(found.scale).all()
    assert found.scale[20] > 1e-6


def test_looking_at_activations_leaves_the_model_as_it_was(layer: Layer) -> None:
    before = layer.dense.weight.clone()
    input_ranges(layer, [{"value": inputs(1).numpy()}])
    assert torch.equal(layer.dense.weight, before)
    assert not layer.dense._forward_pre_hooks
