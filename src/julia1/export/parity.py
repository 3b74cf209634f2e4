"""Numeric parity between PyTorch and an exported variant, on real inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from julia1.errors import VerificationError
from julia1.model.option_model import OptionModel
from julia1.text.options import OptionsEncoding, Row

FP32_LIMIT = 1e-4


@dataclass(frozen=True)
class Parity:
    """Largest and mean absolute difference of logits over real options, and how many were compared."""

    largest: float
    mean: float
    options: int


class Scorer(Protocol):
    """What scores rows, in any way."""

    def scores(self, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """Logits of a batch of rows, fp32 ``[rows, options]``."""
        ...


def measure_parity(
    model: OptionModel, scorer: Scorer, encoding: OptionsEncoding, batches: Iterable[Sequence[Row]]
) -> Parity:
    """Compare logits on batches of rows: PyTorch reads each in one pass, the scorer as it does in use."""
    differences = []
    for rows in batches:
        feeds = encoding.collate(rows).feeds()
        with torch.inference_mode():
            expected = model(**{name: torch.from_numpy(array) for name, array in feeds.items()}).numpy()
        found = scorer.scores(rows)
        differences += [np.abs(expected[i] - found[i])[: len(row.markers)] for i, row in enumerate(rows)]
    flat = np.concatenate(differences)
    return Parity(float(flat.max()), float(flat.mean()), len(flat))


def require_parity(parity: Parity, limit: float = FP32_LIMIT) -> None:
    """Raise ``VerificationError`` when the largest difference is not under ``limit``."""
    if not parity.largest < limit:
        raise VerificationError(
            f"the exported graph departs from PyTorch by {parity.largest:.2e} (limit {limit:.0e}) over "
            f"{parity.options:,} logits: do not ship it"
        )
