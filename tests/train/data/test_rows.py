"""Reading labelled rows: formats, types of answers, and one clear error for each mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from julia1 import InputError
from julia1.train.data import rows as rows_module
from julia1.train.data.files import Columns
from julia1.train.data.rows import read_rows, write_rows
from julia1.train.data.spans import LabelledSpan, Spans


def written(folder: Path, *rows: Any, name: str = "rows.jsonl") -> Path:
    path = folder / name
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_type_of_answer_is_told_by_its_value(tmp_path: Path) -> None:
    data = read_rows(
        [
            written(
                tmp_path,
                {"text": "a", "answers": {"team": "billing", "tags": [], "late": True, "stars": 4, "soft": {"x": 0.2}}},
                {"text": "b", "answers": {"team": "shipping", "tags": ["x", "y"], "late": False, "stars": 2.5}},
            )
        ]
    )
    kinds = {name: head.kind for name, head in data.heads.items()}
    assert kinds == {"team": "choice", "tags": "labels", "late": "yesno", "stars": "score", "soft": "soft"}
    assert data.heads["team"].labels == ("billing", "shipping")
    assert data.heads["tags"].labels == ("x", "y")
    assert data.rows[1].answers["stars"] == 2.5


def test_plain_fields_are_questions_of_their_own_name(tmp_path: Path) -> None:
    data = read_rows([written(tmp_path, {"state": {"order": {"total": 3}}, "label": "  big   order ", "lang": "de"})])
    assert data.rows[0].text == "order.total: 3"
    assert data.rows[0].answers == {"label": "big order"}
    assert (data.rows[0].language, data.rows[0].place) == ("de", f"{tmp_path / 'rows.jsonl'}:1")


def test_columns_of_other_names_are_taken_when_named(tmp_path: Path) -> None:
    columns = Columns(text="message", answers=("team",), features=("age", "plan"))
    rows = [{"message": "a", "team": "x", "age": 3}, {"message": "b", "team": "y", "plan": "gold", "age": float("nan")}]
    data = read_rows([written(tmp_path, *rows)], columns)
    assert [row.features for row in data.rows] == [{"age": 3.0, "plan": None}, {"age": None, "plan": "gold"}]


def test_csv_reads_quotes_line_breaks_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,labels,score\n"a, ""quoted""\nsecond line",x|y,3\nb,,\n', encoding="utf-8-sig")
    data = read_rows([path])
    assert data.rows[0].text == 'a, "quoted"\nsecond line'
    assert data.rows[0].answers == {"labels": ("x", "y"), "score": 3.0}
    assert data.rows[1].answers == {"labels": ()}
    assert [row.place for row in data.rows] == [f"{path}:2", f"{path}:4"]


def test_csv_columns_that_are_named_are_read_by_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,team,stars,tags,age,plan\na,1,4,x|y,34,7a\nb,2,3.5,x,,8\n", encoding="utf-8")
    columns = Columns(answers=("stars", "tags"), features=("age", "plan"))
    data = read_rows([path], columns)
    assert data.rows[0].answers == {"stars": 4.0, "tags": ("x", "y")}
    assert data.rows[1].answers == {"stars": 3.5, "tags": ("x",)}
    assert [row.features for row in data.rows] == [{"age": 34.0, "plan": "7a"}, {"age": None, "plan": "8"}]
    assert read_rows([path], Columns(answers=("team",))).heads["team"].kind == "score"


def test_parquet_reads_like_json_lines(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "labels": [["x"], []], "score": [1.0, None]}), path)
    assert [dict(row.answers) for row in read_rows([path]).rows] == [{"labels": ("x",), "score": 1.0}, {"labels": ()}]


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path: Path) -> None:
    assert len(read_rows([written(tmp_path, '{"text": "a\u2028b", "label": "x"}')]).rows) == 1


GOOD = {"text": "a", "label": "x"}


def span(start: Any, end: Any, label: Any = "x") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"text": "a", "label"', "rows.jsonl:2: not JSON"),
        ("[1]", "rows.jsonl:2: a row must be a JSON object"),
        ({"txet": "a", "label": "x"}, "rows.jsonl:2: no field 'text' or 'state'; did you mean 'txet'?"),
        ({"text": "a"}, "rows.jsonl:2: no answer"),
        ({"text": "a", "lable": "x"}, "rows.jsonl:2: no answer"),
        ({"text": "a", "label": None}, "rows.jsonl:2: no answer"),
        ({"text": " \n", "label": "x"}, "rows.jsonl:2: the text is empty"),
        ({"text": 3, "label": "x"}, "rows.jsonl:2: the text must be text"),
        ({"text": "a\x00", "label": "x"}, "rows.jsonl:2: the text holds a NUL"),
        ({"text": "a", "label": " "}, "rows.jsonl:2: 'label' has a blank label"),
        ({"text": "a", "label": 3}, "'label' is answered with mixed types: 'x' at .*:1, 3.0 at .*:2"),
        ({"text": "a", "label": ["x"]}, "'label' is answered with mixed types"),
        ({"text": "a", "label": True}, "'label' is answered with mixed types"),
        ('{"text": "a", "score": NaN}', "rows.jsonl:2: 'score' is nan: a score must be a finite number"),
        ('{"text": "a", "score": 1e999}', "rows.jsonl:2: 'score' is inf"),
        ({"text": "a", "labels": ["x", "x"]}, "rows.jsonl:2: 'labels' names a label twice"),
        ({"text": "a", "labels": ["x", 3]}, "rows.jsonl:2: 'labels' has a label that is no text: 3"),
        ({"text": "a", "targets": {"x": -1}}, "rows.jsonl:2: 'targets' gives 'x' the probability -1"),
        ({"text": "a", "score": 10**400}, "rows.jsonl:2: 'score' is 1000"),
        ({"text": "a", "score": 1e39}, "rows.jsonl:2: 'score' is 1e\\+39"),
        ({"text": "a", "targets": {"x": 0}}, "rows.jsonl:2: 'targets' gives every label the probability 0"),
        ('{"text": "a", "label": "\\ud800"}', "rows.jsonl:2: 'label': the label holds a lone surrogate"),
        ("[" * 5000 + "]" * 5000, "rows.jsonl:2: not JSON that can be read"),
        ({"text": "a", "targets": {}}, "rows.jsonl:2: 'targets' is {}"),
        ({"text": "a", "answers": ["x"]}, "rows.jsonl:2: 'answers' must map questions to answers"),
        ({"text": "a", "label": "x", "augmented": "maybe"}, "rows.jsonl:2: 'augmented' is 'maybe'"),
        ({"text": "a", "match": True}, "rows.jsonl:2: 'match' needs a second text in 'text_b'"),
        ({"text": "a", "candidates": ["b"], "best": 0}, "rows.jsonl:2: 'candidates' is .*: give a list of 2 to 200"),
        ({"text": "a", "candidates": ["b", " "], "best": 0}, "rows.jsonl:2: candidate 1 is empty"),
        ({"text": "a", "candidates": ["b", "b"], "best": 0}, "rows.jsonl:2: 'candidates' has 'b' twice"),
        ({"text": "a", "candidates": ["b", "c"], "best": 2}, "'best' is 2: give the number of a candidate, 0 to 1"),
        ({"text": "a", "candidates": ["b", "c"], "best": True}, "'best' is True: give the number"),
        ({"text": "ab", "spans": [{"start": 0, "end": 1}]}, "rows.jsonl:2: 'spans' has the span .*: a span has start"),
        ({"text": "ab", "spans": [span(0, 3)]}, "rows.jsonl:2: 'spans' has a span from 0 to 3: the text has 2 char"),
        ({"text": "ab", "spans": [span(1, 1)]}, "'spans' has a span from 1 to 1"),
        ({"text": "ab", "spans": [span(-1, 1)]}, "'spans' has a span from -1 to 1"),
        ({"text": "ab", "spans": [span(True, 1)]}, "a span with the start True: give a number"),
        ({"text": "a  b", "spans": [span(1, 3)]}, "a span from 1 to 3, where the text is blank"),
        ({"text": "abc", "spans": [span(1, 3), span(0, 2)]}, "spans over each other: x 0-2 and x 1-3: keep one"),
        ({"text": "ab", "spans": [span(0, 1, 3)]}, "'spans' has a label that is no text: 3"),
    ],
)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, bad: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_rows([written(tmp_path, GOOD, bad)])


def test_text_for_a_label_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_LABELS", 3)
    with pytest.raises(InputError, match=r"'label' has 4 labels, 3 are taken at most: is this a label, or a text\?"):
        read_rows([written(tmp_path, *({"text": "a", "label": f"label {i}"} for i in range(4)))])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jsonl", None, "there is no data file"),
        ("empty.jsonl", b"\n\n", "no rows"),
        ("rows.xls", b"x", "ends in .jsonl, .csv, .tsv or .parquet"),
        ("latin.jsonl", b'{"text": "a", "label": "x"}\n{"text": "caf\xe9"}', "latin.jsonl:2: not UTF-8"),
        ("wide.csv", b"text,label\na,x\nb,y,z\n", "wide.csv:3: the row has another number of cells"),
        ("short.csv", b"text,label\na\n", "short.csv:2: the row has another number of cells"),
        ("open.csv", b'text,label\n"a,x\n', "not CSV"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_rows([path])


def test_rows_are_written_as_they_were_read(tmp_path: Path) -> None:
    rows = [{"text": "我\u2028 a", "label": "x", "more": [1]}]
    write_rows(tmp_path / "out.jsonl", rows)
    assert [dict(row.data) for row in read_rows([tmp_path / "out.jsonl"]).rows] == rows
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_feature_that_no_row_has_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, {**GOOD, "age": 3}, {**GOOD, "age": " "})
    with pytest.raises(InputError, match="no row has the feature 'agee'"):
        read_rows([path], Columns(features=("agee",)))
    assert [row.features for row in read_rows([path], Columns(features=("age",))).rows] == [{"age": 3.0}, {"age": None}]


@pytest.mark.parametrize("value", [float("inf"), 10**400, 1e39, [1]])
def test_a_feature_that_cannot_be_used_is_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InputError, match=r"rows.jsonl:1: the feature 'age' is .*: give a finite number or a text"):
        read_rows([written(tmp_path, {**GOOD, "age": value})], Columns(features=("age",)))


def test_spans_stand_by_themselves_or_among_the_answers(tmp_path: Path) -> None:
    rows = [
        {"text": "pay 5 euro", "spans": [span(6, 10, "unit"), span(4, 5, "amount")], "answers": {"who": []}},
        {"text": "to Ann", "spans": [], "answers": {"who": [span(3, 6, "person")]}},
    ]
    data = read_rows([written(tmp_path, *rows)])
    assert {name: (head.kind, head.labels) for name, head in data.heads.items()} == {
        "spans": ("tags", ("amount", "unit")),
        "who": ("tags", ("person",)),
    }
    assert data.rows[0].answers["spans"] == Spans((LabelledSpan(4, 5, "amount"), LabelledSpan(6, 10, "unit")))
    assert data.rows[0].answers["who"] == data.rows[1].answers["spans"] == Spans()


def test_a_text_field_that_no_row_has_is_an_error_though_features_could_decide(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"body": "a b", "label": "x", "age": 3}\n')
    with pytest.raises(InputError, match="no row has the field 'bdy', did you mean 'body'"):
        read_rows([tmp_path / "rows.jsonl"], Columns(text="bdy", features=("age",)))
    data = read_rows([tmp_path / "rows.jsonl"], Columns(features=("age",)))
    assert data.features_alone == (
        "no row has a text, so features alone decide; the first row has the fields 'body', 'label', 'age'"
    )


def test_what_has_no_form_in_json_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"text": "a", "note": "\ud800", "age": float("nan"), "label": "é"}])
    line = (tmp_path / "rows.jsonl").read_text(encoding="utf-8")
    assert json.loads(line, parse_constant=pytest.fail) == {"text": "a", "note": "\ud800", "label": "é"}
