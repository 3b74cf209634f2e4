"""Trimming a Unigram vocabulary."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from julia1 import InputError
from julia1.text import TextTokenizer
from julia1.text.library import LibrarySegmenter
from julia1.text.vocabulary import SPECIAL, choose_pieces, count_pieces, trim_tokenizer

CORPUS = {
    "en": [
        "where is the order",
        "where is the refund and the card",
        "the the the music",
        "help a writer pay the price",
        "what city is the hotel in",
        "very late flight to the sport team",
        "an angry complaint about billing",
    ],
    "de": ["wo ist mein paket", "das geld bitte"],
    "zh": ["我想你", "他是我"],
}
SIZE = 60


@pytest.fixture(scope="module")
def source(tokenizer_file: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tokenizer_file))


@pytest.fixture(scope="module")
def counts(source: Tokenizer) -> dict[str, Counter[int]]:
    return count_pieces(source, CORPUS)


@pytest.fixture(scope="module")
def keep(source: Tokenizer, counts: dict[str, Counter[int]]) -> list[int]:
    return choose_pieces(source, counts, SIZE)


@pytest.fixture(scope="module")
def trimmed(tokenizer_file: Path, keep: list[int], tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    target = tmp_path_factory.mktemp("trimmed") / "tokenizer.json"
    trim_tokenizer(tokenizer_file, keep, target)
    return Tokenizer.from_file(str(target))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    tokens: list[str] = tokenizer.encode(text, add_special_tokens=False).tokens
    return tokens


def test_pieces_are_counted_by_language(source: Tokenizer, counts: dict[str, Counter[int]]) -> None:
    assert set(counts) == set(CORPUS)
    assert counts["en"][source.token_to_id("▁the")] == 9
    assert counts["de"][source.token_to_id("▁paket")] == 1
    assert sum(counts["zh"].values()) == sum(len(pieces(source, text)) for text in CORPUS["zh"])


@pytest.mark.parametrize("size", [55, 60, 64])
def test_the_size_is_exact_and_ids_ascend(source: Tokenizer, counts: dict[str, Counter[int]], size: int) -> None:
    chosen = choose_pieces(source, counts, size)
    assert len(chosen) == size
    assert chosen == sorted(set(chosen))


def test_special_tokens_and_every_character_seen_are_kept(source: Tokenizer, keep: list[int]) -> None:
    kept = {source.id_to_token(i) for i in keep}
    assert set(SPECIAL) <= kept
    characters = {c for rows in CORPUS.values() for text in rows for c in text if c != " "}
    assert characters <= kept


def test_favoured_languages_keep_their_most_frequent_pieces(source: Tokenizer, counts: dict[str, Counter[int]]) -> None:
    chosen = choose_pieces(source, counts, SIZE, {"en": 8, "xx": 5})
    assert {i for i, _ in counts["en"].most_common(8)} <= set(chosen)


def test_languages_take_turns_for_the_rest(source: Tokenizer) -> None:
    rare = source.token_to_id("▁hotel")
    counts = {
        "en": Counter({source.token_to_id(f"▁{word}"): 100 - i for i, word in enumerate(("the", "order", "card"))}),
        "de": Counter({rare: 1}),
    }
    fixed = len(choose_pieces(source, {k: Counter() for k in counts}, len(SPECIAL) + 1))
    characters = {c for word in ("the", "order", "card", "hotel") for c in word}
    assert rare in choose_pieces(source, counts, fixed + len(characters) + 2)


def test_a_corpus_too_small_for_the_size_is_refused(source: Tokenizer, counts: dict[str, Counter[int]]) -> None:
    with pytest.raises(InputError, match=r"only .* distinct pieces, 10,000 were asked for: lower the size"):
        choose_pieces(source, counts, 10_000)


def test_a_size_too_small_for_the_characters_is_refused(source: Tokenizer, counts: dict[str, Counter[int]]) -> None:
    with pytest.raises(InputError, match="raise the size of 20"):
        choose_pieces(source, counts, 20)


def test_ids_are_positions_in_what_was_kept(source: Tokenizer, trimmed: Tokenizer, keep: list[int]) -> None:
    assert trimmed.get_vocab_size() == SIZE
    assert [trimmed.id_to_token(i) for i in range(SIZE)] == [source.id_to_token(i) for i in keep]


@given(
    st.lists(st.sampled_from([word for rows in CORPUS.values() for text in rows for word in text.split()]), max_size=8)
)
def test_text_whose_pieces_are_kept_reads_the_same(
    source: Tokenizer, trimmed: Tokenizer, keep: list[int], words: list[str]
) -> None:
    text = " ".join(words)
    assume(set(source.encode(text, add_special_tokens=False).ids) <= set(keep))
    assert pieces(trimmed, text) == pieces(source, text)


def test_text_whose_pieces_went_reads_in_shorter_ones(source: Tokenizer, trimmed: Tokenizer) -> None:
    assert "▁shipping" in pieces(source, "shipping")
    found = pieces(trimmed, "shipping")
    assert len(found) > 1
    assert "".join(found) == "▁shipping"


def test_the_trimmed_file_serves_the_encoding(trimmed: Tokenizer) -> None:
    wrapped = TextTokenizer(LibrarySegmenter(trimmed))
    assert [trimmed.id_to_token(i) for i in (wrapped.cls, wrapped.pad, wrapped.sep, wrapped.mask)] == [
        "<s>",
        "<pad>",
        "</s>",
        "<mask>",
    ]
    assert trimmed.encode("the").tokens == ["<s>", "▁the", "</s>"]
    assert trimmed.encode("☃", add_special_tokens=False).tokens[-1] in ("<unk>", "☃")
    assert {wrapped.mask, wrapped.sep}.isdisjoint(wrapped.ids(["<mask></s>"])[0])


def test_only_unigram_tokenizers_are_trimmed(brackets_tokenizer_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only Unigram tokenizers can be trimmed, this is 'WordPiece'"):
        trim_tokenizer(brackets_tokenizer_file, [0, 1, 2, 3, 4], tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_the_source_is_not_changed(tokenizer_file: Path, keep: list[int], tmp_path: Path) -> None:
    before = tokenizer_file.read_bytes()
    trim_tokenizer(tokenizer_file, keep, tmp_path / "out.json")
    assert tokenizer_file.read_bytes() == before
    assert len(json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["model"]["vocab"]) == len(keep)
