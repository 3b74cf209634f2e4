"""Rows are tokenized once for trainings that read them alike."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("datasketch")

from julia1.bundle import Bundle  # noqa: E402
from julia1.train import prepared as module  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.guarantee import halves  # noqa: E402
from julia1.train.parts import Parts  # noqa: E402
from julia1.train.prepared import KEPT, READING, PreparedRows  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402
from julia1.train.start import Start, start_from_bundle  # noqa: E402

SETTINGS = FineTuning(max_tokens=12)


@pytest.fixture
def start(tiny_bundle: Path) -> Start:
    return start_from_bundle(Bundle.open(tiny_bundle))


def parts_of(folder: Path, rows: list[dict[str, Any]]) -> Parts:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = read_rows([folder / "rows.jsonl"]).rows
    return Parts(read[:-4], read[-4:-2], read[-2:])


ROWS = [
    {"text": "please help " * (1 + 4 * (i % 2)), "answers": {"mood": i % 3, "late": i % 2 == 0}, "lang": "en"}
    for i in range(20)
]
PAIRS = [{"text": "a city", "text_b": "a team " * (1 + 9 * (i % 2)), "match": i % 4 < 2} for i in range(20)]
RANKS = [{"text": "a city", "candidates": ["food", "calm " * (1 + 20 * (i % 2))], "best": i % 2} for i in range(20)]
SPANS = [
    {"text": "pay city " * (1 + 9 * (i % 2)), "spans": [{"start": 0, "end": 3, "label": "what"}]} for i in range(20)
]


@pytest.mark.parametrize("rows", [ROWS, PAIRS, RANKS, SPANS])
def test_only_the_named_hyper_parameters_are_read_and_long_rows_counted(
    tmp_path: Path, start: Start, rows: list[dict[str, Any]]
) -> None:
    few: Any = SimpleNamespace(**{name: value for name, value in asdict(SETTINGS).items() if name in READING})
    found = PreparedRows(parts_of(tmp_path, rows), start).of(few)
    assert found.number == 20
    assert found.cut == 10


def test_items_are_shared_by_settings_that_read_alike(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = module.make_items
    monkeypatch.setattr(module, "make_items", lambda *given: calls.append(given) or real(*given))
    rows = PreparedRows(parts_of(tmp_path, ROWS), start)
    first = rows.of(SETTINGS)
    assert rows.of(replace(SETTINGS, learning_rate=1.0, epochs=3, seed=7, dropout=0.5)) is first
    assert len(calls) == 4
    assert rows.of(replace(SETTINGS, windows=4, overlap=2)).cut == 0
    assert len(calls) == 8
    for tokens in range(20, 20 + KEPT):
        rows.of(replace(SETTINGS, max_tokens=tokens))
    assert rows.of(SETTINGS) is not first, "the ways of reading used longest ago are forgotten"


def test_rows_held_back_by_another_seed_are_other_items(tmp_path: Path, start: Start) -> None:
    rows = [{"text": f"please help {i}", "label": "ab"[i % 2]} for i in range(60)]
    read = parts_of(tmp_path, rows)
    parts = Parts(read.train[:20], read.train[20:], [])
    prepared = PreparedRows(parts, start)
    for seed in (1, 2, 3):
        settings = replace(SETTINGS, max_error=0.3, seed=seed)
        kept, held = halves(parts.validation, settings)
        found = prepared.of(settings)
        assert (len(found.validation), len(found.held)) == (len(kept), len(held))
        tokens = [start.tokenizer.ids([row.text])[0] for row in held]
        assert [item.ids[1:-1] for item in found.held] == [ids[: SETTINGS.max_tokens - 2] for ids in tokens]
