"""An encoder with an option head: scores every option of every question of a state in one pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from julia1.text.options import TRUNK


class OptionHead(nn.Module):
    """Scores an option from its marker, the mean of the trunk, and their product.

    The product lets the head use the similarity geometry of a pretrained sentence encoder from the first step; without
    it the marker has to learn similarity anew.
    """

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(3 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(width, 1)

    def forward(self, markers: Tensor, trunk: Tensor) -> Tensor:
        """``markers`` [rows, options, width] and ``trunk`` [rows, width] to logits [rows, options]."""
        trunk = trunk.unsqueeze(1).expand_as(markers)
        features = torch.cat([markers, trunk, markers * trunk], dim=-1)
        hidden = nn.functional.gelu(self.hidden(features))
        return self.score(self.dropout(hidden)).squeeze(-1)  # type: ignore[no-any-return]


class OptionModel(nn.Module):
    """Token arrays of the options encoding to one logit an option.

    Args:
        encoder: a Hugging Face encoder that takes a four-dimensional additive attention mask and position ids.
        dropout: dropout of the head.
    """

    def __init__(self, encoder: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
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
        ).last_hidden_state
        in_trunk = (branches == TRUNK).to(states.dtype)
        trunk = torch.bmm(in_trunk.unsqueeze(1), states).squeeze(1) / in_trunk.sum(1, keepdim=True)
        index = markers.unsqueeze(-1).expand(-1, -1, states.shape[-1])
        return self.head(torch.gather(states, 1, index), trunk)  # type: ignore[no-any-return]


def tree_visibility(branches: Tensor, leaves: Tensor) -> Tensor:
    """Which token (row of the result) sees which: bool ``[rows, tokens, tokens]``.

    A token sees the trunk, and within its own branch the branch itself and its own leaf. Padding sees padding, so no
    row of a softmax is ever empty.
    """
    own_branch = branches.unsqueeze(2) == branches.unsqueeze(1)
    own_leaf = (leaves.unsqueeze(1) == 0) | (leaves.unsqueeze(2) == leaves.unsqueeze(1))
    return (branches.unsqueeze(1) == TRUNK) | (own_branch & own_leaf)
