"""What heads say in bundle.json: the confidence under which they abstain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1.bundle.heads import HeadSpec
from julia1.errors import BundleError

CHOICE: dict[str, Any] = {"name": "topic", "kind": "choice", "labels": ["food", "music"]}


def test_a_head_without_a_threshold_never_abstains() -> None:
    assert HeadSpec.from_dict(CHOICE).abstain_below == 0.0


@given(st.floats(0, 1))
def test_a_threshold_comes_back_exactly(threshold: float) -> None:
    head = HeadSpec("topic", "choice", ("food", "music"), abstain_below=threshold)
    assert HeadSpec.from_dict(head.to_dict()) == head


@pytest.mark.parametrize("threshold", [-0.1, 1.0001, "0.5", None, True, float("nan")])
def test_what_is_no_confidence_is_refused(threshold: Any) -> None:
    with pytest.raises(BundleError, match=r"bundle\.json: abstain_below: expected a (confidence from 0|finite number)"):
        HeadSpec.from_dict({**CHOICE, "abstain_below": threshold})


@pytest.mark.parametrize(
    "head", [{"name": "price", "kind": "value"}, {"name": "best", "kind": "rank", "size": 8}], ids=lambda h: h["kind"]
)
def test_heads_without_confidence_have_no_threshold(head: dict[str, Any]) -> None:
    with pytest.raises(BundleError, match=f"0 for a {head['kind']} head, whose answers have no confidence, got 0.5"):
        HeadSpec.from_dict({**head, "abstain_below": 0.5})
    assert HeadSpec.from_dict({**head, "abstain_below": 0}).abstain_below == 0
