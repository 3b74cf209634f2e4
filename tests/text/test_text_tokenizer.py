"""The tokenizer wrapper: special tokens by name, and never from text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from julia1 import BundleError
from julia1.text import TextTokenizer
from julia1.text.library import LibrarySegmenter

RESERVED = ["<s>", "<pad>", "</s>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[PAD]"]
TRICKS = [
    *RESERVED,
    "<mask><mask>",
    "<<mask>mask>",
    "<ma<mask>sk>",
    "</s><s>",
    " <mask> ",
    "a<mask>b",
    "word</s>",
    "[[MASK]MASK]",
    "x [SEP] [MASK] yes [SEP]",
    "＜mask＞",  # full width: the normaliser turns it into <mask>
    "[MASK] " * 20,
    "▁<mask>",
]  # fmt: skip

text_with_reserved = st.lists(
    st.sampled_from([*RESERVED, "＜mask＞"]) | st.text(st.sampled_from("ab <>[]/MASKmask我\n"), max_size=6), max_size=8
).map("".join)


def test_special_tokens_are_found_by_either_name(tokenizer_file: Path, brackets_tokenizer_file: Path) -> None:
    angles, brackets = TextTokenizer.from_file(tokenizer_file), TextTokenizer.from_file(brackets_tokenizer_file)
    raw = Tokenizer.from_file(str(tokenizer_file))
    assert [angles.cls, angles.sep, angles.mask, angles.pad] == [
        raw.token_to_id(name) for name in ("<s>", "</s>", "<mask>", "<pad>")
    ]
    assert [brackets.cls, brackets.sep, brackets.mask, brackets.pad] == [2, 3, 4, 0]
    assert angles.vocabulary_size == raw.get_vocab_size()


@pytest.mark.parametrize("text", TRICKS)
def test_reserved_text_is_read_as_characters(any_tokenizer: TextTokenizer, text: str) -> None:
    special = {any_tokenizer.cls, any_tokenizer.sep, any_tokenizer.mask, any_tokenizer.pad}
    (ids,) = any_tokenizer.ids([text])
    assert special.isdisjoint(ids)
    plain_ids = any_tokenizer.ids(["plain"] * 10 + [text])[-1]  # the way through the batch call
    assert plain_ids == ids


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_text_is_not_dropped(any_tokenizer: TextTokenizer, name: str) -> None:
    (ids,) = any_tokenizer.ids([name])
    assert len(ids) >= 2


@given(text=text_with_reserved)
def test_no_text_ever_becomes_a_special_token(any_tokenizer: TextTokenizer, text: str) -> None:
    special = {any_tokenizer.cls, any_tokenizer.sep, any_tokenizer.mask, any_tokenizer.pad}
    assert special.isdisjoint(any_tokenizer.ids([text])[0])


@given(texts=st.lists(text_with_reserved, min_size=1, max_size=20))
def test_a_text_reads_the_same_alone_and_among_others(any_tokenizer: TextTokenizer, texts: list[str]) -> None:
    assert any_tokenizer.ids(texts) == [any_tokenizer.ids([text])[0] for text in texts]


def test_settings_stored_in_the_file_neither_cut_nor_pad(tokenizer_file: Path, tmp_path: Path) -> None:
    raw = Tokenizer.from_file(str(tokenizer_file))
    raw.enable_truncation(4)
    raw.enable_padding(length=32, pad_id=1, pad_token="<pad>")
    raw.save(str(tmp_path / "tokenizer.json"))
    text = "where is the order and the package of the writer"
    stored, plain = TextTokenizer.from_file(tmp_path / "tokenizer.json"), TextTokenizer.from_file(tokenizer_file)
    assert stored.ids([text]) == plain.ids([text])


@pytest.mark.parametrize("content", ["", "{", "{}", '{"model": {}}', "not json"])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(BundleError, match="not a readable tokenizer file"):
        TextTokenizer.from_file(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"none\.json"):
        TextTokenizer.from_file(tmp_path / "none.json")


def test_a_tokenizer_without_a_mask_is_refused(tmp_path: Path) -> None:
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BundleError, match=r"no mask token \(looked for \[MASK\], <mask>\)"):
        TextTokenizer.from_file(tmp_path / "tokenizer.json")


def test_one_thread_never_wakes_the_pool(brackets_tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def __init__(self, tokenizer: Tokenizer) -> None:
            self._tokenizer = tokenizer

        def __getattr__(self, name: str) -> object:
            assert "batch" not in name, "a batch call runs in the pool"
            return getattr(self._tokenizer, name)

    texts = [f"late order {i}" for i in range(40)]
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    alone = LibrarySegmenter(Tokenizer.from_file(str(brackets_tokenizer_file)), 1)
    alone._tokenizer = Pool(alone._tokenizer)
    assert alone.ids(texts) == TextTokenizer.from_file(brackets_tokenizer_file).ids(texts)
    assert "RAYON_NUM_THREADS" not in os.environ


def test_more_threads_bound_the_pool_unless_it_has_a_size(
    brackets_tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYON_NUM_THREADS", "")
    monkeypatch.delenv("RAYON_NUM_THREADS")
    TextTokenizer.from_file(brackets_tokenizer_file, 3)
    assert os.environ["RAYON_NUM_THREADS"] == "3"
    TextTokenizer.from_file(brackets_tokenizer_file, 5)
    assert os.environ["RAYON_NUM_THREADS"] == "3", "the pool is made once"
