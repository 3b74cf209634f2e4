"""What a bundle in use gives for labelled rows, in the form that figures are taken of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from julia1.bundle.heads import HeadSpec
from julia1.runtime.fixed import Given
from julia1.train.data.rows import DataRow
from julia1.train.items import Outputs

Run = Callable[[Sequence[Given]], Mapping[str, list[npt.NDArray[np.float32]]]]
"""Raw outputs of every head, by its name, for each of what is given."""


def outputs_of_rows(run: Run, heads: Sequence[HeadSpec], pairs: bool, rows: Sequence[DataRow]) -> Outputs:
    """Raw outputs of every head for labelled rows; of a head that reads texts apart, those of the texts that a row is
    compared with follow its own.

    Args:
        run: the model.
        heads: its heads.
        pairs: whether it reads two texts in one row.
        rows: what to answer.
    """
    given = [Given(row.text, row.second if pairs else None, row.features or None) for row in rows]
    found: Outputs = dict(run(given))
    if any(head.size for head in heads):
        others = [[text for text in (row.second, *row.candidates) if text] for row in rows]
        of_others = run([Given(text) for texts in others for text in texts])
        for head in heads:
            if head.size:
                rest = iter(of_others[head.name])
                found[head.name] = [
                    np.stack([own, *(next(rest) for _ in texts)])
                    for own, texts in zip(found[head.name], others, strict=True)
                ]
    return found
