"""Heads over two or more texts: how they are read, what their scores are, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from julia1.bundle.heads import HeadSpec
from julia1.errors import InputError
from julia1.runtime.fixed import likeness
from julia1.train.data.rows import DataRow, kind_of
from julia1.train.items import Item
from julia1.train.recipe import FineTuning
from julia1.train.scores import area_under_curve, f1

if TYPE_CHECKING:
    from julia1.model.fixed_model import FixedModel

PAIRINGS = ("auto", "cross", "towers")
FIRST = (1, 5, 10)
"""Among how many candidates the right one is looked for in a whole set."""
QUERIES_AT_ONCE = 256
FloatArray = npt.NDArray[np.float32]


def reads_pairs(rows: Sequence[DataRow], settings: FineTuning) -> bool:
    """Whether both texts of a row go into one row of the encoder.

    Raises:
        InputError: an unknown pairing, texts that only some rows have, or questions that this pairing cannot answer.
    """
    if settings.pairing not in PAIRINGS:
        raise InputError(f"pairing is {settings.pairing!r}: one of {', '.join(PAIRINGS)}")
    places = {kind_of(answer): row.place for row in rows for answer in row.answers.values()}
    second = [bool(row.second) for row in rows]
    both = next((row.place for row in rows if row.second and row.candidates), None)
    if both is not None:
        raise InputError(
            f"{both}: the row has a second text and candidates: keep pairs and rankings in files of their own"
        )
    pair = any(second) and settings.pairing != "towers" and not (settings.pairing == "auto" and "rank" in places)
    if pair and "rank" in places:
        raise InputError(f"{places['rank']}: candidates are read apart: use the pairing towers")
    if pair and "tags" in places:
        raise InputError(f"{places['tags']}: spans are tagged in one text, not in a pair: leave the second text out")
    if any(second) and not all(second) and (pair or "match" in places):
        place = rows[second.index(False)].place
        raise InputError(f"{place}: the row has no second text, others have: give every row one, or none")
    return pair


def fitted_scales(model: FixedModel) -> list[HeadSpec]:
    """The heads of a model; those that compare vectors have the scale and centre that training found."""
    from julia1.model.fixed_model import VectorHead

    return [
        replace(spec, centre=float(head.centre.detach()), spread=float(head.log_scale.detach().exp()))
        if isinstance(head, VectorHead)
        else spec
        for spec, head in zip(model.specs, model.heads, strict=True)
    ]


def pair_scores(head: HeadSpec, outputs: FloatArray) -> npt.NDArray[np.float64]:
    """Logit of each pair, float64 ``[pairs]``, from one item's outputs."""
    if not head.size:
        return outputs.astype(np.float64)
    return likeness(head, outputs[0], outputs[1:])


def match_figures(head: HeadSpec, outputs: Sequence[FloatArray], targets: Sequence[bool]) -> dict[str, float]:
    """Area under the ROC curve, and F1 and accuracy of a probability over one half."""
    scores = np.array([pair_scores(head, values)[0] for values in outputs])
    right = np.array(targets)
    found = scores > 0
    return {
        "auc": area_under_curve(right, scores),
        "f1": f1(right, found),
        "accuracy": float((found == right).mean()),
    }


def rank_figures(head: HeadSpec, outputs: Sequence[FloatArray], best: Sequence[int]) -> dict[str, float]:
    """Mean reciprocal rank of the best candidate, and how often it is among the first 1, 3 and 5."""
    places = []
    for values, number in zip(outputs, best, strict=True):
        scores = pair_scores(head, values)
        # of equal ones the best counts as the last: a constant score must not look good
        places.append(int((scores >= scores[number]).sum()))
    found = np.array(places)
    return {"mrr": float((1 / found).mean()), **{f"recall@{k}": float((found <= k).mean()) for k in (1, 3, 5)}}


def retrieval_figures(head: HeadSpec, outputs: Sequence[FloatArray], items: Sequence[Item]) -> dict[str, float]:
    """How well texts that are read apart find the right one among all distinct candidate texts of the items.

    A query that several items ask has all their right candidates, of which the best-placed counts. Its own text is no
    candidate unless it is a right one. Items without a right candidate, pairs that do not match, only add theirs.

    Returns:
        ``candidates`` and ``queries``, their numbers; ``recall@k``, the share of queries with a right candidate among
        the first k; ``mrr``, the mean reciprocal rank. Empty when no item has a right candidate.
    """
    pool: dict[tuple[int, ...], FloatArray] = {}
    queries: dict[tuple[int, ...], tuple[FloatArray, set[tuple[int, ...]]]] = {}
    for values, item in zip(outputs, items, strict=True):
        others = [tuple(ids) for ids in item.others]
        target = int(item.targets[head.name][0])
        # a pair's second text comes first, whatever candidates another head has
        own = others[:1] if head.kind == "match" else others
        pool.update(zip(own, values[1:], strict=False))
        if head.kind == "rank" or target:
            _, right = queries.setdefault(tuple(item.ids), (values[0], set()))
            right.add(others[target if head.kind == "rank" else 0])
    if not queries:
        return {}
    texts = {ids: number for number, ids in enumerate(pool)}
    vectors = np.stack(list(pool.values())).astype(np.float64)
    asked, places = list(queries.items()), []
    for start in range(0, len(asked), QUERIES_AT_ONCE):
        some = asked[start : start + QUERIES_AT_ONCE]
        cosines = np.stack([vector for _, (vector, _) in some]).astype(np.float64) @ vectors.T
        for (ids, (_, right)), scores in zip(some, cosines, strict=True):
            numbers = [texts[one] for one in right]
            best = scores[numbers].max()
            scores[numbers] = -np.inf
            if ids in texts:
                scores[texts[ids]] = -np.inf
            # of equal ones the right one counts as the last: a constant score must not look good
            places.append(1 + int((scores >= best).sum()))
    found = np.array(places)
    recalls = {f"recall@{k}": float((found <= k).mean()) for k in FIRST}
    return {"candidates": len(pool), "queries": len(asked), **recalls, "mrr": float((1 / found).mean())}
