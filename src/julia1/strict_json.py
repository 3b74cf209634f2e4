"""JSON without what its standard does not have, for everything that people or other programs wrote."""

from __future__ import annotations

import json
import math
from typing import Any

from julia1.content import shown


def strict_json(source: str) -> Any:
    """JSON as the standard has it; raises ``ValueError`` for NaN, infinity and a key that stands twice."""
    return json.loads(source, object_pairs_hook=_no_repeats, parse_constant=_no_constant, parse_float=_finite)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"the key {shown(next(key for key in keys if keys.count(key) > 1))} stands twice in one object"
        )
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value
