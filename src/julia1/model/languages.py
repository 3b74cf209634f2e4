"""Heads of their own for each language, over one encoder: a gate tells the language of a text from its pieces.

What a language's head gives is added to what the shared head gives. The shared head is trained on every language, and
alone answers texts in a language that the gate does not know.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

DROPPED = 0.3
"""Share of the rows of a training step that the shared head has to answer alone, so that it learns to."""


class LanguageGate(nn.Module):
    """Which language a row is in: that under which its pieces are likeliest; none, if they are unlikely under all.

    Args:
        pieces: size of the vocabulary.
        languages: how many are known.

    The table, fp32 ``[pieces, languages + 1]``, has the log-probability of each piece in each language; its last column
    is 1 for pieces that count and 0, as the whole row, for special ones. The floor, fp32 ``[languages]``, is the least
    mean log-probability of a piece in a text of the language.
    """

    def __init__(self, pieces: int, languages: int) -> None:
        super().__init__()
        self.languages = languages
        # parameters, though counted and never trained: they are stored with all others
        self.table = nn.Parameter(torch.zeros(pieces, languages + 1), requires_grad=False)
        self.floor = nn.Parameter(torch.zeros(languages), requires_grad=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One at the language of each row and zero elsewhere, fp32 ``[rows, languages]``; all zero where it is unknown.

        Args:
            input_ids, attention_mask: int64 ``[rows, tokens]``.
        """
        total = (self.table[input_ids] * attention_mask.unsqueeze(-1)).sum(1)
        mean = total[:, :-1] / total[:, -1:].clamp_min(1.0)
        best = mean.argmax(-1)
        known = (mean >= self.floor).gather(1, best[:, None]) & (total[:, -1:] > 0)
        return nn.functional.one_hot(best, self.languages).float() * known


class LanguageHeads(nn.Module):
    """What each language adds to the outputs of a shared head: perceptrons of two layers that start at nothing."""

    def __init__(self, languages: int, inputs: int, inner: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.ModuleList(nn.Linear(inputs, inner) for _ in range(languages))
        self.out = nn.ModuleList(nn.Linear(inner, outputs) for _ in range(languages))
        with torch.no_grad():
            for layer in self.out:
                for parameter in layer.parameters():
                    parameter.zero_()

    def forward(self, pooled: Tensor, gate: Tensor) -> Tensor:
        """``pooled`` [rows, inputs] and ``gate`` [rows, languages] to [rows, outputs]."""
        if self.training:
            gate = gate * (torch.rand(len(gate), 1) >= DROPPED)
        inputs = self.dropout(pooled)
        parts = [
            out(self.dropout(nn.functional.gelu(hidden(inputs)))) * gate[:, [number]]
            for number, (hidden, out) in enumerate(zip(self.hidden, self.out, strict=True))
        ]
        return torch.stack(parts).sum(0)
