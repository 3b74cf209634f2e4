"""The model in PyTorch: who sees whom, and what cannot matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from julia1 import Choice, YesNo  # noqa: E402
from julia1.model import OptionHead, OptionModel  # noqa: E402
from julia1.model.option_model import tree_visibility  # noqa: E402
from julia1.text import OptionsEncoding, Row  # noqa: E402

if TYPE_CHECKING:
    from conftest import Exported


def scores(model: OptionModel, encoding: OptionsEncoding, rows: list[Row]) -> list[np.ndarray]:
    batch = {name: torch.from_numpy(array) for name, array in encoding.collate(rows).feeds().items()}
    with torch.inference_mode():
        found = model(**batch).numpy()
    return [values[: len(row.markers)] for values, row in zip(found, rows, strict=True)]


def sees(viewer: tuple[int, int], seen: tuple[int, int]) -> bool:
    """Branch and leaf of two tokens: does the first see the second? A leaf is k at its marker and -k at its text."""
    if seen[1] == 0:
        return viewer[1] >= 0 and seen[0] in (0, viewer[0])
    return abs(viewer[1]) == -seen[1] if seen[1] < 0 else viewer[1] == seen[1]


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-4, 4)), min_size=1, max_size=12))
def test_visibility_is_what_the_documentation_says(tokens: list[tuple[int, int]]) -> None:
    branches, leaves = (torch.tensor([part]) for part in zip(*tokens, strict=True))
    found = tree_visibility(branches, leaves)[0].tolist()
    assert found == [[sees(viewer, seen) for seen in tokens] for viewer in tokens]
    assert all(found[a][a] for a in range(len(tokens))), "every token sees itself, so no softmax is empty"


def test_a_row_scores_the_same_alone_padded_and_in_a_batch(
    exported: Exported, encoding: OptionsEncoding, texts: list[str]
) -> None:
    questions = {"a": Choice("Which?", ["food", "music", "late order"]), "b": YesNo("Late?")}
    rows = [row for text in texts[:10] for row in encoding.encode(text, questions)[0]]
    together = scores(exported.model, encoding, rows)
    for row, found in zip(rows, together, strict=True):
        (alone,) = scores(exported.model, encoding, [row])
        assert found == pytest.approx(alone, abs=1e-5)


def test_another_option_or_question_moves_no_score(exported: Exported, encoding: OptionsEncoding) -> None:
    few = {"a": Choice("Which?", ["food", "music"])}
    more: dict[str, Any] = {"z": YesNo("Late?"), "a": Choice("Which?", ["sport", "food", "hotel", "music"])}
    found = []
    for questions in (few, more):
        rows, _ = encoding.encode("a good song", questions)
        (values,) = scores(exported.model, encoding, rows)
        found.append(dict(zip(rows[0].slots, values.tolist(), strict=True)))
    assert [found[1][1, 1], found[1][1, 3]] == pytest.approx([found[0][0, 0], found[0][0, 1]], abs=1e-5)


def test_the_state_the_question_and_the_option_all_matter(exported: Exported, encoding: OptionsEncoding) -> None:
    def score(state: str, question: str, option: str) -> float:
        rows = encoding.encode(state, {"q": Choice(question, [option, "other"])})[0]
        return float(scores(exported.model, encoding, rows)[0][rows[0].slots.index((0, 0))])

    base = score("a good song", "Which topic?", "music")
    for changed in (
        ("a bad song", "Which topic?", "music"),
        ("a good song", "Which team?", "music"),
        ("a good song", "Which topic?", "food"),
    ):
        assert abs(score(*changed) - base) > 1e-4


def test_the_head_adds_a_gated_likeness_to_a_score() -> None:
    head = OptionHead(4)
    markers, texts, trunk = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 4)
    found = head(markers, texts, trunk)
    assert found.shape == (2, 3)
    state = trunk[:, None].expand(2, 3, 4)
    features = torch.cat([markers, state, markers * state, texts, texts * state], -1)
    score, gate = head.score(torch.nn.functional.gelu(head.hidden(features))).unbind(-1)
    cosine = torch.nn.functional.cosine_similarity(texts, trunk[:, None], dim=-1)
    assert torch.allclose(found, score + gate.sigmoid() * head.log_scale.exp() * (cosine - head.centre), atol=1e-4)
    assert torch.isfinite(head(markers, torch.zeros(2, 3, 4), trunk)).all(), "an option without pieces"
