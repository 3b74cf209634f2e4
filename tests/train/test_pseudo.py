"""Rows that nobody labelled help where labels are few, and nothing that is evaluated on is among them."""

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

from julia1 import InputError  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.train.data.rows import DataRow, read_rows  # noqa: E402
from julia1.train.parts import Parts, make_parts  # noqa: E402
from julia1.train.pseudo import PseudoLabels, _quotas, _sure, self_train  # noqa: E402
from julia1.train.start import Start, start_from_bundle  # noqa: E402

TOPICS = ("food", "music")
WORDS = ("order", "late", "team", "good", "great", "please", "today", "want")
SETTINGS = replace(TOY, epochs=8, patience=8, batch_rows=8, max_tokens=24)


def rows(number: int, seed: int, labelled: bool = True) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    found = []
    for i in range(number):
        topic = TOPICS[i % 2]
        text = " ".join([*map(str, random.choice(WORDS, 4)), topic, str(random.integers(100_000))])
        found.append({"text": text, **({"label": topic} if labelled else {})})
    return found


def read(folder: Path, name: str, data: list[dict[str, Any]], **how: Any) -> list[DataRow]:
    (folder / name).write_text("\n".join(map(json.dumps, data)))
    return read_rows([folder / name], **how).rows


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    read(tmp_path, "rows.jsonl", rows(80, 1))
    return make_parts(read_rows([tmp_path / "rows.jsonl"]), None, None, 1)


@pytest.fixture
def start(tiny_bundle: Path) -> Start:
    return start_from_bundle(Bundle.open(tiny_bundle))


def test_rounds_add_rows_and_leave_out_what_is_evaluated_on(parts: Parts, start: Start, tmp_path: Path) -> None:
    hidden = [{"text": row.text} for row in (*parts.validation, *parts.test)]
    unlabelled = read(tmp_path, "more.jsonl", [*rows(60, 2, labelled=False), *hidden], answered=False)
    assert not any(row.answers for row in unlabelled)
    how = PseudoLabels(threshold=0.6, quota=20, rounds=2)
    fitted, rounds = self_train(parts, unlabelled, start, tmp_path / "out", SETTINGS, how, name="more", version="1")
    assert [one.number for one in rounds] == [0, 1, 2]
    assert rounds[0].added == 0
    assert all(0 < one.added <= 40 for one in rounds[1:])
    assert fitted.test["label"]["accuracy"] > 0.9
    used = fitted.bundle.manifest.provenance["rows"]
    assert used["train"] - used.get("labelled by the model", 0) == len(parts.train)
    again, same = self_train(parts, unlabelled, start, tmp_path / "out", SETTINGS, how, name="more", version="1")
    assert same == rounds
    assert again.test == fitted.test


def test_the_surest_of_each_label_up_to_its_quota() -> None:
    head = HeadSpec("label", "choice", ("a", "b"))
    shares = np.array([[0.99, 0.01], [0.97, 0.03], [0.96, 0.04], [0.2, 0.8], [0.02, 0.98]])
    how = PseudoLabels(threshold=0.95)
    assert _sure(head, shares, how, {"a": 2, "b": 5}) == [(0, "a"), (1, "a"), (4, "b")]
    yes_no = HeadSpec("late", "yesno", ("no", "yes"))
    assert _sure(yes_no, shares, how, {"no": 1, "yes": 1}) == [(0, False), (4, True)]
    row = DataRow("f:1", "x", {"label": "a"}, {}, "", "", False, {})
    assert _quotas(head, [row, row, replace(row, answers={})], how) == {"a": 2}
    assert _quotas(head, [], replace(how, quota=7)) == {"a": 7, "b": 7}


@pytest.mark.parametrize("change", [{"threshold": 0.3}, {"threshold": 1.0}, {"rounds": 0}, {"quota": 0}])
def test_numbers_that_make_no_sense_are_refused(
    parts: Parts, start: Start, tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="pseudo-labels with threshold"):
        self_train(parts, [], start, tmp_path / "out", SETTINGS, PseudoLabels(**change), name="a", version="1")


def test_the_command_tells_its_rounds(tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, "rows.jsonl", rows(60, 1))
    read(tmp_path, "more.jsonl", rows(30, 2, labelled=False), answered=False)
    command = ["train", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "out"), "--base", str(tiny_bundle)]
    flags = ["--epochs", "2", "--max-tokens", "24", "--unlabelled", str(tmp_path / "more.jsonl")]
    assert main([*command, *flags, "--pseudo-threshold", "0.5"]) == 0
    assert "round 0: 0 rows labelled by the model, validation" in capsys.readouterr().out
    assert main([*command, *flags, "--search", "epochs=2,3"]) == 2
    assert "--search has no place beside --unlabelled" in capsys.readouterr().err
