"""The report of a training run: from the command to the page, the data beside it, and what the bundle does with it."""

from __future__ import annotations

import contextlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")
pytest.importorskip("matplotlib")

from julia1 import ChoiceAnswer, load  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.train.curves import CURVES, read_log  # noqa: E402
from julia1.train.run_report import METRICS, REPORT, reliability_svg, report_html, write_report  # noqa: E402

WORDS = ("order", "late", "good", "great", "please", "today", "want", "team")
TOPICS = ("food", "music", "hotel")


def labelled(number: int, seed: int, noise: float = 0.0) -> list[dict[str, Any]]:
    """Rows in two languages, a share of them with a label drawn at random."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        topic = str(random.choice(TOPICS))
        words = [str(word) for word in random.choice(WORDS, 4)]
        words.insert(int(random.integers(4)), topic)
        label = str(random.choice(TOPICS)) if random.random() < noise else topic
        rows.append({"text": " ".join([*words, str(seed), str(i)]), "label": label, "lang": "en" if i % 3 else "de"})
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def train(folder: Path, base: Path, validation: list[dict[str, Any]], *more: str) -> tuple[int, Path]:
    files = [
        write_rows(folder / "rows.jsonl", labelled(240, 1)),
        "--validation",
        write_rows(folder / "val.jsonl", validation),
        "--test",
        write_rows(folder / "test.jsonl", labelled(120, 3)),
    ]
    how = ["--base", str(base), "--max-tokens", "32", "--seed", "1", "--name", "tickets", "--bundle-version", "7"]
    return main(["train", *files, "-o", str(folder / "out"), *how, *more]), folder / "out"


QUICK = ["learning_rate=3e-3", "head_learning_rate=5e-3", "patience=6", "batch_rows=16", "threads=1"]
LEARNED = ["--epochs", "10", "--max-error", "0.15", *(word for one in QUICK for word in ("--search", one))]


class Run:
    """A run of the command, what it printed, and its output folder."""

    def __init__(self, code: int, folder: Path, printed: str, told: str) -> None:
        self.code, self.folder, self.printed, self.told = code, folder, printed, told
        self.log = folder / "runs" / "001"
        self.metrics: dict[str, Any] = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        self.page = (folder / REPORT).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def run(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A task that can be learned, by a search among one combination, with a bound on the error."""
    folder, out, err = tmp_path_factory.mktemp("report"), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code, output = train(folder, tiny_bundle, labelled(160, 2), *LEARNED)
    return Run(code, output, out.getvalue(), err.getvalue())


def test_the_command_says_how_far_answers_can_be_believed(run: Run) -> None:
    assert run.code == 0, run.told
    head = run.metrics["parts"]["test"]["label"]
    row = next(line.split() for line in run.printed.splitlines() if line.startswith("  label") and "%" in line)
    wanted = [f"{head['before']['ece']:.3f}", f"{head['after']['ece']:.3f}"]
    assert row == ["label", *wanted, *(f"{head['coverage_at'][key]:.1%}" for key in ("0.9", "0.95", "0.99"))]
    assert f"report: {run.folder / REPORT}" in run.printed
    assert re.search(r"label: abstains below [\d.]+ and answers [\d.]+%; at most 15\.0% of the answers", run.printed)


def test_the_guarantee_is_what_the_bundle_abstains_by(run: Run) -> None:
    (one,) = run.metrics["guarantees"]
    assert one["head"] == "label"
    assert 0 < one["rows"] < 160
    assert run.metrics["rows"]["validation"] + run.metrics["rows"]["for the guarantee"] == 160
    assert one["bound"] <= 0.15
    assert run.metrics["parts"]["validation"]["label"]["rows"] == 160 - one["rows"]
    decider = load(run.folder / "bundle", threads=1)
    (head,) = decider.manifest.heads
    assert head.abstain_below == one["threshold"]
    rows = labelled(120, 3)
    for own, abstained in ((0.0, False), (1.0, True)):
        answer = decider.decide(rows[0]["text"], abstain_below=own)["label"]
        assert answer.abstained is abstained, "the caller's threshold wins"  # type: ignore[union-attr]
    answers = [answer["label"] for answer in decider.decide_many([row["text"] for row in rows])]
    assert all(isinstance(answer, ChoiceAnswer) for answer in answers)
    given = [(answer, row) for answer, row in zip(answers, rows, strict=True) if not answer.abstained]  # type: ignore[union-attr]
    assert len(given) / 120 == pytest.approx(one["test_answered"])
    wrong = np.mean([answer.choice != row["label"] for answer, row in given])  # type: ignore[union-attr]
    assert wrong == pytest.approx(one["test_error"])


def test_metrics_hold_every_figure(run: Run) -> None:
    metrics = run.metrics
    assert metrics["bundle"]["name"] == "tickets"
    assert metrics["languages"] == {"en": 160, "de": 80}
    head = metrics["parts"]["test"]["label"]
    assert head["rows"] == 120
    assert head["languages"]["de"]["rows"] == 40
    assert [one["label"] for one in head["classes"]] == sorted(TOPICS)
    assert sum(one["support"] for one in head["classes"]) == 120
    assert head["coverage"][0]["accuracy"] == pytest.approx(head["figures"]["accuracy"])
    assert sum(one["rows"] for one in head["confusions"]) == round(120 * (1 - head["figures"]["accuracy"]))
    assert metrics["epochs"][-1]["figures"].keys() == {"label"}
    assert metrics["parity"]["largest"] < 1e-4
    assert metrics["hyper_parameters"]["max_error"] == 0.15


def test_the_log_has_steps_and_epochs_and_is_drawn(run: Run) -> None:
    steps, epochs = read_log(run.log)
    assert [one["epoch"] for one in epochs] == list(range(1, len(epochs) + 1))
    assert steps[-1]["step"] == epochs[-1]["step"] == len(steps)
    assert max(one["learning_rate"] for one in steps) > steps[-1]["learning_rate"]
    own = [one["loss"] for one in steps if one["epoch"] == 1]
    assert np.mean(own) == pytest.approx(epochs[0]["loss"], rel=0.1)
    assert (run.log / CURVES).is_file()


class Tags(HTMLParser):
    """Every tag and its attributes; the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else(run: Run) -> None:
    found = Tags(run.page)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in found.tags}
    sources = [value for _, attributes in found.tags for key, value in attributes.items() if key in ("src", "href")]
    assert len(sources) == 1
    assert str(sources[0]).startswith("data:image/png;base64,")
    assert "http" not in run.page
    for title in ("What was trained", "Guaranteed error", "Curves", "Test rows", "Validation rows", "Export"):
        assert title in found.text
    assert sum(tag == "svg" for tag, _ in found.tags) == 2


def test_a_second_call_gives_the_same_report(run: Run, tiny_bundle: Path) -> None:
    code, output = train(run.folder.parent, tiny_bundle, labelled(160, 2), *LEARNED)
    assert code == 0
    again = json.loads((output / METRICS).read_text(encoding="utf-8"))
    for metrics in (again, run.metrics):
        metrics.pop("run")  # when it was finished
        for variant in metrics["variants"]:
            variant.pop("measured")
    assert again == run.metrics


def test_what_cannot_be_guaranteed_is_a_warning_and_is_not_stored(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = labelled(160, 2, noise=1.0)
    code, output = train(tmp_path, tiny_bundle, noisy, "--epochs", "1", "--max-error", "0.1", "--json")
    printed, told = capsys.readouterr()
    assert code == 3
    (one,) = json.loads(printed)["guarantees"]
    assert one["threshold"] is None
    assert re.match(r"epoch 1  loss [\d.]+  label [\d.]+  best epoch 1  [\d,]+ rows/s", told)
    assert told.count("julia1: warning: label: no confidence threshold keeps the error under 0.1") == 1
    assert load(output / "bundle", threads=1).manifest.heads[0].abstain_below == 0
    assert "no confidence threshold keeps the error under 0.1" in (output / REPORT).read_text(encoding="utf-8")


def test_too_few_rows_are_refused_before_training(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = train(tmp_path, tiny_bundle, labelled(40, 2), "--max-error", "0.05")
    assert code == 2
    assert "takes 59 validation rows" in capsys.readouterr().err
    assert not output.exists()


def odd_metrics() -> dict[str, Any]:
    name = "<script>alert('a')</script> & \udc80"
    head = {
        "kind": "choice",
        "rows": 2,
        "figures": {"accuracy": 0.5},
        "before": None,
        "after": None,
        "coverage": [{"threshold": 0.5, "answered": 0.0, "accuracy": None}],
        "coverage_at": {"0.9": 0.0},
        "classes": [
            {"label": f"{name}{i}", "precision": 0.1, "recall": 0.1, "f1": i / 300, "support": 1, "ece": None}
            for i in range(300)
        ],
        "confusions": [{"wanted": name, "given": "b", "rows": 1}],
        "retrieval": {"candidates": 3, "recall@1": 0.5},
        "languages": {"": {"rows": 2}, name: {"rows": 1, "accuracy": 0.1}},
    }
    return {
        "bundle": {"name": "m", "version": name, "path": "x"},
        "base_model": name,
        "teacher": name,
        "rows": {"train": 3},
        "languages": {name: 3},
        "heads": [{"name": name, "kind": "choice", "labels": [name, "b"]}],
        "hyper_parameters": {"epochs": 1},
        "run": {"environment": {"packages": {}}},
        "epochs": [],
        "score": 0.5,
        "parity": {"largest": 1e-5, "mean": 1e-6, "options": 3},
        "variants": [],
        "guarantees": [],
        "warnings": [],
        "parts": {"validation": {name: head}},
    }


def test_names_are_shown_and_never_run(tmp_path: Path) -> None:
    page = report_html(odd_metrics())
    assert "script" not in {tag for tag, _ in Tags(page).tags}
    assert "<script>alert('a')</script>" in Tags(page).text
    assert "and 100 more" in page
    write_report(odd_metrics(), tmp_path / REPORT, None)
    assert json.loads((tmp_path / METRICS).read_text(encoding="utf-8")) == odd_metrics()
    (tmp_path / REPORT).read_text(encoding="utf-8")


def test_the_diagram_puts_what_is_believed_and_true_on_the_diagonal() -> None:
    bins = [
        {"low": 0.0, "high": 0.1, "rows": 3, "confidence": share, "accuracy": share} for share in (0.0, 0.25, 0.5, 1.0)
    ]
    svg = reliability_svg([], bins)
    line = re.search(r'<line x1="(\S+)" y1="(\S+)" x2="(\S+)" y2="(\S+)"', svg)
    assert line is not None
    x1, y1, x2, y2 = map(float, line.groups())
    circles = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="(\S+)" cy="(\S+)"', svg)]
    assert len(circles) == 4
    for (x, y), one in zip(circles, bins, strict=True):
        assert x == pytest.approx(x1 + (x2 - x1) * one["confidence"], abs=0.06)
        assert y == pytest.approx(y1 + (y2 - y1) * one["accuracy"], abs=0.06)
