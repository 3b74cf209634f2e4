"""An encoder with an option head: scores every option of every question of a state in one pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from julia1.model.backbone import take_pooler
from julia1.text.options import TRUNK

LIKENESS_SCALE = 40.0
LIKENESS_CENTRE = 0.8
"""Where cosines of a pretrained sentence encoder lie, and a scale that makes their differences logits."""

FEATURES = 5
"""Vectors that the head reads of an option: marker, state, their product, text, its product with the state."""


class OptionHead(nn.Module):
    """``logit = score + gate * scale * (cosine - centre)``.

    The cosine compares the option's text with the state, as the pretrained sentence encoder would: at the first step it
    is the whole answer. Score and gate are read where state, question and option meet, and learn what likeness alone
    cannot tell, such as yes and no.
    """

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(FEATURES * width, width)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(width, 2)
        self.log_scale = nn.Parameter(torch.tensor([LIKENESS_SCALE]).log())
        self.centre = nn.Parameter(torch.tensor([LIKENESS_CENTRE]))
        with torch.no_grad():
            self.score.weight.mul_(0.1)
            self.score.bias.copy_(torch.tensor([0.0, 2.0]))

    def forward(self, markers: Tensor, texts: Tensor, trunk: Tensor) -> Tensor:
        """``markers`` and ``texts`` [rows, options, width], ``trunk`` [rows, width] to logits [rows, options]."""
        trunk = trunk.unsqueeze(1).expand_as(markers)
        features = torch.cat([markers, trunk, markers * trunk, texts, texts * trunk], dim=-1)
        read = self.score(self.dropout(nn.functional.gelu(self.hidden(features))))
        cosine = (texts * trunk).sum(-1) / (texts.norm(dim=-1) * trunk.norm(dim=-1) + 1e-6)
        likeness = self.log_scale.exp() * (cosine - self.centre)
        return read[..., 0] + torch.sigmoid(read[..., 1]) * likeness  # type: ignore[no-any-return]


class OptionModel(nn.Module):
    """Token arrays of the options encoding to one logit an option.

    Args:
        encoder: a Hugging Face encoder that takes a four-dimensional additive attention mask and position ids.
        dropout: dropout of the head.
    """

    def __init__(self, encoder: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        take_pooler(encoder)
        self.encoder = encoder
        config: Any = encoder.config
        self.head = OptionHead(config.hidden_size, dropout)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, branches: Tensor, leaves: Tensor, markers: Tensor
    ) -> Tensor:
        """All inputs int64: ``[rows, tokens]``, ``markers`` ``[rows, options]``. Returns logits ``[rows, options]``."""
        dtype = self.head.score.weight.dtype
        mask = torch.where(tree_visibility(branches, leaves), 0.0, torch.finfo(torch.float32).min / 2)
        states = self.encoder(
            input_ids=input_ids, attention_mask=mask.unsqueeze(1).to(dtype), position_ids=position_ids
        ).last_hidden_state.to(dtype)
        in_trunk = (branches == TRUNK).to(dtype).unsqueeze(1)
        trunk = _mean(in_trunk, states).squeeze(1)
        in_text = (leaves.unsqueeze(1) == -torch.gather(leaves, 1, markers).unsqueeze(2)).to(dtype)
        index = markers.unsqueeze(-1).expand(-1, -1, states.shape[-1])
        return self.head(torch.gather(states, 1, index), _mean(in_text, states), trunk)  # type: ignore[no-any-return]


def _mean(members: Tensor, states: Tensor) -> Tensor:
    """Mean of the member tokens: ``[rows, groups, tokens]`` with ``[rows, tokens, width]``."""
    return torch.bmm(members, states) / members.sum(2, keepdim=True).clamp_min(1.0)


def tree_visibility(branches: Tensor, leaves: Tensor) -> Tensor:
    """Which token (row of the result) sees which: bool ``[rows, tokens, tokens]``.

    Option text sees itself; all else sees the trunk and its own branch, and a marker its own option's text. Padding
    sees padding, so no row of a softmax is ever empty.
    """
    viewer_branch, seen_branch = branches.unsqueeze(2), branches.unsqueeze(1)
    viewer_leaf, seen_leaf = leaves.unsqueeze(2), leaves.unsqueeze(1)
    sees_stem = (viewer_leaf >= 0) & ((seen_branch == TRUNK) | (seen_branch == viewer_branch))
    sees_leaf = (viewer_leaf.abs() == seen_leaf.abs()) & ((seen_leaf < 0) | (viewer_leaf > 0))
    return ((seen_leaf == 0) & sees_stem) | sees_leaf
