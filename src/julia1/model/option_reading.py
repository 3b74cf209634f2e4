"""An option model read in two passes: option texts first, then states against what was kept of them.

``OptionModel.forward`` reads a row in one pass, which is what training wants. In use option texts, which see nothing
but themselves, are read once and kept. This is what ``julia1.export.option_graph`` writes as a graph, in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from julia1.errors import EngineError
from julia1.model.option_model import OptionModel
from julia1.text.options import TRUNK

KeysAndValues = tuple[Tensor, Tensor]
"""Of one layer, each ``[rows, tokens, width]``."""


class OptionReading(NamedTuple):
    """What comes of a batch.

    Attributes:
        logits: fp32 ``[rows, options]``; they mean nothing for a row of option text.
        trunk: mean of each row's trunk, fp32 ``[rows, width]``.
        kept: keys and values of each layer, of the rows' own tokens, in the encoder's type.
    """

    logits: Tensor
    trunk: Tensor
    kept: Sequence[KeysAndValues]


def read_options(
    model: OptionModel,
    rows: Mapping[str, Tensor],
    option_vectors: Tensor,
    context_leaves: Tensor,
    context: Sequence[KeysAndValues],
) -> OptionReading:
    """Read rows without the text of their options, or option texts as rows that are all trunk.

    Args:
        model: with a BERT encoder, in evaluation mode; the encoder may be in half precision.
        rows: the arrays that ``OptionModel.forward`` takes, by name.
        option_vectors: mean of each option's text, by marker, fp32 ``[rows, options, width]``.
        context_leaves: the leaf that each kept token belongs to, 0 for padding, int64 ``[rows, context]``.
        context: keys and values of each layer, of the kept tokens; ``context`` may be 0 tokens.

    Raises:
        EngineError: an encoder that is no BERT.
    """
    encoder: Any = model.encoder
    if encoder.config.model_type != "bert":
        raise EngineError(f"option texts cannot be read apart by a {encoder.config.model_type} encoder: only by a bert")
    heads = int(encoder.config.num_attention_heads)
    hidden: Tensor = encoder.embeddings(input_ids=rows["input_ids"], position_ids=rows["position_ids"])
    sees = _visibility(rows["branches"], rows["leaves"], context_leaves).unsqueeze(1)
    mask = torch.where(sees, 0.0, torch.finfo(hidden.dtype).min / 2).to(hidden.dtype)
    kept = []
    for layer, (context_keys, context_values) in zip(encoder.encoder.layer, context, strict=True):
        parts = layer.attention.self
        query, key, value = parts.query(hidden), parts.key(hidden), parts.value(hidden)
        kept.append((key, value))
        key = torch.cat([context_keys.to(key.dtype), key], dim=1)
        value = torch.cat([context_values.to(value.dtype), value], dim=1)
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key, value))
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + mask
        attended = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2)
        hidden = layer.attention.output(attended, hidden)
        hidden = layer.output(layer.intermediate(hidden), hidden)
    states = hidden.float()
    in_trunk = (rows["branches"] == TRUNK).float()
    trunk = torch.einsum("rt,rtw->rw", in_trunk, states) / in_trunk.sum(1, keepdim=True).clamp_min(1.0)
    markers = rows["markers"].unsqueeze(-1).expand(-1, -1, states.shape[-1])
    logits = model.head(torch.gather(states, 1, markers), option_vectors, trunk)
    return OptionReading(logits, trunk, kept)


def _visibility(branches: Tensor, leaves: Tensor, context_leaves: Tensor) -> Tensor:
    """Which token sees which key: bool ``[rows, tokens, context + tokens]``; ``tree_visibility`` explains it."""
    viewer, seen = leaves.unsqueeze(2), leaves.unsqueeze(1)
    is_marker = viewer > 0
    near = (branches.unsqueeze(1) == TRUNK) | (branches.unsqueeze(1) == branches.unsqueeze(2))
    itself = is_marker & (viewer == seen)
    text = is_marker & (viewer == context_leaves.unsqueeze(1))
    return torch.cat([text, (near & (seen == 0)) | itself], dim=2)
