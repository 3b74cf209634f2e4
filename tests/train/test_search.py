"""A grid of runs that can be taken up, of which the best by the validation rows becomes the bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from julia1 import InputError, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.errors import TrainingError  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.parts import Parts, make_parts  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402
from julia1.train.search import combinations, parse_space, search  # noqa: E402
from julia1.train.start import Start, start_from_bundle  # noqa: E402

SETTINGS = FineTuning(epochs=4, batch_rows=8, head_learning_rate=5e-3, threads=1, bf16=False, max_tokens=24)
SPACE = {"learning_rate": [3e-3], "head_learning_rate": [1e-9, 5e-3], "label_smoothing": [0.05]}


def rows() -> list[dict[str, Any]]:
    topics = ("food", "music")
    return [{"text": f"please {topics[i % 2]} order {i} today", "label": topics[i % 2]} for i in range(80)]


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows())))
    return tmp_path / "rows.jsonl"


@pytest.fixture
def parts(data_file: Path) -> Parts:
    return make_parts(read_rows([data_file]), None, None, 1)


@pytest.fixture
def start(tiny_bundle: Path) -> Start:
    return start_from_bundle(Bundle.open(tiny_bundle))


def test_the_best_run_becomes_the_bundle_and_none_is_trained_twice(parts: Parts, start: Start, tmp_path: Path) -> None:
    fitted, runs = search(parts, start, tmp_path / "out", SETTINGS, SPACE, name="best", version="1")
    assert [dict(run.chosen) for run in runs] == combinations(SPACE)
    assert all(run.score is not None for run in runs)
    best = max(runs, key=lambda run: run.score or 0)
    used = fitted.bundle.manifest.provenance["hyper_parameters"]
    assert {name: used[name] for name in best.chosen} == dict(best.chosen)
    assert set(load(tmp_path / "out" / "bundle", threads=1).decide("food please")) == {"label"}
    logs = {path: path.read_bytes() for path in (tmp_path / "out").rglob("log.jsonl")}
    weights = (fitted.bundle.folder / "weights.safetensors").read_bytes()
    (tmp_path / "out" / "runs" / "002" / "result.json").unlink()  # as if killed before the last word
    again, runs_again = search(parts, start, tmp_path / "out", SETTINGS, SPACE, name="best", version="1")
    assert [run.score for run in runs_again] == [run.score for run in runs]
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("log.jsonl")} == logs
    assert (again.bundle.folder / "weights.safetensors").read_bytes() == weights


def test_another_search_in_the_same_folder_is_refused(parts: Parts, start: Start, tmp_path: Path) -> None:
    one = {"learning_rate": [1e-3]}
    search(parts, start, tmp_path / "out", SETTINGS, one, name="a", version="1")
    with pytest.raises(InputError, match="a run of another search"):
        search(parts, start, tmp_path / "out", SETTINGS, {"learning_rate": [2e-3]}, name="a", version="1")


def test_a_run_that_fails_is_told_and_the_others_go_on(
    parts: Parts, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from julia1.train import search as module

    real = module.tune

    def failing(parts: Any, start: Any, folder: Path, settings: FineTuning, **more: Any) -> Any:
        if settings.learning_rate > 1:
            folder.mkdir(parents=True)
            raise TrainingError("the loss is nan")
        return real(parts, start, folder, settings, **more)

    monkeypatch.setattr(module, "tune", failing)
    space = {"learning_rate": [5.0, 1e-3]}
    _, runs = search(parts, start, tmp_path / "out", SETTINGS, space, name="a", version="1")
    assert (runs[0].score, runs[0].problem) == (None, "the loss is nan")
    assert runs[1].score is not None
    with pytest.raises(TrainingError, match="every combination failed, the last because the loss is nan"):
        search(parts, start, tmp_path / "other", SETTINGS, {"learning_rate": [5.0]}, name="a", version="1")


def test_a_combination_that_cannot_be_trained_is_refused_before_any_is(
    parts: Parts, start: Start, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="max_tokens is 5000"):
        search(parts, start, tmp_path / "out", SETTINGS, {"max_tokens": [24, 5000]}, name="a", version="1")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["learning_rate"], "write NAME=VALUE,VALUE"),
        (["=3"], "write NAME=VALUE,VALUE"),
        (["learning_rte=1e-4"], "did you mean 'learning_rate'"),
        (["epochs=3.5"], "epochs: expected int, got 3.5"),
        (["epochs=3,3"], "a value stands twice"),
        (["epochs=3", "epochs=4"], "names epochs twice"),
        ([f"seed={','.join(map(str, range(501)))}"], "501 combinations, 500 are taken at most"),
    ],
)
def test_a_space_that_makes_no_sense_is_named(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_space(texts)


def test_values_have_the_type_of_their_name() -> None:
    found = parse_space(["learning_rate=1e-4,1", "class_weights=true,false", "pairing=cross"])
    assert found == {"learning_rate": [1e-4, 1.0], "class_weights": [True, False], "pairing": ["cross"]}


def test_the_command_prints_the_runs(
    data_file: Path, tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", str(data_file), "-o", str(tmp_path / "out"), "--base", str(tiny_bundle), "--epochs", "2"]
    flags = ["--max-tokens", "24", "--search", "head_learning_rate=1e-3,5e-3"]
    assert main([*command, *flags]) == 0
    printed = capsys.readouterr()
    assert "runs, best first" in printed.out
    assert "head_learning_rate" in printed.out
    assert printed.err.count("run ") == 2
    assert main([*command, *flags, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2
