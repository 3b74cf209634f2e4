"""Where label vectors start, and that padding and order change no vector."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.model import new_encoder  # noqa: E402
from julia1.text import TextTokenizer  # noqa: E402
from julia1.train.data.rows import DataRow  # noqa: E402
from julia1.train.vectors import label_vectors, text_vectors  # noqa: E402

CONFIG = {
    "model_type": "bert",
    "vocab_size": 448,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
}


@pytest.fixture(scope="module")
def encoder() -> Any:
    torch.manual_seed(3)
    return new_encoder(CONFIG).eval()


def test_a_vector_is_the_same_alone_and_among_longer_texts(encoder: Any, tokenizer: TextTokenizer) -> None:
    texts = ["food", "the hotel food is good today please", "", "music " * 300]
    together = text_vectors(encoder, tokenizer, texts)
    for text, vector in zip(texts, together, strict=True):
        assert torch.allclose(text_vectors(encoder, tokenizer, [text])[0], vector, atol=1e-5)


def test_labels_start_between_their_names_and_their_rows(encoder: Any, tokenizer: TextTokenizer) -> None:
    spec = HeadSpec("topic", "choice", ("food", "music", "travel"))
    rows = [
        DataRow(f"f:{i}", text, {"topic": label}, {}, "", "", False, {})
        for i, (text, label) in enumerate([("order late", "food"), ("good song", "music"), ("great song", "music")])
    ]
    alone = label_vectors(encoder, tokenizer, spec)
    assert torch.allclose(
        torch.nn.functional.cosine_similarity(alone, text_vectors(encoder, tokenizer, spec.labels)), torch.ones(3)
    )
    found = label_vectors(encoder, tokenizer, spec, rows)
    assert torch.allclose(found[2], alone[2])
    of_rows = text_vectors(encoder, tokenizer, ["order late"])[0]
    to_name, to_row, apart = (
        float(torch.nn.functional.cosine_similarity(one, other, dim=0))
        for one, other in ((found[0], alone[0]), (found[0], of_rows), (alone[0], of_rows))
    )
    assert to_name == pytest.approx(to_row, abs=1e-4)
    assert to_name > apart
    assert torch.allclose(found.norm(dim=-1), alone.norm(dim=-1), atol=1e-4)


def test_a_soft_label_counts_for_its_likeliest_and_a_row_without_text_for_none(
    encoder: Any, tokenizer: TextTokenizer
) -> None:
    spec = HeadSpec("topic", "choice", ("food", "music"))

    def row(text: str, answer: Any) -> DataRow:
        return DataRow("f:1", text, {"topic": answer}, {"age": 1.0}, "", "", False, {})

    soft = [row("order late", {"food": 0.9, "music": 0.1}), row("good song", {"food": 0.2, "music": 0.8})]
    plain = [row("order late", "food"), row("good song", "music")]
    expected = label_vectors(encoder, tokenizer, spec, plain)
    assert torch.allclose(label_vectors(encoder, tokenizer, spec, soft), expected)
    empty = [row(" ", label) for label in ("food", "music") for _ in range(40)]
    assert torch.allclose(label_vectors(encoder, tokenizer, spec, [*empty, *plain]), expected)
