"""Runs that can be taken up, of which the best by the validation rows becomes the bundle: a grid, or an optimiser's."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from julia1 import InputError, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.errors import MissingExtraError, TrainingError  # noqa: E402
from julia1.train import prepared  # noqa: E402
from julia1.train import search as search_module  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.finetune import DivergedError  # noqa: E402
from julia1.train.parts import Parts, make_parts  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402
from julia1.train.search import search  # noqa: E402
from julia1.train.space import Range, Space, combinations, parse_space, read_space  # noqa: E402
from julia1.train.start import Start, start_from_bundle  # noqa: E402
from julia1.train.trials import Grid, Optimiser, Run, plan_of  # noqa: E402

SETTINGS = FineTuning(
    epochs=4,
    evaluate_every=1,
    token_dropout=0.0,
    batch_rows=8,
    head_learning_rate=5e-3,
    threads=1,
    bf16=False,
    max_tokens=24,
)
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

    def failing(parts: Any, start: Any, folder: Path, settings: FineTuning, *more: Any, **named: Any) -> Any:
        if settings.learning_rate > 1:
            raise DivergedError("the loss is nan")
        return real(parts, start, folder, settings, *more, **named)

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
        (["learning_rate=3e-4..1e-5"], r"learning_rate is '3e-4..1e-5': a range is LOW..HIGH"),
        (["epochs=3..3"], "the lower one first"),
        (["epochs=3..4.5"], "epochs: expected int, got 4.5"),
        (["pairing=cross..towers"], "a range is LOW..HIGH of two numbers"),
        (["bf16=false..true"], "a range is LOW..HIGH of two numbers"),
        (["learning_rate=..1e-4"], "learning_rate: expected float, got ''"),
    ],
)
def test_a_space_that_makes_no_sense_is_named(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_of(read_space(parse_space(texts)), None, 1)


def test_values_have_the_type_of_their_name() -> None:
    found = read_space(parse_space(["learning_rate=1e-4,1", "class_weights=true,false", "pairing=cross"]))
    assert found == {"learning_rate": [1e-4, 1.0], "class_weights": [True, False], "pairing": ["cross"]}


def test_rows_are_tokenized_once_for_all_runs(
    parts: Parts, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = prepared.make_items
    monkeypatch.setattr(prepared, "make_items", lambda *given: calls.append(given) or real(*given))
    settings = replace(SETTINGS, epochs=1, max_tokens=4)
    noticed: list[dict[str, Any]] = []
    search(parts, start, tmp_path / "out", settings, SPACE, name="a", version="1", notice=noticed.append)
    assert len(calls) == 4, "of train, validation, held-back and test rows"
    assert noticed == [{"kind": "cut", "cut": 80, "rows": 80, "max_tokens": 4}, {"kind": "package"}]


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


RANGES: Space = {"learning_rate": Range(1e-5, 1e-1), "epochs": Range(2, 9), "pairing": ["auto", "cross"]}


def worth(chosen: dict[str, Any]) -> float:
    return -abs(chosen["learning_rate"] - 3e-3) * 100 - abs(chosen["epochs"] - 6) * 0.1


def played(plan: Optimiser, first: int = 1) -> list[Run]:
    """Runs of a made-up model, of which one fails and those that are hopeless are given up."""
    runs = []
    for number in range(first, plan.total + 1):
        chosen = plan.next(number)
        epochs = [worth(chosen) - 0.01 / epoch for epoch in range(1, chosen["epochs"] + 1)]
        given_up = next((epoch for epoch, score in enumerate(epochs, 1) if plan.hopeless(epoch, score)), 0)
        score = None if given_up or number == 3 else epochs[-1]
        runs.append(Run(number, chosen, score, 1.0, "", epochs[: given_up or None], bool(given_up)))
        plan.done(runs[-1])
    return runs


class TestOptimiser:
    @pytest.fixture(autouse=True)
    def needs_optuna(self) -> None:
        pytest.importorskip("optuna")

    def test_it_finds_what_is_good_and_gives_up_what_is_not(self) -> None:
        runs = played(Optimiser(RANGES, 40, 1))
        assert all(1e-5 <= run.chosen["learning_rate"] <= 1e-1 and 2 <= run.chosen["epochs"] <= 9 for run in runs)
        assert {type(run.chosen["epochs"]) for run in runs} == {int}
        assert sum(run.chosen["learning_rate"] < 1e-3 for run in runs[:10]) > 2, "rates are drawn by their factors"
        given_up = [run for run in runs if run.given_up]
        assert given_up and all(len(run.epochs) >= 2 for run in given_up)
        best = max((run for run in runs if run.score is not None), key=lambda run: run.score or 0)
        assert worth(dict(best.chosen)) > -0.3

    @pytest.mark.parametrize("finished", [1, 4, 13])
    def test_it_goes_on_as_if_it_had_not_been_stopped(self, finished: int) -> None:
        runs = played(Optimiser(RANGES, 20, 7))
        again = Optimiser(RANGES, 20, 7)
        for run in runs[:finished]:
            assert again.accept(Run(**json.loads(json.dumps(run.to_dict()))))
        assert played(again, finished + 1) == runs[finished:]
        assert played(Optimiser(RANGES, 20, 8)) != runs

    def test_runs_of_another_space_are_told(self) -> None:
        plan = Optimiser(RANGES, 3, 1)
        chosen = {"learning_rate": 1e-3, "epochs": 3, "pairing": "cross"}
        assert plan.accept(Run(1, chosen, 0.5, 1.0))
        for change in ({"learning_rate": 1.0}, {"epochs": 1}, {"pairing": "towers"}, {"seed": 1}):
            assert not plan.accept(Run(1, {**chosen, **change}, 0.5, 1.0))

    def test_a_search_that_was_killed_ends_like_one_that_was_not(
        self, parts: Parts, start: Start, tmp_path: Path
    ) -> None:
        space: Space = {"head_learning_rate": Range(1e-4, 1e-2), "epochs": Range(1, 2)}
        how: dict[str, Any] = {"name": "a", "version": "1", "trials": 3}

        def killing(run: Run) -> None:
            if run.number == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            search(parts, start, tmp_path / "out", SETTINGS, space, report=killing, **how)
        logs = {path: path.read_bytes() for path in (tmp_path / "out").rglob("log.jsonl")}
        assert len(logs) == 2
        _, runs = search(parts, start, tmp_path / "out", SETTINGS, space, **how)
        assert all(path.read_bytes() == content for path, content in logs.items()), "none is trained twice"
        _, whole = search(parts, start, tmp_path / "other", SETTINGS, space, **how)
        assert [replace(run, seconds=0) for run in runs] == [replace(run, seconds=0) for run in whole]

    def test_the_command_takes_ranges(
        self, data_file: Path, tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ["train", str(data_file), "-o", str(tmp_path / "out"), "--base", str(tiny_bundle), "--json"]
        flags = ["--epochs", "1", "--max-tokens", "24", "--search", "learning_rate=1e-5..3e-4", "--trials", "2"]
        assert main([*command, *flags]) == 0
        printed = capsys.readouterr()
        assert len(json.loads(printed.out)["runs"]) == 2
        assert printed.err.startswith("run 1  learning_rate ")


def test_listed_values_are_a_grid_unless_trials_are_wanted() -> None:
    pytest.importorskip("optuna")
    assert isinstance(plan_of({"epochs": [1, 2]}, None, 1), Grid)
    assert isinstance(plan_of({"epochs": [1, 2]}, 5, 1), Optimiser)
    assert plan_of(RANGES, None, 1).total == 20


def test_a_run_that_is_given_up_is_told_and_never_chosen(
    parts: Parts, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Grid):
        def next(self, number: int) -> dict[str, Any]:
            self.number = number
            return super().next(number)

        def hopeless(self, epoch: int, score: float) -> bool:
            return self.number == 2 and epoch == 2

    monkeypatch.setattr(search_module, "plan_of", lambda space, trials, seed: Impatient(space))
    _, runs = search(parts, start, tmp_path / "out", SETTINGS, SPACE, name="a", version="1")
    assert runs[0].score is not None
    assert (runs[1].score, runs[1].given_up, len(runs[1].epochs)) == (None, True, 2)
    assert runs[1].problem == f"given up after 2 looks at the validation rows at {runs[1].epochs[-1]:.4f}"


def test_the_line_that_brings_the_optimiser_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r'optuna is not installed: run  pip install "julia1\[search\]"'):
        plan_of(RANGES, None, 1)


def test_runs_on_other_rows_or_settings_are_not_taken_up(parts: Parts, start: Start, tmp_path: Path) -> None:
    settings = replace(SETTINGS, epochs=1)
    space = {"learning_rate": [1e-3]}
    search(parts, start, tmp_path / "out", settings, space, name="a", version="1")
    for other_parts, other in (
        (replace(parts, train=parts.train[:-1]), settings),
        (parts, replace(settings, dropout=0.3)),
    ):
        with pytest.raises(InputError, match="is a run on other rows, settings or another start"):
            search(other_parts, start, tmp_path / "out", other, space, name="a", version="1")
