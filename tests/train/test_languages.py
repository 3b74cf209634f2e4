"""Heads of their own for each language, beside shared ones that answer the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from tuning_samples import TOY  # noqa: E402

from julia1 import ChoiceAnswer, InputError, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.model.languages import LanguageGate  # noqa: E402
from julia1.model.weights import load_fixed  # noqa: E402
from julia1.text import TextTokenizer  # noqa: E402
from julia1.text.states import framed  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.fit import fit, tune  # noqa: E402
from julia1.train.items import make_items  # noqa: E402
from julia1.train.languages import fill_gate, languages_of  # noqa: E402
from julia1.train.package import Fitted  # noqa: E402
from julia1.train.parts import Parts, make_parts  # noqa: E402
from julia1.train.start import start_from_bundle  # noqa: E402

SETTINGS = replace(TOY, language_heads=True)
WORDS = {"aa": ("order", "late", "hotel", "city"), "bb": ("team", "good", "great", "please")}
ELSEWHERE = ("today", "want")


def bilingual_rows(number: int = 360, seed: int = 1) -> list[dict[str, Any]]:
    """What "food" means depends on the language."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        language = ("aa", "bb")[i % 2]
        food = bool(random.integers(2))
        words = [str(word) for word in random.choice(WORDS[language], 4)]
        words.insert(int(random.integers(5)), "food" if food else "music")
        label = "yes" if food == (language == "aa") else "no"
        rows.append({"text": " ".join(words), "label": label, "lang": language})
    return rows


def parts_of(rows: list[dict[str, Any]], folder: Path) -> Parts:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return make_parts(read_rows([folder / "rows.jsonl"]), None, None, 1)


@pytest.fixture(scope="module")
def fitted(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("languages")
    parts = parts_of(bilingual_rows(), folder)
    return fit(parts, start_from_bundle(Bundle.open(tiny_bundle)), folder / "run", SETTINGS, name="two", version="1")


def test_a_bundle_answers_each_language_by_its_own_head(fitted: Fitted) -> None:
    assert fitted.parity.largest < 1e-4
    assert fitted.test["label"]["accuracy"] > 0.9
    answers = load(fitted.bundle.folder).decide_many(["order late food city hotel", "team good food great please"])
    found = []
    for answer in answers:
        assert isinstance(answer["label"], ChoiceAnswer)
        found.append(answer["label"].choice)
    assert found == ["yes", "no"]
    assert fitted.bundle.manifest.provenance["languages_with_heads"] == ["aa", "bb"]


def test_a_text_in_another_language_is_answered_by_the_shared_head(fitted: Fitted) -> None:
    """Words that no training row has leave the gate shut, and then the language heads count for nothing."""
    model = load_fixed(fitted.bundle.folder / "weights.safetensors")
    assert model.gate is not None
    texts = ("order late food city hotel", "team good food great please", "want today want today want")
    tokenizer = TextTokenizer.from_file(fitted.bundle.path(fitted.bundle.manifest.tokenizer))
    ids = torch.tensor([framed(tokenizer, own, 32)[0] for own in tokenizer.ids(list(texts))])
    gate = model.gate(ids, torch.ones_like(ids))
    assert gate.tolist() == [[1, 0], [0, 1], [0, 0]]
    pooled = torch.randn(1, model.heads[0].languages.hidden[0].in_features)  # type: ignore[union-attr,index]
    assert not model.heads[0].languages(pooled, gate[2:]).any()  # type: ignore[operator,union-attr]


def test_padding_and_empty_texts_do_not_move_the_gate() -> None:
    gate = LanguageGate(6, 2)
    with torch.no_grad():
        gate.table[2:, :] = torch.tensor([[-1.0, -3.0, 1.0], [-3.0, -1.0, 1.0], [-2.0, -1.5, 1.0], [-9.0, -9.0, 1.0]])
        gate.floor.fill_(-2.5)
    ids = torch.tensor([[0, 2, 2, 1, 5, 5], [0, 3, 3, 3, 3, 1], [0, 1, 5, 5, 5, 5]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
    assert gate(ids, mask).tolist() == [[1, 0], [0, 1], [0, 0]]


def test_one_language_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    rows = [{**row, "lang": "aa"} for row in bilingual_rows()]
    parts = parts_of(rows, tmp_path)
    with pytest.raises(InputError, match=r"two languages .* aa \d+"):
        fit(parts, start_from_bundle(Bundle.open(tiny_bundle)), tmp_path / "run", SETTINGS, name="one", version="1")


def test_rows_that_stand_several_times_do_not_shut_the_gate(tiny_bundle: Path, tmp_path: Path) -> None:
    """They would otherwise be looked at with counts that hold them."""
    start = start_from_bundle(Bundle.open(tiny_bundle))
    rows = bilingual_rows(400)
    repeated = [row for row in rows[:200] for _ in range(3)]
    new = [parts_of(some, tmp_path).train for some in (repeated, rows[200:])]
    spec = [HeadSpec("label", "choice", ("no", "yes"))]
    trained, other = (make_items(some, spec, start.tokenizer, SETTINGS) for some in new)
    tokenizer = start.tokenizer
    gate = LanguageGate(int(start.config["vocab_size"]), 2)
    special = {tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad}
    fill_gate(gate, languages_of(new[0]), trained, special)
    ids = [torch.tensor([item.ids]) for item in other]
    known = [bool(gate(one, torch.ones_like(one)).any()) for one in ids]
    assert np.mean(known) > 0.85


def test_a_run_of_other_languages_is_not_taken_up(tiny_bundle: Path, tmp_path: Path) -> None:
    start = start_from_bundle(Bundle.open(tiny_bundle))
    settings = replace(SETTINGS, epochs=1)
    parts = parts_of(bilingual_rows(), tmp_path)
    tune(parts, start, tmp_path / "run", settings)
    swapped = {"aa": "bb", "bb": "cc"}
    other = replace(parts, train=[replace(row, language=swapped[row.language]) for row in parts.train])
    with pytest.raises(InputError, match="holds a run with other rows"):
        tune(other, start, tmp_path / "run", settings)


def test_heads_that_read_no_whole_text_have_no_languages(tiny_bundle: Path, tmp_path: Path) -> None:
    rows = [
        {"text": row["text"], "lang": row["lang"], "spans": [{"start": 0, "end": 4, "label": "x"}]}
        for row in bilingual_rows()
    ]
    parts = parts_of(rows, tmp_path)
    with pytest.raises(InputError, match="heads that answer about a whole text: these rows have none"):
        fit(parts, start_from_bundle(Bundle.open(tiny_bundle)), tmp_path / "run", SETTINGS, name="no", version="1")
