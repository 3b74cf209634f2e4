"""Long texts are read in windows, in training and when they are served."""

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

from julia1 import ChoiceAnswer, InputError, TagsAnswer, TooLongError, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.fit import fit  # noqa: E402
from julia1.train.package import Fitted  # noqa: E402
from julia1.train.parts import make_parts  # noqa: E402
from julia1.train.start import start_from_bundle  # noqa: E402

WORDS = ("order", "late", "team", "good", "great", "please", "today", "want")
SETTINGS = replace(TOY, patience=16, max_tokens=16, windows=6, overlap=4)


def long_rows(number: int, seed: int = 1) -> list[dict[str, Any]]:
    """What a text is about stands anywhere in it."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        topic = ("food", "music")[i % 2]
        words = [str(word) for word in random.choice(WORDS, int(random.integers(4, 40)))]
        words.insert(int(random.integers(len(words) + 1)), topic)
        text = " ".join(words)
        start = text.index(topic)
        span = {"start": start, "end": start + len(topic), "label": "what"}
        rows.append({"text": text, "answers": {"topic": topic, "where": [span]}})
    return rows


@pytest.fixture(scope="module", params=["mean", "attention"])
def fitted(request: pytest.FixtureRequest, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, long_rows(240))))
    parts = make_parts(read_rows([folder / "rows.jsonl"]), None, None, 1)
    settings = replace(SETTINGS, aggregation=request.param)
    start = start_from_bundle(Bundle.open(tiny_bundle))
    return fit(parts, start, folder / "run", settings, name="long", version="1")


def test_what_stands_late_in_a_text_is_found(fitted: Fitted) -> None:
    assert fitted.parity.largest < 1e-4
    assert fitted.test["topic"]["accuracy"] > 0.9
    assert fitted.test["where"]["span_f1"] > 0.9
    text = "please order late team good great want today please order late team good great want music today"
    decider = load(fitted.bundle.folder, variant="fp32", threads=1)
    answers = decider.decide(text)
    assert isinstance(answers["topic"], ChoiceAnswer)
    assert answers["topic"].choice == "music"
    assert isinstance(answers["where"], TagsAnswer)
    assert [span.text for span in answers["where"].spans] == ["music"]
    reading = answers["topic"].reading
    assert reading.windows > 1
    assert reading.tokens_read == reading.tokens
    assert answers["topic"].to_dict()["windows"] == reading.windows


def test_a_batch_moves_no_answer(fitted: Fitted) -> None:
    decider = load(fitted.bundle.folder, variant="fp32", threads=1)
    texts = [row["text"] for row in long_rows(24, seed=4)]
    together = decider.decide_many(texts)
    assert decider.decide_many(texts, batch_tokens=40) == together
    for text, answers in zip(texts, together, strict=True):
        alone = decider.decide(text)
        assert alone["topic"].probabilities == pytest.approx(answers["topic"].probabilities, abs=1e-5)  # type: ignore[union-attr]


def test_a_text_beyond_all_windows_is_cut_or_refused(fitted: Fitted) -> None:
    decider = load(fitted.bundle.folder, threads=1)
    text = " ".join(["please"] * 300)
    reading = decider.decide(text)["topic"].reading
    assert reading.truncated
    assert reading.windows == 6
    with pytest.raises(TooLongError):
        decider.decide(text, strict=True)


def test_the_bundle_says_how_it_reads(fitted: Fitted) -> None:
    encoding = Bundle.open(fitted.bundle.folder).manifest.encoding
    assert (encoding.state_tokens, encoding.windows, encoding.overlap) == (16, 6, 4)
    assert encoding.aggregation in ("mean", "attention")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--windows", "2", "--set", "overlap=14", "--max-tokens", "16"],
            "overlap is 14: not below 0, and less than the 14 tokens",
        ),
        (["--windows", "2", "--set", "overlap=-1", "--max-tokens", "16"], "overlap is -1"),
    ],
)
def test_windows_that_make_no_sense_are_refused(
    tmp_path: Path, tiny_bundle: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, long_rows(60))))
    command = ["train", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "run"), "--base", str(tiny_bundle)]
    assert main([*command, *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "bundle").exists()


def test_pairs_are_not_read_in_windows(tmp_path: Path, tiny_bundle: Path) -> None:
    rows = [{"text": f"a {i}", "text_b": f"b {i}", "match": bool(i % 2)} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parts = make_parts(read_rows([tmp_path / "rows.jsonl"]), None, None, 1)
    with pytest.raises(InputError, match="several texts are not read in windows"):
        fit(parts, start_from_bundle(Bundle.open(tiny_bundle)), tmp_path / "run", SETTINGS, name="a", version="1")
