"""Trim a Unigram vocabulary to the pieces that a set of languages needs.

A multilingual vocabulary is most of a small model's size and of its memory: 250,000 pieces cost 280 MB in the tokenizer
alone. Every piece of a single character is kept, so text outside the counted corpus still reads, in shorter pieces.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from julia1.errors import InputError

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_SPACE = "▁"


def count_pieces(tokenizer: Tokenizer, texts: Mapping[str, Iterable[str]]) -> dict[str, Counter[int]]:
    """Count piece ids in the texts of each language."""
    counts: dict[str, Counter[int]] = {}
    for language, rows in texts.items():
        counter: Counter[int] = Counter()
        for encoding in tokenizer.encode_batch_fast(list(rows), add_special_tokens=False):
            counter.update(encoding.ids)
        counts[language] = counter
    return counts


def choose_pieces(
    tokenizer: Tokenizer, counts: Mapping[str, Counter[int]], size: int, favoured: Mapping[str, int] | None = None
) -> list[int]:
    """Choose ``size`` piece ids, ascending.

    Kept, in this order: special tokens; single characters seen in the corpus; the most frequent pieces of each favoured
    language (its own number); then the next most frequent piece of every language in turn until the size is reached.

    Raises:
        InputError: the corpus has fewer distinct pieces than asked for.
    """
    specials = [tokenizer.token_to_id(name) for name in SPECIAL]
    kept: dict[int, None] = dict.fromkeys(i for i in specials if i is not None)
    seen = set().union(*counts.values()) if counts else set()
    characters = {c for i in seen for c in str(tokenizer.id_to_token(i)).strip(_SPACE)}
    for character in sorted(characters | {_SPACE}):
        for piece in (character, _SPACE + character):
            piece_id = tokenizer.token_to_id(piece)
            if piece_id is not None and (piece_id in seen or piece == character):
                kept[piece_id] = None
    for language, number in (favoured or {}).items():
        kept.update(dict.fromkeys(i for i, _ in counts.get(language, Counter()).most_common(number)))
    queues = [iter(counter.most_common()) for counter in counts.values()]
    while len(kept) < size and queues:
        for queue in list(queues):
            step = next(queue, None)
            if step is None:
                queues.remove(queue)
            elif len(kept) < size:
                kept[step[0]] = None
    if len(kept) < size:
        raise InputError(f"the corpus has only {len(kept):,} distinct pieces, {size:,} were asked for: lower the size")
    if len(kept) > size:
        raise InputError(
            f"characters and favoured languages alone take {len(kept):,} pieces: raise the size of {size:,}"
        )
    return sorted(kept)


def trim_tokenizer(source: Path, keep: list[int], target: Path) -> None:
    """Write ``target`` as ``source`` with only the pieces in ``keep``; new id = position in ``keep``."""
    data: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    if data.get("model", {}).get("type") != "Unigram":
        raise InputError(
            f"{source}: only Unigram tokenizers can be trimmed, this is {data.get('model', {}).get('type')!r}"
        )
    vocabulary = data["model"]["vocab"]
    new_ids = {old: new for new, old in enumerate(keep)}
    data["model"]["vocab"] = [vocabulary[old] for old in keep]
    data["model"]["unk_id"] = new_ids[data["model"]["unk_id"]]
    for token in data["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    special = (data.get("post_processor") or {}).get("special_tokens", {})
    for entry in special.values():
        entry["ids"] = [new_ids[i] for i in entry["ids"]]
    target.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
