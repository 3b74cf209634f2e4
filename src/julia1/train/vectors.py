"""What an encoder makes of texts before anything is trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from julia1.bundle.heads import HeadSpec
from julia1.model.fixed_model import pool
from julia1.runtime.batches import padded_batches
from julia1.text.states import framed, pad_rows
from julia1.text.tokenizer import TextTokenizer
from julia1.train.data.rows import DataRow, labels_of

MAX_TOKENS = 128
BATCH_TOKENS = 2048
EXAMPLES = 32
"""Rows of a label that are read, at most."""
NAMED_KINDS = ("choice", "labels")
"""Heads whose labels have names that say something."""


@torch.inference_mode()
def text_vectors(encoder: nn.Module, tokenizer: TextTokenizer, texts: Sequence[str]) -> Tensor:
    """Mean last hidden state of each text, of its first ``MAX_TOKENS`` tokens, fp32 ``[texts, width]``."""
    encoder.eval()
    rows = [framed(tokenizer, ids, MAX_TOKENS)[0] for ids in tokenizer.ids(list(texts))]
    lengths = [len(row) for row in rows]
    found: list[Tensor] = [torch.empty(0)] * len(rows)
    longest_first = sorted(range(len(rows)), key=lambda i: -lengths[i])
    for batch in padded_batches(longest_first, lengths.__getitem__, BATCH_TOKENS):
        ids, mask = (torch.from_numpy(array) for array in pad_rows([rows[i] for i in batch], tokenizer.pad))
        states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        for index, vector in zip(batch, pool(states, mask)["mean"], strict=True):
            found[index] = vector
    return torch.stack(found).clone()


def label_vectors(encoder: nn.Module, tokenizer: TextTokenizer, spec: HeadSpec, rows: Sequence[DataRow] = ()) -> Tensor:
    """Where the label vectors of a head start, fp32 ``[labels, width]``.

    Halfway between what the encoder reads in the label's name and in the first training rows that have it; a label
    without rows has its name alone. They are as long as the encoder's vectors are: the shorter, the further a step of
    training turns them.
    """
    names = text_vectors(encoder, tokenizer, spec.labels)
    named, length = _unit(names), float(names.norm(dim=-1).mean())
    chosen: list[tuple[int, str]] = []
    counts = dict.fromkeys(spec.labels, 0)
    places = {label: number for number, label in enumerate(spec.labels)}
    for row in rows:
        for label in _labels(row, spec.name) if row.text.strip() and not row.second else ():
            if label in counts and counts[label] < EXAMPLES:
                counts[label] += 1
                chosen.append((places[label], row.text))
    if not chosen:
        return named * length
    texts = list(dict.fromkeys(text for _, text in chosen))
    read = dict(zip(texts, _unit(text_vectors(encoder, tokenizer, texts)), strict=True))
    of_rows = torch.zeros_like(named)
    for number, text in chosen:
        of_rows[number] += read[text]
    return _unit(named + _unit(of_rows)) * length


def _labels(row: DataRow, name: str) -> Sequence[str]:
    """The labels of a row, the likeliest of a soft one."""
    answer = row.answers.get(name)
    if isinstance(answer, Mapping):
        return [max(answer, key=lambda label: answer[label])]
    return labels_of(answer) if answer is not None else []


def _unit(vectors: Tensor) -> Tensor:
    return nn.functional.normalize(vectors, dim=-1)
