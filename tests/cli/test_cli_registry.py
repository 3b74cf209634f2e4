"""``julia1 registry``, and NAME@VERSION wherever a bundle is named."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundle_samples import small_manifest
from cli_samples import ASK, FakeDecider, Ran

from julia1.bundle import BundleWriter, Registry
from julia1.cli.registry import for_training, keep
from julia1.errors import BundleError, InputError

Run = Callable[..., Ran]

FACTS: dict[str, Any] = {
    "base_model": "tiny 1",
    "rows": {"train": 1200, "test": 100},
    "data_sha256": {"train": "a" * 64, "test": "b" * 64, "all": "c" * 64},
    "hyper_parameters": {"epochs": 3, "learning_rate": 1e-4},
    "score": 0.75,
    "metrics": {"validation": {"team": {"accuracy": 0.75}}, "test": {"team": {"accuracy": 0.5}}},
    "run": {"finished": "2026-11-30T10:00:00+00:00", "seconds": 12.5, "environment": {"python": "3.12"}},
}


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty one."""
    monkeypatch.setenv("JULIA1_REGISTRY", str(tmp_path / "registry"))
    return Registry()


def made(tmp_path: Path, version: str, **facts: Any) -> Path:
    with BundleWriter(tmp_path / f"made-{version}", replace=True) as writer:
        manifest = replace(small_manifest(writer, version), name="tickets", provenance={**FACTS, **facts})
        return writer.finish(manifest).folder


@pytest.fixture
def two(tmp_path: Path, registry: Registry) -> Registry:
    """Versions 1 and 2, of other parameters and data."""
    changes = {
        "hyper_parameters": {"epochs": 5, "learning_rate": 1.00001e-4},
        "metrics": {"test": {"team": {"accuracy": 0.6}}},
    }
    registry.add(made(tmp_path, "1"))
    registry.add(made(tmp_path, "2", **changes, data_sha256={**FACTS["data_sha256"], "train": "d" * 64}))
    return registry


def test_a_bundle_is_added_listed_and_shown(run: Run, registry: Registry, tmp_path: Path) -> None:
    assert run("registry", "list").out == f"the registry {registry.folder} is empty\n"
    assert run("registry", "list", "--json").data == []
    folder = made(tmp_path, "1")
    where = f"the registry {registry.folder}"
    assert run("registry", "add", folder).out == f"in {where} as tickets@1\n"
    assert run("registry", "add", folder).out == f"{where} has it already, as tickets@1\n"
    other = made(tmp_path, "1", seed=2)
    assert run("registry", "add", other).out == f"in {where} as tickets@1.2 (tickets@1 is another model)\n"
    stored = run("registry", "add", other, "--version", "7", "--json").data
    assert stored == {"name": "tickets", "version": "7", "folder": str(registry.folder / "tickets/7"), "new": True}
    listed = run("registry", "list", "tickets").out.splitlines()
    assert [line.split()[0] for line in listed] == ["version", "tickets@1", "tickets@1.2", "tickets@7"]
    assert "cccccccccccc" in listed[1]
    assert "0.75" in listed[1]
    assert [entry["version"] for entry in run("registry", "list", "--json").data] == ["1", "1.2", "7"]
    shown = run("registry", "show", "tickets@1").out
    for words in ("tiny 1", "a" * 64, "1200", "learning_rate  0.0001", "accuracy  0.75", "python  3.12", "12.5"):
        assert words in shown, words
    data = run("registry", "show", "tickets@1", "--json").data
    assert data["metrics"] == FACTS["metrics"]
    assert data["aliases"] == []


def test_two_versions_are_compared(run: Run, two: Registry) -> None:
    done = run("registry", "compare", "tickets@1", "tickets@2")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["train", "different"] in lines
    assert ["test", "the", "same"] in lines
    assert ["epochs", "3", "5"] in lines
    assert ["learning_rate", "0.0001", "0.000100001"] in lines, "never rounded"
    assert not any(line[:1] == ["base_model"] for line in lines)
    assert ["team", "accuracy", "0.5", "0.6", "+0.1000"] in lines
    assert ["team", "accuracy", "0.75", "-"] in lines
    data = run("registry", "compare", "tickets@1", "tickets@2", "--json").data
    assert (data["first"], data["second"]) == ("tickets@1", "tickets@2")
    assert data["data"] == {"train": False, "test": True, "all": True}


def test_promote_says_what_it_replaces(run: Run, two: Registry) -> None:
    assert run("registry", "promote", "tickets@1").out == "tickets@production is tickets@1, for the first time\n"
    assert run("registry", "promote", "tickets@1").out == "tickets@production is still tickets@1\n"
    assert run("registry", "promote", "tickets@2").out == "tickets@production is tickets@2, in place of tickets@1\n"
    promoted = run("registry", "promote", "tickets@production", "live", "--json").data
    assert promoted == {"name": "tickets", "version": "2", "alias": "live", "replaced": None}
    assert "live, production" in run("registry", "list").out
    assert "tickets@2" in run("registry", "show", "tickets").out


def test_promote_refuses_a_changed_file_with_exit_3(run: Run, two: Registry) -> None:
    graph = two.folder / "tickets/1/model.onnx"
    graph.unlink()
    graph.write_text("grapf")
    assert "model.onnx is changed" in run("registry", "promote", "tickets@1").failed(code=3)


def test_delete_refuses_what_is_promoted(run: Run, two: Registry) -> None:
    two.promote("tickets@1")
    assert "tickets@1 is production" in run("registry", "delete", "tickets@1").failed()
    assert run("registry", "delete", "tickets@2").out == "tickets@2 is deleted\n"
    deleted = run("registry", "delete", "tickets@1", "--force", "--json").data
    assert deleted == {"deleted": "tickets@1", "aliases": ["production"]}
    assert "it is empty" in run("registry", "show", "tickets").failed()


def test_another_registry_is_named_with_a_flag(run: Run, registry: Registry, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    run("registry", "add", made(tmp_path, "1"), "--registry", elsewhere)
    assert registry.names() == []
    assert "tickets@1" in run("registry", "list", "--registry", elsewhere).out


def test_the_registry_of_the_flag_is_looked_into(run: Run, registry: Registry, tmp_path: Path) -> None:
    elsewhere = Registry(tmp_path / "elsewhere")
    elsewhere.add(made(tmp_path, "1"))
    added = run("registry", "add", "tickets@1", "--version", "2", "--registry", elsewhere.folder)
    assert added.out == f"in the registry {elsewhere.folder} as tickets@2\n"
    assert "it is empty" in run("registry", "add", "tickets@1").failed()
    assert registry.names() == []


def test_an_alias_is_taken_away(run: Run, two: Registry) -> None:
    two.promote("tickets@1")
    two.promote("tickets@2", "staging")
    assert run("registry", "unalias", "tickets", "production").out == "tickets@production is gone; it was tickets@1\n"
    gone = run("registry", "unalias", "tickets", "staging", "--json").data
    assert gone == {"name": "tickets", "alias": "staging", "version": "2"}
    assert "no alias 'production'; it is empty" in run("registry", "unalias", "tickets", "production").failed()


def test_prune_says_what_is_gone(run: Run, two: Registry, tmp_path: Path) -> None:
    two.add(made(tmp_path, "3", seed=3))
    two.promote("tickets@1")
    assert (
        run("registry", "prune", "tickets", "--keep", "1").out == "tickets@2 is deleted\nleft: tickets@1, tickets@3\n"
    )
    assert run("registry", "prune", "tickets", "--keep", "1").out == "left: tickets@1, tickets@3\n"
    two.unalias("tickets")
    pruned = run("registry", "prune", "tickets", "--keep", "1", "--json").data
    assert pruned == {"deleted": ["tickets@1"], "left": ["tickets@3"]}
    assert "'0' is not a whole number" in run("registry", "prune", "tickets", "--keep", "0").failed()
    assert "--keep" in run("registry", "prune", "tickets").failed()


def test_broken_aliases_stop_neither_a_list_nor_a_version(
    run: Run, two: Registry, tmp_path: Path, decider: FakeDecider
) -> None:
    with BundleWriter(tmp_path / "other") as writer:
        two.add(writer.finish(replace(small_manifest(writer, "1"), name="other")).folder)
    (two.folder / "tickets/aliases.json").write_text("{")
    listed = run("registry", "list")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == ["version", "other@1", "tickets@1", "tickets@2"]
    assert listed.out.count("aliases.json is broken") == 2
    assert "0.75" in listed.out
    assert [bool(entry["problem"]) for entry in run("registry", "list", "--json").data] == [False, True, True]
    assert run("decide", "a text", *ASK, "--model", "tickets@1").code == 0
    assert decider.loaded[-1]["bundle"] == two.folder / "tickets/1"
    assert "or force it" in run("registry", "delete", "tickets@1").failed(code=1)
    assert run("registry", "delete", "tickets@1", "--force").code == 0


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_none_is_one_error(run: Run, two: Registry, value: str) -> None:
    place = two.folder / "tickets/1/run.json"
    place.write_text(place.read_text().replace("0.75", value, 1))
    for command in (["show", "tickets@1"], ["compare", "tickets@1", "tickets@2"]):
        assert str(place) in run("registry", *command, "--json").failed(code=1)
    assert str(place) in run("registry", "list", "--json").out


def test_a_broken_version_is_listed_with_its_problem(run: Run, two: Registry) -> None:
    (two.folder / "tickets/1/run.json").write_text("{")
    done = run("registry", "list")
    assert done.code == 0
    assert "run.json is not JSON" in done.out
    assert "tickets@2" in done.out
    assert "julia1 registry add" in run("registry", "show", "tickets@1").failed(code=1)
    broken = next(entry for entry in run("registry", "list", "--json").data if entry["version"] == "1")
    assert broken["run"] is None
    assert broken["problem"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "tickts"], "did you mean 'tickets'?"),
        (["show", "tickets"], "several versions and none in production"),
        (["show", "tickets@3"], "no version or alias '3'"),
        (["compare", "tickets@1", "tickets@x"], "no version or alias 'x'"),
        (["promote", "tickets@1", "a/b"], "the alias 'a/b' cannot stand"),
        (["delete", "../tickets@1"], "the name '../tickets' cannot stand"),
        (["list", "../.."], "the name '../..' cannot stand"),
        (["add", "no/such"], "there is no bundle at 'no/such'"),
        (["list", "nothing"], "no model 'nothing'"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_usage_exits_2(run: Run, two: Registry, arguments: list[str], message: str) -> None:
    assert message in run("registry", *arguments).failed()


def test_models_and_verify_take_a_version(run: Run, two: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    two.promote("tickets@2")
    assert run("models", "show", "tickets@production", "--json").data["version"] == "2"
    assert run("verify", "tickets@1").code == 0
    assert "did you mean '1'?" in run("verify", "tickets@11").failed()
    monkeypatch.setenv("JULIA1_MODEL", "tickets@production")
    assert run("models", "show", "--json").data["version"] == "2"
    assert run("verify", "--json").data["bundle"] == str(two.folder / "tickets/2")


def test_decide_takes_a_version(run: Run, two: Registry, decider: FakeDecider) -> None:
    two.promote("tickets@2")
    assert run("decide", "a text", *ASK, "--model", "tickets@production").code == 0
    assert decider.loaded[-1]["bundle"] == two.folder / "tickets/2"
    assert "no version or alias 'staging'" in run("decide", "x", *ASK, "--model", "tickets@staging").failed()
    (two.folder / "tickets/aliases.json").write_text("{")
    assert "aliases.json is broken" in run("decide", "x", *ASK, "--model", "tickets@production").failed(code=1)


def test_training_is_refused_before_it_starts_when_it_could_not_be_kept(
    run: Run, registry: Registry, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"text": "word{i} {"xy"[i % 2] * 5}", "label": "{"xy"[i % 2]}"}}\n' for i in range(40)))
    (tmp_path / "file").touch()
    command = ["train", rows, "-o", tmp_path / "out"]
    line = run(*command, "--registry", tmp_path / "file/registry").failed(code=1)
    assert "cannot write in the registry" in line
    assert "--no-register" in line
    refused = run(*command, "--bundle-version", "a b").failed()
    assert "the version 'a b' cannot stand" in refused
    assert "--bundle-version gives another" in refused
    refused = run("train", rows, "-o", tmp_path / "my model").failed()
    assert "the name 'my model' cannot stand" in refused
    assert "--name gives another" in refused
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "my model").exists()


def test_what_cannot_be_kept_is_said_to_be_whole(registry: Registry, tmp_path: Path) -> None:
    folder = made(tmp_path, "1").rename(tmp_path / "my run")
    registry.folder.touch()
    with pytest.raises(BundleError) as raised:
        keep(registry, folder)
    command = f"julia1 registry add '{folder}' --registry {registry.folder}"
    assert f"the bundle is whole: to keep it, run  {command}" in str(raised.value)


@pytest.mark.parametrize("flags", [["--no-register"], ["--registry", "there"]])
def test_a_recipe_takes_no_registry(run: Run, tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "recipe.yaml").write_text("name: a\nsources: []\nwordings: {}\n")
    failed = run("train", tmp_path / "recipe.yaml", "-o", tmp_path / "out", *flags).failed()
    assert f"{flags[0]} is for labelled rows" in failed


def test_nothing_is_kept_when_that_is_asked_for() -> None:
    assert for_training(Namespace(no_register=True, registry=None), "tickets", "not a name") is None


def test_a_default_registry_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").touch()
    default, named = Namespace(no_register=False, registry=None), tmp_path / "home/registry"
    with pytest.raises(BundleError, match=r"cannot write in the registry .*--no-register trains without it"):
        for_training(Namespace(no_register=False, registry=named), "tickets", "1")
    monkeypatch.setenv("JULIA1_REGISTRY", str(named))
    with pytest.raises(BundleError, match=r"cannot write in the registry .*--no-register trains without it"):
        for_training(default, "tickets", "1")
    monkeypatch.delenv("JULIA1_REGISTRY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert for_training(default, "tickets", "1") is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("julia1: warning: this model will not be kept as a version: cannot write in the registry")
    with pytest.raises(InputError, match="the name 'my model' cannot stand"):
        for_training(default, "my model", "1")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setattr(Path, "home", no_home)
    assert for_training(default, "tickets", "1") is None
    assert "there is no home folder" in capsys.readouterr().err


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")
