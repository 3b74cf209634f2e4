"""Which engine runs a bundle, and what is said where one cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from engine_samples import furthest, loaded, opened

from julia1 import EngineError, InputError, MissingExtraError, YesNo, load
from julia1.bundle import Bundle
from julia1.runtime import probe
from julia1.runtime.engines import ENGINES, cannot_run, open_engine
from julia1.runtime.plan import make_plan

pytestmark = pytest.mark.usefixtures("own_cache")


def test_an_engine_is_named_by_argument_or_environment(
    other: str, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JULIA1_ENGINE", other)
    found = load(tiny_bundle, threads=1, warm_up=False)
    assert (found.plan.engine, found.plan.variant.name) == (other, "fp32")
    assert f"not int8: int8 is made for onnxruntime, and {other}" in found.plan.reason
    assert load(tiny_bundle, engine="onnxruntime", threads=1, warm_up=False).plan.engine == "onnxruntime"


def test_int8_is_refused_by_an_engine_it_is_not_made_for(other: str, tiny_bundle: Path) -> None:
    with pytest.raises(EngineError, match=f"'int8' cannot run here: .*{other} would not compute it rightly"):
        load(tiny_bundle, variant="int8", engine=other)


def test_a_variant_runs_on_the_engine_it_is_made_for_whatever_its_precision(tiny_bundle: Path) -> None:
    int8, fp32 = (Bundle.open(tiny_bundle).variant(name) for name in ("int8", "fp32"))
    assert [cannot_run(name, fp32) for name in (None, *ENGINES)] == [""] * 4
    assert cannot_run(None, int8) == cannot_run("onnxruntime", int8) == ""
    assert "made for onnxruntime" in cannot_run("openvino", int8)


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "onnxruntime"])
def test_an_engine_that_is_not_installed_is_answered_with_the_line_that_brings_it(
    name: str, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, ENGINES[name], None)
    line = rf'{ENGINES[name]} is not installed: run  pip install "julia1\[{name}\]"'
    with pytest.raises(MissingExtraError, match=line):
        load(tiny_bundle, engine=name)
    bundle = Bundle.open(tiny_bundle)
    with pytest.raises(MissingExtraError, match=line):
        opened(bundle, name)


def test_an_unknown_setting_names_those_there_are(other: str, tiny_bundle: Path) -> None:
    bundle = Bundle.open(tiny_bundle)
    with pytest.raises(InputError, match=f"{other} has no setting 'streams'; it has: .*precision"):
        opened(bundle, other, streams="1")
    with pytest.raises(InputError, match=f"the setting 'precision' of {other} is 'int4': take one of f32, bf16"):
        opened(bundle, other, precision="int4")


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_a_file_that_cannot_be_loaded_is_named(other: str, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=r"cannot load .*model\.file") as error:
        open_engine(other, path, 1)
    assert "\n" not in str(error.value)


def test_a_batch_that_fails_is_an_engine_error_and_the_next_one_runs(engine: str, tiny_bundle: Path) -> None:
    decider = loaded(tiny_bundle, engine)
    runs = decider._scorer._engine
    question = {"q": YesNo("Late?")}
    before = decider.logits([("a state", question)])
    with pytest.raises(EngineError, match=r"failed on a batch of shape \(1, 4\)"):
        runs.run(
            {"input_ids": np.zeros((1, 4), np.int64)}
            | {name: np.zeros((1, 4), np.float64) for name in runs.inputs if name != "input_ids"},
            ["logits"],
        )
    assert furthest(before, decider.logits([("a state", question)])) == 0


def test_tuning_and_plans_know_the_engines(other: str, tiny_bundle: Path) -> None:
    plan = make_plan(Bundle.open(tiny_bundle), probe(), engine=other, tuned=False)
    assert plan.engine == other
    assert plan.length_step == (8 if other == "openvino" else 1)
