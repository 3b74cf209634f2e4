"""What training tells of a run: data hashes, environment, time; and that its bundle is kept in the registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from julia1 import load  # noqa: E402
from julia1.bundle import Bundle, Registry, find_bundle  # noqa: E402
from julia1.bundle.runs import compare  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.errors import BundleError, InputError  # noqa: E402
from julia1.train.data.files import Columns  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.environment import PACKAGES, environment  # noqa: E402
from julia1.train.fit import fit  # noqa: E402
from julia1.train.package import Fitted  # noqa: E402
from julia1.train.parts import Parts, data_hashes  # noqa: E402
from julia1.train.teaching import find_teacher  # noqa: E402

ROWS: list[dict[str, Any]] = [
    {"text": "a", "label": "x", "age": 3},
    {"text": "a b", "labels": ["x", "y"]},
    {"text": "a c", "score": 2.5},
    {"text": "a d", "targets": {"x": 0.5, "y": 0.5}},
    {"text": "a e", "spans": [{"start": 0, "end": 1, "label": "x"}]},
    {"text": "a f", "text_b": "b", "match": True},
    {"text": "a g", "candidates": ["b", "c"], "best": 0},
    {"text": "a h", "answers": {"late": True}},
]


def hashed(tmp_path: Path, rows: list[dict[str, Any]], **columns: Any) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return data_hashes(Parts(read_rows([path], Columns(**columns)).rows, [], []))["train"]


def test_rows_of_every_kind_have_a_hash_that_does_not_know_their_order(tmp_path: Path) -> None:
    expected = hashed(tmp_path, ROWS)
    assert len(expected) == 64
    assert hashed(tmp_path, ROWS[::-1]) == expected
    moved = [{"lang": "en", "group": "g", **row} for row in ROWS]
    moved[1]["labels"] = ["y", "x"]
    moved[3]["targets"] = {"y": 0.5, "x": 0.5}
    assert hashed(tmp_path, moved) == expected


@pytest.mark.parametrize("number", range(len(ROWS)))
@pytest.mark.parametrize(
    "change",
    [
        lambda row: {**row, "text": row["text"] + "!"},
        lambda row: {**row, **OTHER_ANSWERS[next(key for key in OTHER_ANSWERS if key in row)]},
    ],
)
def test_every_text_and_answer_counts(tmp_path: Path, number: int, change: Callable[[Any], Any]) -> None:
    changed = [change(row) if i == number else row for i, row in enumerate(ROWS)]
    assert hashed(tmp_path, changed) != hashed(tmp_path, ROWS)


OTHER_ANSWERS: dict[str, dict[str, Any]] = {
    "label": {"label": "y"},
    "labels": {"labels": ["x"]},
    "score": {"score": 2.0},
    "targets": {"targets": {"x": 0.6, "y": 0.4}},
    "spans": {"spans": []},
    "text_b": {"match": False},
    "candidates": {"best": 1},
    "answers": {"answers": {"late": False}},
}


def test_features_second_texts_candidates_and_repeated_rows_count(tmp_path: Path) -> None:
    plain = hashed(tmp_path, ROWS)
    others = {
        hashed(tmp_path, ROWS, features=("age",)),
        hashed(tmp_path, [*ROWS, ROWS[0]]),
        hashed(tmp_path, [{**row, "text_b": "c"} if "text_b" in row else row for row in ROWS]),
        hashed(tmp_path, [{**row, "candidates": ["b", "d"]} if "candidates" in row else row for row in ROWS]),
    }
    assert len(others | {plain}) == 5


@given(st.permutations(range(8)), st.integers(0, 8))
def test_parts_have_hashes_of_their_own(tmp_path: Path, order: list[int], cut: int) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    rows = read_rows([path]).rows
    whole = data_hashes(Parts(rows, [], []))
    mixed = data_hashes(Parts([rows[i] for i in order], [], []))
    assert mixed == whole
    split = data_hashes(Parts([rows[i] for i in order[:cut]], [rows[i] for i in order[cut:]], []))
    assert (split["all"] == whole["all"]) == (cut == 8)


def test_the_environment_names_what_figures_depend_on() -> None:
    found = environment()
    assert set(found["packages"]) == {"julia1", *PACKAGES}
    assert found["cores"] >= 1
    assert all(isinstance(found[key], str) and found[key] for key in ("python", "system", "cpu"))
    json.dumps(found)


def test_the_command_keeps_its_bundle(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JULIA1_REGISTRY", str(tmp_path / "registry"))
    topics = ("food", "music")
    rows = [{"text": f"please {topics[i % 2]} order {i} today", "label": topics[i % 2]} for i in range(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def train(output: str, *flags: str) -> Any:
        command = ["train", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / output), "--name", "topics", "--json"]
        fixed = ["--base", str(tiny_bundle), "--max-tokens", "16", "--bundle-version", "1"]
        assert main([*command, *fixed, *flags]) == 0
        return json.loads(capsys.readouterr().out)

    assert train("out", "--epochs", "1", "--no-register")["registry"] is None
    registry = Registry()
    assert registry.names() == []
    first = train("out", "--epochs", "1")
    assert first["registry"]["new"]
    assert train("out", "--epochs", "1")["registry"] == {**first["registry"], "new": False}, "a run that is taken up"
    second = train("other", "--epochs", "2", "--seed", "2")
    assert second["registry"]["version"] == "1.2"

    one, two = (registry.run(registry.find(f"topics@{version}")) for version in ("1", "1.2"))
    assert one.metrics == {"validation": first["validation"], "test": first["test"]}
    assert (one.base_model, one.parent, one.seed) == ("tiny 1", "tiny@1", 1)
    assert one.hyper_parameters["epochs"] == 1
    assert one.rows["train"] + one.rows["validation"] + one.rows["test"] == 60
    assert one.run["seconds"] > 0
    assert one.run["environment"] == environment()
    found = compare(one, two)
    assert set(found.parameters) == {"epochs", "seed"}
    assert found.data["train"] is False, "another seed splits otherwise"

    folder = find_bundle("topics@1")
    card = (folder / "card.md").read_text(encoding="utf-8")
    for fact in (one.data_sha256["train"], "| epochs | 1 |", "| learning_rate | 0.0001 |", "tiny@1", "| seed | 1 |"):
        assert fact in card, fact
    assert environment()["cpu"] in card
    registry.promote("topics@1.2")
    assert load("topics@production", threads=1, warm_up=False).manifest.version == "1.2"
    assert main(["decide", "food today", "--model", "topics@production", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["version"] == "1.2"

    further = train("further", "--epochs", "1", "--base", "topics@production")
    assert registry.run(registry.find(f"topics@{further['registry']['version']}")).parent == "topics@1.2"


def test_figures_are_told_and_the_bundle_found_whatever_happens_to_the_registry(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path / "my registry")
    registry.add(tiny_bundle)
    topics = ("food", "music")
    rows = [{"text": f"please {topics[i % 2]} order {i} today", "label": topics[i % 2]} for i in range(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = ["train", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "out"), "--name", "topics", "--epochs", "1"]
    command += ["--base", "tiny@1", "--max-tokens", "16", "--registry", str(registry.folder)]

    fitted: list[Fitted] = []

    def fit_once(*arguments: Any, **settings: Any) -> Fitted:
        """The run of the first call, packed again: a training takes long."""
        if not fitted:
            fitted.append(fit(*arguments, **settings))
        manifest = fitted[0].bundle.folder / "bundle.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": settings["version"]}))
        return fitted[0]

    monkeypatch.setattr("julia1.train.fit.fit", fit_once)

    def train(day: str, *flags: str) -> tuple[int, str, str]:
        monkeypatch.setattr("julia1.cli.train.today", lambda: day)
        return main([*command, *flags]), *capsys.readouterr()

    code, out, error = train("2026.11.29")
    assert code == 0, error
    assert out.splitlines()[-1] == f"in the registry {registry.folder} as topics@2026.11.29"
    assert registry.run(registry.find("topics")).parent == "tiny@1"
    code, out, error = train("2026.11.30")
    assert code == 0, error
    assert out.splitlines()[-1] == f"the registry {registry.folder} has it already, as topics@2026.11.29"
    assert train("2026.11.30", "--bundle-version", "best", "--json")[0] == 0
    assert [entry.place.version for entry in registry.entries("topics")] == ["2026.11.29", "best"]

    def full(*arguments: object, **settings: object) -> None:
        raise BundleError("no space left")

    monkeypatch.setattr(Registry, "add", full)
    code, out, error = train("2026.11.30")
    assert code == 1
    assert "test rows" in out
    added = f"julia1 registry add {tmp_path / 'out/bundle'} --registry '{registry.folder}'"
    assert error.splitlines()[-1] == f"julia1: error: no space left; the bundle is whole: to keep it, run  {added}"
    monkeypatch.setattr("julia1.cli.train_rows.warn_of_guarantees", lambda fitted: True)
    code, out, error = train("2026.11.30", "--json")
    assert code == 3, "a guarantee that failed is not lost"
    assert json.loads(out)["registry"] is None
    assert json.loads(out)["test"]
    assert "the bundle is whole" in error


def test_a_teacher_is_found_in_the_registry_of_the_flag(tiny_bundle: Path, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    registry.add(tiny_bundle)
    assert find_teacher("tiny@1", registry.folder).name == find_teacher(tiny_bundle).name
    with pytest.raises(InputError, match="no model 'tiny'"):
        find_teacher("tiny@1", tmp_path / "empty")


def test_time_of_training_is_summed_over_its_sittings(tiny_bundle: Path, tmp_path: Path) -> None:
    from julia1.train.fit import tune
    from julia1.train.parts import make_parts
    from julia1.train.recipe import FineTuning
    from julia1.train.start import start_from_bundle

    rows = [{"text": f"food order {i} today" if i % 2 else f"music {i}", "label": "ab"[i % 2]} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parts = make_parts(read_rows([tmp_path / "rows.jsonl"]), None, None, 1)
    start = start_from_bundle(Bundle.open(tiny_bundle))
    settings = FineTuning(epochs=3, patience=9, threads=1, bf16=False, max_tokens=16)

    class Stop(Exception):
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            raise Stop

    with pytest.raises(Stop):
        tune(parts, start, tmp_path / "run", settings, stop)
    saved = torch.load(tmp_path / "run/training.pt", weights_only=True)
    saved["seconds"] += 1000
    torch.save(saved, tmp_path / "run/training.pt")
    whole = tune(parts, start, tmp_path / "run", settings)
    assert 1000 < whole.seconds < 1300
    assert tune(parts, start, tmp_path / "run", settings).seconds == whole.seconds
