"""Rows with right answers: what they may say, and that every form of a model gives the same for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from bench_samples import QUESTIONS, open_rows, read
from export_samples import FEATURES, HEADS, write_fixed

from julia1 import Decider
from julia1.bench.labelled import Labelled, label, one_question
from julia1.bundle import Bundle, EncodingSettings
from julia1.bundle.heads import HeadSpec
from julia1.errors import InputError
from julia1.runtime.decider import load
from julia1.train.data.rows import DataRow


def agree(labelled: Labelled, bundle: Bundle, decider: Decider) -> None:
    """PyTorch and the fp32 graph give the same for every row."""
    expected, found = labelled.reference(bundle), labelled.outputs(decider)
    assert list(expected) == list(found)
    for name, rows in expected.items():
        assert len(rows) == labelled.rows == len(found[name])
        for one, other in zip(rows, found[name], strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, atol=1e-4)


def test_an_open_model_agrees_with_pytorch(
    tiny_bundle: Path, decider_fp32: Decider, texts: list[str], tmp_path: Path
) -> None:
    bundle = Bundle.open(tiny_bundle)
    labelled = label(bundle, open_rows(tmp_path, texts[:12]), QUESTIONS)
    agree(labelled, bundle, decider_fp32)
    for call in labelled.calls(decider_fp32):
        answers: Any = call()
        assert list(answers) == list(QUESTIONS)


def test_figures_of_an_open_model_are_of_what_rows_answer(tiny_bundle: Path, tmp_path: Path) -> None:
    labelled = label(Bundle.open(tiny_bundle), open_rows(tmp_path, ["a b"] * 3), QUESTIONS)
    right = {
        "team": [np.array(values, np.float32) for values in ([9, 0, 0], [0, 9, 0], [0, 0, 9])],
        "late": [np.array(values, np.float32) for values in ([0, 9], [0, 9], [9, 0])],
        "mood": [np.array(values, np.float32) for values in ([9, 0, 0], [0, 0, 9], [0, 9, 0])],
    }
    found = labelled.figures(right)
    assert found["team"]["macro_f1"] == found["late"]["f1"] == found["mood"]["quadratic_kappa"] == 1
    # the second row says nothing on whether it is late
    right["late"][1] = np.array([9, 0], np.float32)
    assert labelled.figures(right)["late"]["f1"] == 1
    right["team"][2] = np.array([9, 0, 0], np.float32)
    assert labelled.figures(right)["team"]["accuracy"] == pytest.approx(2 / 3)


def test_levels_by_text_and_likely_options_are_answers_too(tiny_bundle: Path, tmp_path: Path) -> None:
    rows = [{"text": "a", "answers": {"team": {"sport": 0.7, "shipping": 0.3}, "mood": "very  angry"}}]
    labelled = label(Bundle.open(tiny_bundle), read(tmp_path, rows), QUESTIONS)
    outputs = {name: [np.array([0, 0, 9], np.float32)] for name in QUESTIONS}
    figures = labelled.figures(outputs)
    assert set(figures) == {"team", "mood"}
    assert figures["team"]["accuracy"] == figures["mood"]["accuracy"] == 1


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"teams": "shipping"}, "answers 'teams', and there is no such question; there are: team, late, mood"),
        ({"team": "billing"}, "'team' is 'billing': give one of shipping, the bank, sport"),
        ({"team": ["shipping", "sport"]}, "'team' is"),
        ({"late": "yes"}, "'late' is 'yes': give true or false"),
        ({"mood": 3}, "'mood' is 3.0: give a level from 0 to 2, or one of calm, sad, very angry"),
        ({"mood": "furious"}, "'mood' is 'furious'"),
    ],
)
def test_answers_that_no_question_has_are_named(
    tiny_bundle: Path, tmp_path: Path, answers: dict[str, Any], message: str
) -> None:
    rows = read(tmp_path, [{"text": "a", "answers": answers}])
    with pytest.raises(InputError, match=r"rows\.jsonl:1: ") as caught:
        label(Bundle.open(tiny_bundle), rows, QUESTIONS)
    assert message in str(caught.value)


def test_a_label_is_the_answer_to_the_only_question(tmp_path: Path) -> None:
    rows = read(tmp_path, [{"text": "a", "label": "shipping"}, {"text": "b", "answers": {"team": "sport"}}])
    team = {"team": QUESTIONS["team"]}
    assert [row.answers for row in one_question(rows, team)] == [{"team": "shipping"}, {"team": "sport"}]
    assert one_question(rows, QUESTIONS) == rows


FIXED_ROWS: list[dict[str, Any]] = [
    {"text": "late food " * n, "answers": {"topic": "food", "late": n > 2}, "age": 30 + n, "plan": "paid"}
    for n in range(1, 12)
] + [
    {"text": "good music in city", "spans": [{"start": 14, "end": 18, "label": "place"}], "plan": "other"},
    {"text": "order late", "text_b": "late order", "match": True, "age": 3},
    {"text": "food food", "text_b": "sport", "match": False},
]
RENAMED = {"spans": "where", "match": "alike"}


def fixed_rows(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[DataRow]:
    """Rows whose answers go by the toy's heads."""
    found = read(folder, rows, features=(*FEATURES.numbers, *FEATURES.categories))
    return [replace(row, answers={RENAMED.get(name, name): one for name, one in row.answers.items()}) for row in found]


def test_fixed_heads_of_every_kind_agree_with_pytorch(tokenizer_file: Path, tmp_path: Path) -> None:
    bundle = write_fixed(tmp_path / "toy", tokenizer_file)
    decider = load(bundle.folder, variant="fp32", threads=1)
    labelled = label(bundle, fixed_rows(tmp_path, FIXED_ROWS), None)
    agree(labelled, bundle, decider)
    figures = labelled.figures(labelled.outputs(decider))
    assert {name: set(found) & {"macro_f1", "f1", "span_f1", "auc"} for name, found in figures.items()} == {
        "topic": {"macro_f1"},
        "late": {"f1", "auc"},
        "where": {"span_f1"},
        "alike": {"auc", "f1"},
    }
    assert labelled.kinds() == {head.name: head.kind for head in HEADS}
    for call in labelled.calls(decider):
        call()


def test_models_of_pairs_agree_with_pytorch(tokenizer_file: Path, tmp_path: Path) -> None:
    heads = (HeadSpec("match", "match"),)
    bundle = write_fixed(tmp_path / "pair", tokenizer_file, "bert", heads, None, EncodingSettings("pair", 32))
    rows = [{"text": f"food {n}", "text_b": "music " * n, "match": n % 2 == 0} for n in range(1, 7)]
    labelled = label(bundle, read(tmp_path, rows), None)
    agree(labelled, bundle, load(bundle.folder, variant="fp32", threads=1))
    with pytest.raises(InputError, match="the row has no second one"):
        label(bundle, [replace(row, second="") for row in read(tmp_path, rows)], None)


def test_rankings_agree_with_pytorch(tokenizer_file: Path, tmp_path: Path) -> None:
    heads = (HeadSpec("best", "rank", size=32),)
    bundle = write_fixed(tmp_path / "rank", tokenizer_file, "bert", heads, None, EncodingSettings("fixed", 32))
    rows = [{"text": f"food {n}", "candidates": ["music", "food", "sport"][: 2 + n % 2], "best": 1} for n in range(5)]
    labelled = label(bundle, read(tmp_path, rows), None)
    decider = load(bundle.folder, variant="fp32", threads=1)
    agree(labelled, bundle, decider)
    assert 0 < labelled.figures(labelled.outputs(decider))["best"]["mrr"] <= 1
    assert [len(call().scores) for call in labelled.calls(decider)] == [2, 3, 2, 3, 2]  # type: ignore[attr-defined]


def test_labels_that_a_head_does_not_know_are_named(tokenizer_file: Path, tmp_path: Path) -> None:
    bundle = write_fixed(tmp_path / "toy", tokenizer_file)
    with pytest.raises(InputError, match=r"rows\.jsonl:1: the label 'art' of 'topic'"):
        label(bundle, read(tmp_path, [{"text": "a", "answers": {"topic": "art"}}]), None)
    with pytest.raises(InputError, match="answers 'label', and there is no such head; there are: topic, late"):
        label(bundle, read(tmp_path, [{"text": "a", "label": "food"}]), None)
