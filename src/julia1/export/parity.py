"""Numeric parity between PyTorch and an exported variant, on real inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from julia1.errors import VerificationError
from julia1.model.option_model import OptionModel
from julia1.runtime.engines import Engine
from julia1.text.options import Encoded

FP32_LIMIT = 1e-4


@dataclass(frozen=True)
class Parity:
    """Largest and mean absolute difference of logits over real options, and how many were compared."""

    largest: float
    mean: float
    options: int


def measure_parity(model: OptionModel, engine: Engine, batches: Iterable[tuple[Encoded, list[int]]]) -> Parity:
    """Compare logits on batches, each given with the number of real options in each row."""
    differences = []
    for encoded, counts in batches:
        with torch.inference_mode():
            expected = model(**{name: torch.from_numpy(a) for name, a in encoded.feeds().items()}).numpy()
        found = engine.run(encoded.feeds())
        for row, count in enumerate(counts):
            differences.append(np.abs(expected[row, :count] - found[row, :count]))
    flat = np.concatenate(differences)
    return Parity(float(flat.max()), float(flat.mean()), len(flat))


def require_parity(parity: Parity, limit: float = FP32_LIMIT) -> None:
    """Raise ``VerificationError`` when the largest difference is not under ``limit``."""
    if not parity.largest < limit:
        raise VerificationError(
            f"the exported graph departs from PyTorch by {parity.largest:.2e} (limit {limit:.0e}) over "
            f"{parity.options:,} logits: do not ship it"
        )
