"""The Unigram vocabulary in a dictionary cuts text as the library does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from julia1 import BundleError
from julia1.settings import model_path
from julia1.text import TextTokenizer
from julia1.text.library import LibrarySegmenter
from julia1.text.unigram import UnigramSegmenter

ROWS = Path(__file__).parents[1] / "data"
LETTERS = "abcé我▁ <>un"


def both(tokenizer: Tokenizer) -> tuple[LibrarySegmenter, UnigramSegmenter]:
    """The library's way and the dictionary's with the same content."""
    data = json.loads(tokenizer.to_str())
    assert UnigramSegmenter.reads(data)
    return LibrarySegmenter(tokenizer), UnigramSegmenter(data)


def assert_alike(library: LibrarySegmenter, own: UnigramSegmenter, texts: list[str]) -> None:
    assert own.ids(texts) == library.ids(texts)
    for text in texts:
        assert own.ids_and_offsets(text) == library.ids_and_offsets(text)


@pytest.fixture(scope="module")
def bundled() -> tuple[LibrarySegmenter, UnigramSegmenter]:
    return both(Tokenizer.from_file(str(model_path() / "tokenizer.json")))


@pytest.mark.parametrize("name", ["massive", "sib200", "clinc150"])
def test_real_rows_are_cut_alike(bundled: tuple[LibrarySegmenter, UnigramSegmenter], name: str) -> None:
    lines = (ROWS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert_alike(*bundled, [json.loads(line)["text"] for line in lines])


@given(text=st.text(max_size=60) | st.text(st.characters(max_codepoint=0x2FF), max_size=60))
@settings(max_examples=300)
def test_any_text_is_cut_alike(bundled: tuple[LibrarySegmenter, UnigramSegmenter], text: str) -> None:
    assert_alike(*bundled, [text])


ODD = [
    "", " ", "\n\t", "<unk>", "a<unk>☃", "☃☃☃", "<mask></s>", "e\u0301\u0323", "👩\u200d👩\u200d👧 ok", "ﬁ ½ ①",
    "我" * 300, "x" * 3000, "\ufeffa\u200bb",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_cut_alike(bundled: tuple[LibrarySegmenter, UnigramSegmenter], text: str) -> None:
    assert_alike(*bundled, [text])


@given(
    pieces=st.lists(
        st.tuples(st.text(LETTERS, min_size=1, max_size=5), st.sampled_from([-1.0, -2.0, -2.5, -7.25, 0.0])),
        max_size=20,
        unique_by=lambda one: one[0],
    ),
    texts=st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=6),
    splits=st.booleans(),
)
@settings(max_examples=200)
def test_any_vocabulary_cuts_alike(pieces: list[tuple[str, float]], texts: list[str], splits: bool) -> None:
    tokenizer = Tokenizer(
        models.Unigram([("<unk>", 0.0), *(one for one in pieces if one[0] != "<unk>")], 0, byte_fallback=False)
    )
    if splits:
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    assert_alike(*both(tokenizer), texts)


def test_names_and_numbers_are_the_library_s(bundled: tuple[LibrarySegmenter, UnigramSegmenter]) -> None:
    library, own = bundled
    assert own.size == library.size
    assert own.vocabulary() == library.vocabulary()
    for number in (-1, 0, 3, 4, 500, library.size - 1, library.size):
        assert own.piece(number) == (library.piece(number) if number >= 0 else None)
    for piece in ("<mask>", "▁", "▁the", "not a piece"):
        assert own.id_of(piece) == library.id_of(piece)


def test_special_tokens_beside_the_vocabulary_have_their_ids() -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0, byte_fallback=False))
    tokenizer.add_special_tokens([AddedToken("<mask>", special=True), AddedToken("<unk>", special=True)])
    library, own = both(tokenizer)
    assert own.size == library.size == 3
    assert own.id_of("<mask>") == library.id_of("<mask>") == 2
    assert own.piece(2) == library.piece(2) == "<mask>"
    assert_alike(library, own, ["a<mask>a"])


@pytest.mark.parametrize(
    "change",
    [
        {"byte_fallback": True},
        {"unk_id": None},
        {"alpha": 0.1},
        {"type": "BPE"},
        {"added_tokens": [{"id": 9, "content": "word", "special": False}]},
    ],
)
def test_what_only_the_library_does_is_left_to_it(tokenizer_file: Path, change: dict[str, Any]) -> None:
    data = json.loads(tokenizer_file.read_text(encoding="utf-8"))
    assert UnigramSegmenter.reads(data)
    (data if "added_tokens" in change else data["model"]).update(change)
    assert not UnigramSegmenter.reads(data)


@pytest.mark.parametrize("vocabulary", [[["<unk>"]], [["<unk>", "x"]], [["<unk>", 0, 1]], ["ab", 3]])
def test_a_broken_vocabulary_is_named(tokenizer_file: Path, tmp_path: Path, vocabulary: list[Any]) -> None:
    data = json.loads(tokenizer_file.read_text(encoding="utf-8"))
    data["model"].update(vocab=vocabulary, unk_id=0)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))
    with pytest.raises(BundleError, match="not a readable tokenizer file"):
        TextTokenizer.from_file(path)
