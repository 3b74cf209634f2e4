"""Losses of heads, each summed over the rows of a batch: from labels and from a teacher."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from julia1.bundle.heads import PAIR_KINDS, HeadSpec
from julia1.model.fixed_model import VectorHead
from julia1.train.items import Item, window_rows

UNREAD = -100
"""Target of tokens that carry no tag: [CLS], [SEP] and padding."""
MARGIN = 2.0
"""By how much the logit of the best candidate should lead."""
TAG_SHARE = 8.0
"""What the tags of a text weigh beside one answer about it: most tokens are outside of all spans, and easy."""


def head_loss(
    spec: HeadSpec,
    head: nn.Module,
    outputs: Tensor,
    items: Sequence[Item],
    smoothing: float,
    weights: Tensor | None = None,
) -> Tensor:
    """Summed loss of a head over the items that answer it; outputs as ``of_items`` gives them."""
    kept = [i for i, item in enumerate(items) if spec.name in item.targets]
    if not kept:
        return outputs.sum() * 0.0
    if isinstance(head, VectorHead):
        return _vector_loss(spec, head, outputs.float(), items, smoothing)
    found = outputs[kept].float()
    if spec.kind == "tags":
        return _tag_loss(outputs.float(), spec.name, items, smoothing)
    target = torch.from_numpy(np.stack([items[i].targets[spec.name] for i in kept]))
    if spec.kind == "value":
        return (found - target).square().sum()
    if spec.kind == "match":
        return nn.functional.binary_cross_entropy_with_logits(
            found, target * (1 - smoothing) + 0.5 * smoothing, reduction="sum"
        )
    if spec.kind == "labels":
        loss = nn.functional.binary_cross_entropy_with_logits(
            found, target * (1 - smoothing) + 0.5 * smoothing, reduction="none", pos_weight=weights
        )
        return loss.mean(1).sum() * min(len(spec.labels), 8)
    if spec.kind != "score":
        target = target * (1 - smoothing) + smoothing / target.shape[1]
    each = -(target * found.log_softmax(-1))
    return (each if weights is None else each * weights).sum()


def teacher_loss(spec: HeadSpec, outputs: Tensor, items: Sequence[Item], temperature: float) -> Tensor:
    """Summed divergence from a teacher's soft labels over the items that have them, times the temperature squared.

    The square keeps gradients as large as at a temperature of 1 (Hinton et al. 2015).
    """
    kept = [i for i, item in enumerate(items) if spec.name in item.teacher]
    if not kept:
        return outputs.sum() * 0.0
    found = outputs[kept].float() / temperature
    wanted = torch.from_numpy(np.stack([items[i].teacher[spec.name] for i in kept])) / temperature
    if spec.kind == "labels":
        each = nn.functional.binary_cross_entropy_with_logits(found, wanted.sigmoid(), reduction="none")
        return temperature**2 * each.mean(1).sum() * min(len(spec.labels), 8)
    target, logs = wanted.softmax(-1), found.log_softmax(-1)
    return temperature**2 * nn.functional.kl_div(logs, target, reduction="sum")


def _vector_loss(spec: HeadSpec, head: VectorHead, vectors: Tensor, items: Sequence[Item], smoothing: float) -> Tensor:
    """Of texts read apart. A pair: cross-entropy. Candidates: each wrong one should stay ``MARGIN`` under the best."""
    total, start = vectors.sum() * 0.0, len(items)
    for number, item in enumerate(items):
        end = start + len(item.others)
        if spec.name in item.targets:
            scores = head.scores(vectors[number], vectors[start:end])
            target = torch.from_numpy(item.targets[spec.name])
            if spec.kind == "match":
                total = total + nn.functional.binary_cross_entropy_with_logits(
                    scores, target * (1 - smoothing) + 0.5 * smoothing, reduction="sum"
                )
            else:
                best = int(target)
                short = nn.functional.relu(MARGIN - scores[best] + scores)
                total = total + (short.sum() - short[best]) / (len(scores) - 1)
        start = end
    return total


def _tag_loss(outputs: Tensor, name: str, items: Sequence[Item], smoothing: float) -> Tensor:
    """Summed over the items: what a token costs in the mean, times ``TAG_SHARE``; outputs ``[rows, tokens, tags]``."""
    target = torch.full(outputs.shape[:2], UNREAD, dtype=torch.int64)
    share = torch.zeros(outputs.shape[0])
    for item, rows in zip(items, window_rows(items), strict=True):
        if name in item.targets:
            for row, (start, end) in zip(rows, item.windows, strict=True):
                target[row, 1 : 1 + end - start] = torch.from_numpy(item.targets[name][start:end])
                share[row] = TAG_SHARE / max(1, sum(end - start for start, end in item.windows))
    each = nn.functional.cross_entropy(
        outputs.flatten(0, 1), target.flatten(), ignore_index=UNREAD, reduction="none", label_smoothing=smoothing
    )
    return (each.view(target.shape).sum(1) * share).sum()


def relation_loss(vectors: Tensor, items: Sequence[Item]) -> Tensor:
    """Summed over the items: how far the likeness of each two texts is from what it is to a teacher.

    Likeness needs no layer between vectors of different width (Tung and Mori 2019).

    Args:
        vectors: mean vectors of the texts, ``[rows, width]``.
        items: the first rows; those without a teacher's vector are passed over.
    """
    pairs = [(i, item.teacher_vector) for i, item in enumerate(items) if item.teacher_vector is not None]
    if len(pairs) < 2:
        return vectors.sum() * 0.0
    own = nn.functional.normalize(vectors[[i for i, _ in pairs]].float(), dim=-1)
    wanted = nn.functional.normalize(torch.from_numpy(np.stack([vector for _, vector in pairs])), dim=-1)
    return (own @ own.T - wanted @ wanted.T).square().mean() * len(pairs)


def label_weights(spec: HeadSpec, items: Sequence[Item]) -> Tensor | None:
    """Square roots of how rare each label is, with a mean of one; ``None`` for heads without labels of a text."""
    rows = [item.targets[spec.name] for item in items if spec.name in item.targets]
    if spec.kind in ("value", "tags", *PAIR_KINDS) or not rows:
        return None
    counts = np.stack(rows).sum(0).clip(1.0)
    weights = np.sqrt(counts.mean() / counts)
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))
