"""Heads over two or more texts: matching and ranking, read together and apart."""

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

from julia1 import ChoiceAnswer, InputError, MatchAnswer, TooLongError, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.fit import fit  # noqa: E402
from julia1.train.package import Fitted  # noqa: E402
from julia1.train.pairing import match_figures, rank_figures, reads_pairs  # noqa: E402
from julia1.train.parts import make_parts  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402
from julia1.train.start import start_from_bundle  # noqa: E402

TOPICS = ("food", "music", "hotel", "city")
WORDS = ("order", "late", "team", "good", "great", "please", "today", "want")
SETTINGS = replace(TOY, epochs=14)


def text_about(topic: str, random: np.random.Generator) -> str:
    words = [str(word) for word in random.choice(WORDS, 3)]
    words.insert(int(random.integers(4)), topic)
    return " ".join([*words, str(random.integers(10_000))])


def pairs(number: int, seed: int = 1) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        first, second = (str(topic) for topic in random.choice(TOPICS, 2))
        if random.random() < 0.4:
            second = first
        rows.append(
            {
                "text": text_about(first, random),
                "text_b": text_about(second, random),
                "match": first == second,
                "label": first,
            }
        )
    return rows


def rankings(number: int, seed: int = 2) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        topics = [str(topic) for topic in random.permutation(TOPICS)]
        best = int(random.integers(len(topics)))
        candidates = [text_about(topic, random) for topic in topics]
        rows.append({"text": text_about(topics[best], random), "candidates": candidates, "best": best})
    return rows


def trained(rows: list[dict[str, Any]], folder: Path, base: Path, settings: FineTuning) -> Fitted:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    parts = make_parts(read_rows([path]), None, None, 1)
    return fit(parts, start_from_bundle(Bundle.open(base)), folder / "run", settings, name="pairs", version="1")


@pytest.fixture(scope="module", params=["cross", "towers"])
def matched(request: pytest.FixtureRequest, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp(request.param)
    return trained(pairs(320), folder, tiny_bundle, replace(SETTINGS, pairing=request.param))


@pytest.fixture(scope="module")
def ranked(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return trained(rankings(160), tmp_path_factory.mktemp("ranked"), tiny_bundle, SETTINGS)


def test_pairs_are_matched_beside_another_head(matched: Fitted) -> None:
    assert matched.parity.largest < 1e-4
    assert matched.test["match"]["auc"] > 0.9
    assert matched.test["label"]["macro_f1"] > 0.9
    decider = load(matched.bundle.folder, variant="fp32", threads=1)
    rows = pairs(60, seed=9)
    texts, seconds = [row["text"] for row in rows], [row["text_b"] for row in rows]
    answers = decider.decide_many(texts, seconds=seconds)
    found = [answer["match"] for answer in answers]
    assert all(isinstance(answer, MatchAnswer) for answer in found)
    right = [(answer.probability > 0.5) == row["match"] for answer, row in zip(found, rows, strict=True)]  # type: ignore[union-attr]
    assert np.mean(right) > 0.8
    alone = [decider.decide(text, second=other) for text, other in zip(texts, seconds, strict=True)]
    assert [a["match"].to_dict() for a in alone] == [a["match"].to_dict() for a in answers]
    assert alone[0]["match"].reading.tokens == sum(
        len(decider._fixed._tokenizer.ids([text])[0])  # type: ignore[union-attr]
        for text in (texts[0], seconds[0])
    )


def test_a_missing_second_text_is_said_or_does_without(matched: Fitted) -> None:
    decider = load(matched.bundle.folder, variant="fp32", threads=1)
    if matched.bundle.manifest.encoding.type == "pair":
        with pytest.raises(InputError, match="reads two texts: give the second one too"):
            decider.decide("food today")
    else:
        answers = decider.decide("food today")
        assert set(answers) == {"label"}
        assert isinstance(answers["label"], ChoiceAnswer)
        assert answers["label"].choice == "food"


def test_a_match_abstains_by_its_head_unless_the_caller_says_otherwise(matched: Fitted) -> None:
    decider = load(matched.bundle.folder, variant="fp32", threads=1)
    assert decider._fixed is not None
    pair = ("food today", "great food")
    assert not any(one.abstained for one in decider.decide(pair[0], second=pair[1]).values())  # type: ignore[union-attr]
    decider._fixed.heads = tuple(replace(head, abstain_below=1.0) for head in decider._fixed.heads)
    assert all(one.abstained for one in decider.decide(pair[0], second=pair[1]).values())  # type: ignore[union-attr]
    free = decider.decide(pair[0], second=pair[1], abstain_below=0.0)
    assert not any(one.abstained for one in free.values())  # type: ignore[union-attr]


def test_matching_heads_rank_too(matched: Fitted) -> None:
    decider = load(matched.bundle.folder, variant="fp32", threads=1)
    found = decider.rank("please music today", ["food late", "great music", "hotel order"])
    assert found.order[0] == 1
    assert found.scores[1] == max(found.scores)
    with pytest.raises(InputError, match="no head 'label' ranks; those that can: match"):
        decider.rank("a", ["b"], head="label")


def test_candidates_are_ranked(ranked: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    assert ranked.parity.largest < 1e-4
    assert ranked.test["best"]["mrr"] > 0.8
    folder = str(ranked.bundle.folder)
    decider = load(folder, variant="fp32", threads=1)
    candidates = ["late food please", "good music", "city team", "want hotel"]
    found = decider.rank("hotel today", candidates)
    assert found.order[0] == 3
    assert sorted(found.order) == [0, 1, 2, 3]
    again = decider.rank("hotel today", candidates[::-1])
    assert again.scores == pytest.approx(found.scores[::-1], abs=1e-5)
    given = [part for text in candidates for part in ("--candidate", text)]
    assert main(["decide", "hotel today", "--model", folder, "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out)["ranking"]["order"][0] == 3
    assert main(["decide", "hotel today", "--model", folder, *given]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("want hotel")


def test_a_ranking_head_alone_has_no_answer_to_one_text(ranked: Fitted) -> None:
    decider = load(ranked.bundle.folder, threads=1)
    with pytest.raises(InputError, match="compares two texts: give the second one too, or rank candidates"):
        decider.decide("food today")
    with pytest.raises(InputError, match="no candidates"):
        decider.rank("food", [])
    with pytest.raises(InputError, match="must be a list, got one str"):
        decider.rank("food", "music")
    with pytest.raises(TooLongError):
        decider.rank("food", ["music " * 100], strict=True)


def test_the_command_answers_about_pairs(matched: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(matched.bundle.folder)
    assert main(["decide", "food late", "--second", "food please", "--model", folder, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["answers"]) == {"match", "label"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(map(json.dumps, pairs(5))), encoding="utf-8")
    assert main(["decide", "--input", str(rows), "--model", folder]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(line["answers"]) == {"match", "label"} for line in lines)
    assert len(lines) == 5


def test_a_model_of_one_text_refuses_a_second(decider_fp32: Any) -> None:
    with pytest.raises(InputError, match="a second text is for models with fixed heads"):
        decider_fp32.decide("a", {}, second="b")
    with pytest.raises(InputError, match="ask a Choice among the candidates"):
        decider_fp32.rank("a", ["b"])


@pytest.mark.parametrize(
    ("rows", "pairing", "message"),
    [
        ([{"text": "a", "text_b": "b", "match": True}], "both", "pairing is 'both': one of auto, cross, towers"),
        (
            [{"text": "a", "candidates": ["b", "c"], "best": 0, "text_b": "d"}],
            "cross",
            "the row has a second text and candidates",
        ),
        (
            [{"text": "ab", "text_b": "c", "spans": [{"start": 0, "end": 1, "label": "x"}]}],
            "auto",
            "spans are tagged in one text",
        ),
        (
            [{"text": "a", "text_b": "b", "label": "x"}, {"text": "c", "label": "y"}],
            "auto",
            "rows.jsonl:2: the row has no second text",
        ),
    ],
)
def test_pairs_that_cannot_be_read_are_named(
    tmp_path: Path, rows: list[dict[str, Any]], pairing: str, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        reads_pairs(read_rows([path]).rows, FineTuning(pairing=pairing))


def test_figures_of_pairs() -> None:
    head = HeadSpec("m", "match")
    outputs = [np.array([value], np.float32) for value in (2.0, -1.0, 0.5, -0.2)]
    found = match_figures(head, outputs, [True, False, False, True])
    assert found == {"auc": 0.75, "f1": 0.5, "accuracy": 0.5}
    towers = HeadSpec("r", "rank", size=2)
    item = np.array([[1, 0], [0, 1], [1, 0], [0.6, 0.8]], np.float32)
    assert rank_figures(towers, [item, item], [1, 2])["mrr"] == pytest.approx((1 + 1 / 2) / 2)
    constant = np.array([[1, 0], [1, 0], [1, 0]], np.float32)
    assert rank_figures(towers, [constant], [0])["recall@1"] == 0.0


def test_a_row_without_second_text_does_not_spoil_the_others(
    matched: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if matched.bundle.manifest.encoding.type != "pair":
        pytest.skip("towers answer such a row without the match")
    rows = pairs(3)
    del rows[1]["text_b"]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    command = ["decide", "--input", str(tmp_path / "rows.jsonl"), "--model", str(matched.bundle.folder), "--keep-going"]
    assert main(command) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [("answers" in line, "error" in line) for line in lines] == [(True, False), (False, True), (True, False)]


def test_a_second_text_and_candidates_in_one_row_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"text": "a city", "text_b": "a team", "candidates": ["food", "music"], "best": 0, "label": "x"}
    path.write_text(json.dumps(row))
    with pytest.raises(InputError, match=r"rows.jsonl:1: the row has a second text and candidates"):
        reads_pairs(read_rows([path]).rows, FineTuning())


def test_a_blank_second_text_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "a city", "text_b": "  ", "match": True}))
    with pytest.raises(InputError, match="'match' needs a second text"):
        read_rows([path])
