"""Input ranges: even out the channels of what linear layers read, before both sides are rounded to eight bits.

A row of activations is rounded with one step. Where a few channels are twenty times as large as the others, those are
left with two or three levels. Dividing each channel by a scale and multiplying the weights by it changes nothing in
fp32 and shares the burden with the weights, which have precision to spare (SmoothQuant, Xiao et al. 2022); neither does
subtracting a constant from a channel and adding its product with the weights to the bias (Outlier Suppression+, Wei et
al. 2023). Both are fitted here: they are what lets rounding put the least noise into the outputs of a layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from julia1.model.weights import LEVELS, InputRange, linear_layers

FLOAT_LAYERS = re.compile(r"(head\.score|features\.mix|\.out|\.languages\.(out|hidden)\.\d+|window_weight)$")
"""Layers that run in fp32 in every graph: nothing to even out."""
ROWS = 1024
"""Rows of inputs that are kept of a layer."""
STEPS, RATE = 120, 0.05
WEIGHT_SHARE = 0.1
"""What noise from rounded weights counts beside noise from rounded inputs: the fp32 graph has the former too."""


def input_ranges(model: nn.Module, batches: Iterable[Mapping[str, npt.NDArray[Any]]]) -> dict[str, InputRange]:
    """Shift and scale of the inputs of each linear layer.

    Args:
        model: in fp32, before its weights are rounded.
        batches: real rows, unpadded, as arrays by the name of the model's argument.
    """
    layers = {name: parts for name, parts in linear_layers(model).items() if not FLOAT_LAYERS.search(name)}
    inputs = _observed(model, layers, batches)
    return {
        name: _fitted(inputs[name], torch.cat([part.weight.detach() for part in parts]), _follows_gelu(name))
        for name, parts in layers.items()
    }


def _follows_gelu(name: str) -> bool:
    """Whether the inputs come from a GELU: the graph gives those a shift of their own."""
    return name.endswith(".output.dense") and ".attention." not in name


def _fitted(inputs: Tensor, weight: Tensor, follows_gelu: bool) -> InputRange:
    """The range of inputs ``[rows, channels]`` of a layer with weight ``[outputs, channels]``."""
    middle = torch.zeros(inputs.shape[1]) if follows_gelu else inputs.mean(0)
    reach = (inputs - middle).abs().quantile(0.98, dim=0)
    # a channel that these rows never used must not be taken for one that is never used
    reach = reach.clamp_min(float(reach.median()) * 1e-2 + 1e-6)
    log_scale = 0.7 * reach.log() - 0.3 * weight.abs().amax(0).clamp_min(1e-5).log()
    log_scale = (log_scale - log_scale.median()).requires_grad_()
    offset = torch.zeros_like(middle, requires_grad=not follows_gelu)
    power = weight.square().sum(0)
    optimizer = torch.optim.Adam([log_scale] if follows_gelu else [log_scale, offset], lr=RATE)
    for _ in range(STEPS):
        scale = log_scale.exp()
        # rounding adds noise of step² / 12; the step of a row follows its largest channel
        row_steps = ((inputs - middle - offset * reach).abs() / scale).amax(1) / LEVELS
        from_inputs = row_steps.square().mean() * (scale.square() * power).sum()
        output_steps = (weight.abs() * scale).amax(1) / LEVELS
        from_weights = output_steps.square().sum() * (inputs / scale).square().sum(1).mean()
        optimizer.zero_grad()
        (from_inputs + WEIGHT_SHARE * from_weights).log().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return InputRange(log_scale.detach().exp(), middle + offset.detach() * reach)


def _observed(
    model: nn.Module, layers: Mapping[str, list[nn.Linear]], batches: Iterable[Mapping[str, npt.NDArray[Any]]]
) -> dict[str, Tensor]:
    """Inputs of every layer on the batches, fp32 ``[rows, channels]``, evenly thinned out to about ``ROWS``."""
    found: dict[str, list[Tensor]] = {name: [] for name in layers}

    def observe(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found[name].append(inputs[0].flatten(0, -2))

        return hook

    handles = [parts[0].register_forward_pre_hook(observe(name)) for name, parts in layers.items()]
    try:
        with torch.no_grad():
            for batch in batches:
                model(**{name: torch.from_numpy(array) for name, array in batch.items()})
    finally:
        for handle in handles:
            handle.remove()
    kept: dict[str, Tensor] = {}
    for name in layers:
        rows = torch.cat(found.pop(name))
        kept[name] = rows[:: max(1, len(rows) // ROWS)].clone()
    return kept
