"""The report on labelled rows, and the command that prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasketch")
pytest.importorskip("sklearn")

from julia1 import InputError
from julia1.cli.app import main
from julia1.train.data.checks import check_data, leaks, require_trainable
from julia1.train.data.report import report_html, report_lines
from julia1.train.data.rows import DataSet, read_rows

DATA = Path(__file__).resolve().parents[2] / "data" / "clinc150.jsonl"
ALARM = ["wake me at {}", "set an alarm for {}", "alarm at {} please", "get me up at {}"]
MUSIC = ["play song {}", "put on track {}", "i want to hear number {}", "music: title {}"]


def data_of(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> DataSet:
    (folder / name).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return read_rows([folder / name])


def separable(number: int = 60) -> list[dict[str, Any]]:
    rows = [{"text": ALARM[i % 4].format(i), "label": "alarm"} for i in range(number // 2)]
    return rows + [{"text": MUSIC[i % 4].format(i), "label": "music"} for i in range(number // 2)]


def test_a_wrong_label_among_clear_ones_is_found(tmp_path: Path) -> None:
    rows = separable(80)
    rows[7]["label"] = "music"
    report = check_data(data_of(tmp_path, rows))
    assert [found.place.rpartition(":")[2] for found in report.suspicious] == ["8"]
    assert report.suspicious[0].suggestion == "alarm"
    assert report.problems == []


def test_clean_rows_raise_no_suspicion(tmp_path: Path) -> None:
    report = check_data(data_of(tmp_path, separable(80)))
    assert (report.suspicious, report.conflicts, report.problems) == ([], [], [])
    assert report.balance[0].counts == {"alarm": 40, "music": 40}


def test_the_same_text_with_two_answers_is_a_conflict(tmp_path: Path) -> None:
    rows = [*separable(20), {"text": "Wake me at 0!", "label": "music"}]
    report = check_data(data_of(tmp_path, rows), suspicious=False)
    (conflict,) = report.conflicts
    assert {answer: len(places) for answer, places in conflict.answers.items()} == {"alarm": 1, "music": 1}
    assert report.exact_duplicates == 1


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"text": f"a {i}", "label": "x"} for i in range(5)], "'label': every row has 'x'"),
        ([{"text": f"a {i}", "score": 2} for i in range(5)], "'score': every row has the answer 2"),
        ([{"text": f"a {i}", "answers": {"late": True}} for i in range(5)], "'late': every row has the answer True"),
        ([*separable(20), {"text": "rain?", "label": "weather"}], ":21: the label 'weather' of 'label' has one row"),
        ([{"text": f"a {i}", "labels": []} for i in range(5)], "'labels': every row has 'no label'"),
    ],
)
def test_what_cannot_be_learned_is_a_problem(tmp_path: Path, rows: list[dict[str, Any]], problem: str) -> None:
    data = data_of(tmp_path, rows)
    assert any(problem in line for line in check_data(data, suspicious=False).problems)
    with pytest.raises(InputError, match=problem.replace("?", r"\?")):
        require_trainable(data)


def test_leaks_and_unknown_labels_of_a_test_set_are_named(tmp_path: Path) -> None:
    train = data_of(tmp_path, separable(20))
    test = data_of(
        tmp_path,
        [
            {"text": "WAKE me at 0", "label": "alarm"},
            {"text": "will it rain", "label": "weather"},
            {"text": "is it cold", "label": "weather"},
        ],
        "test.jsonl",
    )
    report = check_data(train, {"test": test}, suspicious=False)
    assert report.leaks == [(f"{tmp_path / 'test.jsonl'}:1", f"{tmp_path / 'rows.jsonl'}:1")]
    assert report.problems == [f"{tmp_path / 'test.jsonl'}:2: the label 'weather' stands in no training row"]


def test_lengths_are_counted_against_the_limit(tmp_path: Path) -> None:
    report = check_data(
        data_of(tmp_path, separable(40)),
        count_tokens=lambda texts: [len(t.split()) for t in texts],
        limit=4,
        suspicious=False,
    )
    assert report.lengths["100"] == 6
    assert report.over_limit == sum(len(row["text"].split()) > 4 for row in separable(40))
    assert any("longer than the 4 tokens" in line for line in report.warnings)


def test_a_page_shows_text_as_text(tmp_path: Path) -> None:
    rows = [{"text": f"<script>alert({i})</script>", "label": "<b>x</b>" if i % 2 else "y"} for i in range(20)]
    page = report_html(check_data(data_of(tmp_path, rows), suspicious=False), "report <1>")
    assert "<script>" not in page
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page


def test_long_lists_are_cut_on_the_terminal(tmp_path: Path) -> None:
    rows = [{"text": f"text {i} {'abcdefgh'[i % 8] * 9}", "label": f"label {i // 2}"} for i in range(100)]
    lines = report_lines(check_data(data_of(tmp_path, rows), suspicious=False))
    assert any("and 30 more with 2 to 2 rows each" in line for line in lines)


def test_a_test_set_with_answers_of_another_type_is_named(tmp_path: Path) -> None:
    train = data_of(tmp_path, [{"text": f"a {i}", "label": str(i % 2)} for i in range(10)])
    test = data_of(tmp_path, [{"text": "b", "label": 1}], "test.jsonl")
    (problem,) = check_data(train, {"test": test}, suspicious=False).problems
    assert problem.endswith(":1: the test rows answer 'label' with values of another type than training")


def test_a_level_that_training_never_has_is_named(tmp_path: Path) -> None:
    train = data_of(tmp_path, [{"text": f"a {i}", "score": [1, 2, 4][i % 3]} for i in range(12)])
    test = data_of(tmp_path, [{"text": "b", "score": 2}, {"text": "c", "score": 3}], "test.jsonl")
    (problem,) = check_data(train, {"test": test}, suspicious=False).problems
    assert problem.endswith(":2: the level 3 of 'score' stands in no training row")


def test_a_leak_by_group_is_found(tmp_path: Path) -> None:
    train = data_of(tmp_path, [{"text": "will it rain", "label": "weather", "group": 7}])
    test = data_of(tmp_path, [{"text": "wird es regnen", "label": "weather", "group": 7}], "test.jsonl")
    assert len(leaks(train.rows, test.rows)) == 1


def test_texts_cannot_move_the_cursor(tmp_path: Path) -> None:
    rows = [{"text": "same \x1b[2J text", "label": label} for label in ("x", "y\x1b[31m")] * 3
    lines = report_lines(check_data(data_of(tmp_path, rows), suspicious=False))
    assert not any("\x1b" in line or "\n" in line for line in lines)


class TestCommand:
    def test_split_never_writes_over_what_it_reads(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data_of(tmp_path, separable(60), "train.jsonl")
        before = (tmp_path / "train.jsonl").read_bytes()
        assert main(["data", "split", str(tmp_path / "train.jsonl"), "-o", str(tmp_path), "--force"]) == 2
        assert "would overwrite what they are made of" in capsys.readouterr().err
        assert (tmp_path / "train.jsonl").read_bytes() == before

    def test_split_again_leaves_no_old_part(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data_of(tmp_path, separable(60))
        arguments = ["data", "split", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "parts")]
        assert main(arguments) == 0
        assert main(arguments) == 2
        assert "is there already" in capsys.readouterr().err
        assert main([*arguments, "--shares", "9:0:1", "--force"]) == 0
        assert not (tmp_path / "parts" / "val.jsonl").exists()

    def test_check_prints_and_writes_a_page(
        self, tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data_of(tmp_path, separable(40))
        page = tmp_path / "report.html"
        assert (
            main(["data", "check", str(tmp_path / "rows.jsonl"), "--bundle", str(tiny_bundle), "--html", str(page)])
            == 0
        )
        assert "nothing stands in the way of training" in capsys.readouterr().out
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")

    def test_check_exits_3_when_something_must_be_mended(
        self, tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data_of(tmp_path, [*separable(20), {"text": "rain", "label": "weather"}])
        assert main(["data", "check", str(tmp_path / "rows.jsonl"), "--bundle", str(tiny_bundle), "--json"]) == 3
        out, err = capsys.readouterr()
        assert "has one row only" in json.loads(out)["problems"][0]
        assert "1 problem to mend" in err

    def test_split_writes_three_files_without_a_shared_text(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data_of(tmp_path, separable(200))
        assert main(["data", "split", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "parts"), "--json"]) == 0
        sizes = json.loads(capsys.readouterr().out)
        parts = {name: read_rows([tmp_path / "parts" / f"{name}.jsonl"]).rows for name in ("train", "val", "test")}
        assert {name: len(rows) for name, rows in parts.items()} == {name: sizes[name] for name in parts}
        assert sum(sizes[name] for name in parts) == 200
        texts = [row.text for rows in parts.values() for row in rows]
        assert len(set(texts)) == len(texts) == 200

    def test_clean_writes_clean_rows(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = [
            {"text": "<p>wake me</p>", "label": "alarm", "id": 1},
            {"text": "wake me", "label": "alarm", "id": 2},
            {"text": "wake me", "label": "music", "id": 3},
            {"text": "<br>", "label": "alarm", "id": 4},
        ]
        data_of(tmp_path, rows)
        out = tmp_path / "clean.jsonl"
        assert main(["data", "clean", str(tmp_path / "rows.jsonl"), "-o", str(out)]) == 0
        kept = [json.loads(line) for line in out.read_text().split("\n") if line]
        assert [(row["text"], row["id"]) for row in kept] == [("wake me", 1), ("wake me", 3)]
        assert "1 texts changed" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["check", "none.jsonl"], "there is no data file none.jsonl"),
            (["split", "none.jsonl", "-o", "x", "--shares", "8:1"], "not three numbers such as 8:1:1"),
            (["split", "none.jsonl", "-o", "x", "--shares", "0:1:1"], "train needs one"),
            (["clean", "none.jsonl", "-o", "x.txt"], "name the file .jsonl"),
            (["chekc", "none.jsonl"], "invalid choice"),
        ],
    )
    def test_bad_use_is_one_line(
        self,
        arguments: list[str],
        message: str,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        tiny_bundle: Path,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("JULIA1_MODEL", str(tiny_bundle))
        assert main(["data", *arguments]) == 2
        assert message in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


def test_many_different_scores_are_counted_in_tenths_of_their_range(tmp_path: Path) -> None:
    rows = [{"text": f"a {i} {'abcdefgh'[i % 8]}", "score": i / 2} for i in range(101)]
    counts = check_data(data_of(tmp_path, rows), suspicious=False).balance[0].counts
    assert sum(counts.values()) == 101
    assert counts["0 to 5"] == 10
    assert counts["45 to 50"] == 11


def test_tokens_are_counted_against_what_training_reads(
    tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "check", str(tmp_path / "rows.jsonl"), "--bundle", str(tiny_bundle), "--fast", "--json"]

    def checked(rows: list[dict[str, Any]], *flags: str) -> tuple[int, int]:
        data_of(tmp_path, rows)
        assert main([*command, *flags]) == 0
        report = json.loads(capsys.readouterr().out)
        return report["limit"], report["over_limit"]

    long = [{"text": f"please {'help ' * (40 * (i % 2))}", "label": "xy"[i % 2]} for i in range(20)]
    assert checked(long) == (254, 0)
    assert checked(long, "--max-tokens", "20") == (18, 10)
    pairs = [
        {"text": "food" + " food" * 6, "text_b": "city" + " city" * (8 + i % 2), "match": i % 4 < 2} for i in range(20)
    ]
    assert checked(pairs, "--max-tokens", "19") == (17, 10), "both texts and the token between them"
    assert main([*command, "--max-tokens", "2"]) == 2
    assert "at least 3" in capsys.readouterr().err
