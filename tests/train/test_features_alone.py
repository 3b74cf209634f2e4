"""Rows of structured features without a text: trained by a file, decided from Python, the shell and JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from julia1 import ChoiceAnswer, InputError, load  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.train.data.duplicates import content_key, content_of, exact_duplicates, near_duplicates  # noqa: E402
from julia1.train.data.files import Columns  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.teaching import taught  # noqa: E402

FILE = """
rows: [rows.jsonl]
base: {base}
features: [price, zone]
settings: {{epochs: 12, patience: 6, batch_rows: 16, learning_rate: 1e-3, head_learning_rate: 1e-2, max_tokens: 8,
  threads: 1, bf16: false}}
"""
COLUMNS = Columns(features=("price", "zone"))


def rows(number: int = 160) -> list[dict[str, Any]]:
    """A third has no text, a third a blank one, a third one that says nothing, three of which are too long."""
    random = np.random.default_rng(3)
    found = []
    for i in range(number):
        price, zone = float(random.integers(1000, 9000)), "ab"[int(random.integers(2))]
        text: dict[str, Any] = [{}, {"text": " "}, {"text": "order please " * (9 if i < 9 else 1)}][i % 3]
        found.append({**text, "price": price, "zone": zone, "label": "high" if price > 5000 else "low"})
    return found


@pytest.fixture(scope="module")
def trained(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows())), encoding="utf-8")
    (folder / "train.yaml").write_text(FILE.format(base=tiny_bundle), encoding="utf-8")
    assert main(["train", str(folder / "train.yaml"), "-o", str(folder / "out")]) == 0
    return folder / "out" / "bundle"


def test_features_alone_decide(trained: Path) -> None:
    decider = load(trained, threads=1, variant="fp32")
    for price, wanted in ((1500.0, "low"), (8500.0, "high")):
        for text in ("", "  ", "order please"):
            answer = decider.decide(text, features={"price": price, "zone": "a"})["label"]
            assert isinstance(answer, ChoiceAnswer)
            assert answer.choice == wanted
    answer = decider.decide("", features={"price": None, "zone": "a"})["label"]
    assert answer.reading.tokens == 0


def test_neither_text_nor_feature_is_one_error(trained: Path) -> None:
    decider = load(trained, threads=1, variant="fp32")
    for features in (None, {}, {"price": None}):
        with pytest.raises(InputError, match="the state is empty"):
            decider.decide(" ", features=features)
    with pytest.raises(InputError, match="state 1 is empty"):
        decider.decide_many(["", ""], features=[{"price": 1.0}, {}])


def test_the_card_says_how_many_rows_were_cut(trained: Path) -> None:
    assert json.loads((trained / "bundle.json").read_text())["provenance"]["rows"]["cut"] == 3


def test_the_command_decides_without_a_text(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["decide", "--model", str(trained), "--json"]
    for text in ([], [""], ["-"]):
        assert main([*command, *text, "--feature", "price=8500"]) == 0
        assert json.loads(capsys.readouterr().out)["answers"]["label"]["choice"] == "high"
    assert main(command) == 2
    err = capsys.readouterr().err
    assert "nothing to decide on" in err and len(err.splitlines()) == 1


@pytest.fixture(autouse=True)
def nothing_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))


def test_rows_of_json_lines_need_no_text(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = [{"price": 1500}, {"text": "", "price": 8500}, {"text": None, "zone": "a"}, {"id": 4}, {"text": " "}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, data)))
    command = ["decide", "--model", str(trained), "--input", str(tmp_path / "in.jsonl"), "--keep-going"]
    assert main([*command, "--output", str(tmp_path / "out.jsonl")]) == 1
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().split("\n")[:-1]]
    assert [one["answers"]["label"]["choice"] for one in found[:2]] == ["low", "high"]
    assert "answers" in found[2]
    assert "no field 'text' or 'state'" in found[3]["error"]
    assert "is empty" in found[4]["error"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "x"}, "rows.jsonl:1: no field 'text' or 'state'"),
        ({"text": " ", "label": "x"}, "rows.jsonl:1: the text is empty, and there is no feature"),
        ({"text": "", "price": None, "zone": " ", "label": "x"}, "rows.jsonl:1: the text is empty, and there is no"),
        ({"text": None, "label": "x"}, "rows.jsonl:1: the text must be text"),
    ],
)
def test_a_row_with_neither_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + '\n{"price": 3, "zone": "a", "label": "y"}')
    with pytest.raises(InputError, match=message):
        read_rows([tmp_path / "rows.jsonl"], COLUMNS)


def test_rows_without_text_are_the_same_or_not(tmp_path: Path) -> None:
    data = [{"price": price, "zone": "a", "label": "x"} for price in (3, -3, 3.0, 33, 30, 1234567, 1234568)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, data)))
    read = read_rows([tmp_path / "rows.jsonl"], COLUMNS).rows
    assert exact_duplicates(read) == [[0, 2]]
    assert near_duplicates([content_of(row) for row in read]) == []
    assert len({content_key(content_of(row)) for row in read}) == 6


def test_clean_keeps_rows_of_features_and_drops_those_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [
        {"price": 3, "label": "x"},
        {"price": -3, "label": "x"},
        {"text": "<br>", "price": 3, "label": "x"},
        {"text": "<br>", "label": "x"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, data)))
    command = ["data", "clean", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "out.jsonl"), "--features", "price"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["emptied"], found["repeated"]) == (2, 1, 1)


def test_a_teacher_is_not_asked_about_rows_without_text(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows(6))))
    read = read_rows([tmp_path / "rows.jsonl"], COLUMNS).rows

    class Echo:
        name = "echo"

        def logits(self, rows: Any, specs: Any) -> dict[str, list[np.ndarray[Any, Any]]]:
            return {"label": [np.array([len(row.text), 0], np.float32) for row in rows]}

    from julia1.train.items import Item

    found = taught([Item([1, 2], {}) for _ in read], read, [], Echo())
    assert [bool(item.teacher) for item in found] == [bool(row.text.strip()) for row in read]
    assert found[2].teacher["label"][0] == len(read[2].text)
