"""The other commands, exit codes and completion scripts."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_samples import ASK, FakeDecider, Ran

import julia1
from julia1 import __version__, settings
from julia1.bundle import Bundle, BundleWriter, Calibration, EncodingSettings, Manifest, Variant
from julia1.cli.app import build_parser
from julia1.cli.completion import SCRIPTS, describe
from julia1.errors import EngineError, InputError, MissingExtraError, TooLongError, VerificationError

Run = Callable[..., Ran]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    with BundleWriter(tmp_path / "bundle") as writer:
        weights = writer.add_text("w" * 4096, "weights.bin")
        graph = writer.add_text("graph", "model.onnx")
        return writer.finish(
            Manifest(
                name="small",
                version="2026.11.30",
                kind="open",
                encoding=EncodingSettings("options", 384, 64, 64, 768),
                tokenizer=writer.add_text("{}", "tokenizer.json"),
                calibration={"choice": Calibration(1.3, 0.1)},
                variants=(
                    Variant("fp32", "onnxruntime", "fp32", (graph, weights)),
                    Variant("int8", "onnxruntime", "int8", (graph, weights), {"z80": ("carry",)}, {"p50_ms": 3.25}),
                ),
                checkpoint=(writer.add_text("tensors", "checkpoint/model.bin"),),
                provenance={
                    "license": "Apache-2.0",
                    "base_model": ["some/encoder"],
                    "datasets": [{"name": "set one", "license": "CC-BY-4.0"}],
                    "figures": {"Accuracy": [{"set": "banking77", "accuracy": 0.6543}], "seconds": 12},
                    "limits": ["It knows little."],
                },
            )
        )


def test_verify_prints_a_line_a_file(run: Run, bundle: Bundle) -> None:
    done = run("verify", bundle.folder)
    assert done.code == 0 and done.error == ""
    lines = [line.split() for line in done.out.splitlines()]
    assert {line[1] for line in lines} == {entry.path for entry in bundle.manifest.all_files()}
    assert {line[0] for line in lines} == {"ok"}


def test_verify_exits_3_when_a_file_is_wrong(run: Run, bundle: Bundle) -> None:
    (bundle.folder / "weights.bin").write_text("v" * 4096)
    (bundle.folder / "checkpoint/model.bin").unlink()
    done = run("verify", bundle.folder)
    assert done.code == 3 and "1 of 5 files wrong" in done.error and len(done.error.splitlines()) == 1
    lines = [line.replace("left out", "left-out").split() for line in done.out.splitlines()]
    status = {line[1]: line[0] for line in lines}
    assert status["weights.bin"] == "wrong" and status["checkpoint/model.bin"] == "left-out"
    done = run("verify", bundle.folder, "--json")
    assert done.code == 3 and done.data["ok"] is False
    assert [file["path"] for file in done.data["files"] if file["status"] == "wrong"] == ["weights.bin"]


def test_verify_exits_3_when_the_manifest_is_cut(run: Run, bundle: Bundle) -> None:
    manifest = bundle.folder / "bundle.json"
    manifest.write_text(manifest.read_text()[:100])
    assert "bundle.json" in run("verify", bundle.folder).failed(code=3)
    done = run("verify", bundle.folder, "--json")
    assert done.code == 3 and done.data["ok"] is False and "bundle.json" in done.data["problem"]


@pytest.mark.parametrize("command", [["verify"], ["models", "show"]])
def test_bundle_that_is_not_there_is_a_usage_error(run: Run, command: list[str]) -> None:
    assert "'no/such'" in run(*command, "no/such").failed()


def test_models_show_tells_all_that_matters(run: Run, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA1_MODEL", str(bundle.folder))
    done = run("models", "show")
    assert done.code == 0 and done.error == ""
    for words in (
        "small 2026.11.30",
        "Apache-2.0",
        "some/encoder",
        "state tokens 384",
        "here: fp32",
        "not here: it is made for z80",
        "p50_ms 3.25",
        "1.3 + 0.1 ln(n)",
        "CC-BY-4.0",
        "0.6543",
        "seconds: 12",
        "It knows little.",
    ):
        assert words in done.out, words


def test_models_show_says_when_nothing_runs_here(run: Run, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA1_VARIANT", "int8")
    done = run("models", "show", bundle.folder, "--json")
    assert done.code == 0 and done.data["name"] == "small"
    assert done.data["here"]["variant"] is None and "z80" in done.data["here"]["reason"]
    assert "here: none" in run("models", "show", bundle.folder).out


def test_models_list_shows_what_ships(run: Run, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "bundled_models", lambda: bundle.folder.parent)
    monkeypatch.setenv("JULIA1_MODEL", str(bundle.folder))
    (bundle.folder.parent / "broken").mkdir()
    (bundle.folder.parent / "broken/bundle.json").write_text("{")
    good, broken = sorted(run("models", "list", "--json").data, key=lambda item: bool(item["problem"]))
    assert good["name"] == "small" and good["default"] and good["bytes"] > 4096
    assert broken["name"] == "broken" and "not JSON" in broken["problem"]
    assert "* " in run("models", "list").out


def test_version_is_told_twice(run: Run) -> None:
    assert run("--version").out == f"julia1 {__version__}\n"
    assert run("version").out.split()[:2] == ["julia1", __version__]
    assert run("version", "--json").data["julia1"] == __version__


@pytest.mark.parametrize(
    "arguments", [[], ["models"], ["decid"], ["completion", "tcsh"], ["--verison"], ["decide", "--no"]]
)
def test_wrong_usage_exits_2(run: Run, arguments: list[str]) -> None:
    assert "--help" in run(*arguments).failed()


def test_every_command_has_help_and_json(run: Run) -> None:
    for command in describe(build_parser()).walk():
        done = run(*command.path, "--help")
        assert done.code == 0 and done.out.startswith("usage: julia1")
        if command.path and not command.commands:
            assert "--json" in done.out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("said\nhow \x1b[31m"), 2),
        (TooLongError("said"), 2),
        (VerificationError("said"), 3),
        (EngineError("said"), 1),
        (MissingExtraError("torch", "train"), 1),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_error_becomes_one_line_and_a_code(
    run: Run, decider: FakeDecider, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr("julia1.runtime.decider.load", fail)
    line = run("decide", "x", *ASK).failed(code)
    assert "\x1b" not in line


def test_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m julia1.cli completion zsh; echo $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | true"], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() in ("141", "0")


def test_interrupt_exits_130(run: Run, decider: FakeDecider) -> None:
    decider.interrupt_at = "x"
    done = run("decide", "x", *ASK)
    assert (done.code, done.error) == (130, "julia1: interrupted\n")


class TestTrain:
    """``julia1 train``, without training."""

    @pytest.fixture
    def places(self, tmp_path: Path) -> list[str]:
        (tmp_path / "recipe.yaml").write_text("name: x\nsources: []\nwordings: {}\n")
        (tmp_path / "data").mkdir()
        (tmp_path / "backbone").mkdir()
        return [
            str(tmp_path / "recipe.yaml"), "--data", str(tmp_path / "data"), "--backbone", str(tmp_path / "backbone"),
            "-o", str(tmp_path / "out"),
        ]  # fmt: skip

    def test_missing_extra_is_told(self, run: Run, places: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        # what is imported below must not stay behind as an attribute of the package
        monkeypatch.setattr(julia1, "train", importlib.import_module("julia1.train"), raising=False)
        for name in [name for name in sys.modules if name.startswith("julia1.train")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "torch", None)
        assert 'torch is not installed: run  pip install "julia1[train]"' in run("train", *places).failed(code=1)

    def test_steps_overrule_the_recipe(self, run: Run, places: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch")
        calls = []

        def train_and_release(*arguments: Any) -> SimpleNamespace:
            calls.append(arguments)
            bundle = SimpleNamespace(folder=Path("out/bundle"))
            return SimpleNamespace(bundle=bundle, parity={"fp32": SimpleNamespace(largest=2e-5)})

        config = {"model_type": "bert", "vocab_size": 100, "hidden_size": 8, "max_position_embeddings": 512}
        fake = SimpleNamespace(train_and_release=train_and_release, trimmed_config=lambda *_: config)
        monkeypatch.setitem(sys.modules, "julia1.train.release", fake)
        assert run("train", *places, "--steps", 7, "--json").data["steps"] == 7
        ((recipe, data, backbone, output, _, _),) = calls
        assert recipe.training.steps == 7 and (data.name, backbone.name, output.name) == ("data", "backbone", "out")

    @pytest.mark.parametrize(("place", "named"), [(0, "recipe"), (2, "--data"), (4, "--backbone")])
    def test_missing_place_is_named(self, run: Run, places: list[str], place: int, named: str) -> None:
        places[place] = "no/such"
        line = run("train", *places).failed()
        assert named in line and "no/such" in line

    def test_output_that_is_a_file_is_refused(self, run: Run, places: list[str]) -> None:
        Path(places[-1]).touch()
        assert places[-1] in run("train", *places).failed()


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_script_parses_and_names_every_flag(run: Run, tmp_path: Path, shell: str) -> None:
    script = run("completion", shell).out
    for command in describe(build_parser()).walk():
        for flag in command.flags:
            for name in flag.names:
                assert (name if shell != "fish" else name.lstrip("-")) in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        checked = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")
    assert run("completion", shell, "--json").data == {"shell": shell, "script": script}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["dec"], {"decide"}),
        (["models", ""], {"show", "list"}),
        (["models", "show", "--"], {"--help", "--json"}),
        (["decide", "models", "--ch"], {"--choice"}),
        (["decide", "--yesno", "--thr"], set()),
        (["completion", "z"], {"zsh"}),
        (["decide", "--file", ""], set()),
    ],
)
def test_bash_completes(run: Run, words: list[str], expected: set[str]) -> None:
    script = run("completion", "bash").out
    line = " ".join(f"'{word}'" for word in ["julia1", *words])
    code = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _julia1; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=environment, timeout=30)
    assert done.stderr == ""
    assert set(done.stdout.split()) == expected


def test_json_output_is_one_line(run: Run, bundle: Bundle) -> None:
    for arguments in (["models", "show", bundle.folder], ["verify", bundle.folder], ["version"], ["models", "list"]):
        done = run(*arguments, "--json")
        assert done.out.count("\n") == 1
        json.loads(done.out)


@pytest.mark.parametrize("value", ["zero", "0", "-1", "1.5", "²"])
def test_thread_variable_must_be_a_number(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("JULIA1_THREADS", value)
    with pytest.raises(InputError, match="JULIA1_THREADS"):
        settings.threads()


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (settings.threads(), settings.variant()) == (None, None)
    assert settings.model_path() == settings.bundled_models() / "julia1-open-small"
    for name, value in (("THREADS", "3"), ("VARIANT", "int8"), ("MODEL", "~/m")):
        monkeypatch.setenv(f"JULIA1_{name}", value)
    assert (settings.threads(), settings.variant()) == (3, "int8")
    assert settings.model_path() == Path("~/m").expanduser()


def test_doctor_says_what_runs(run: Run, tiny_bundle: Path) -> None:
    done = run("doctor", tiny_bundle, "--quick")
    assert done.code == 0, done.error
    for word in ("machine", "cores", "threads", "onnxruntime", "fp32", "runs", "is taken"):
        assert word in done.out
    data = json.loads(run("doctor", tiny_bundle, "--quick", "--json").out)
    assert data["runs"] and {v["name"] for v in data["variants"]} == {"int8", "fp32"}
    assert sum(v["chosen"] for v in data["variants"]) == 1


def test_doctor_fails_where_nothing_runs(run: Run, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("julia1.runtime.machine.try_variant", lambda *_: "it died of an illegal instruction")
    done = run("doctor", tiny_bundle)
    assert done.code == 3
    assert "no variant of tiny" in done.error and "illegal instruction" in done.out
