"""What was computed on one machine, checked on another: the first tensor that departs is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from julia1 import BundleError, EngineError, InputError, YesNo
from julia1.bundle import Bundle
from julia1.runtime import Cpu, probe
from julia1.runtime import decider as decider_module
from julia1.runtime.golden import Golden, Request, checking, make_golden, making
from julia1.runtime.golden.checking import check_golden, same_answer
from julia1.runtime.golden.recording import SKETCH, Recorder, sketch
from julia1.runtime.golden.requests import Said

Spoil = Callable[[str, np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle)


@pytest.fixture(scope="module")
def golden(bundle: Bundle) -> Golden:
    return make_golden(bundle, "fp32", threads=1)


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[Spoil], None]:
    """Another machine: what its engine computes goes through a function of the tensor's name and values."""
    real = decider_module.open_engine

    def spoil(change: Spoil) -> None:
        class Other:
            def __init__(self, *arguments: Any) -> None:
                self._engine = real(*arguments)
                self.inputs = self._engine.inputs

            def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
                found = self._engine.run(feeds, outputs)
                return [change(name, value) for name, value in zip(outputs, found, strict=True)]

        monkeypatch.setattr(decider_module, "open_engine", Other)

    return spoil


def test_the_same_machine_computes_the_same(golden: Golden, bundle: Bundle) -> None:
    found = check_golden(golden, bundle, threads=1)
    (variant,) = found.variants
    assert found.ok and variant.status == "same" and variant.first == ""
    assert variant.answers == variant.same_answers > 90
    assert variant.largest_output == variant.largest_probability == 0
    assert found.made == found.here and found.here["architecture"] == probe().architecture
    assert make_golden(bundle, "fp32", threads=1).variants["fp32"].made[0].said == golden.variants["fp32"].made[0].said


def test_built_in_requests_cover_languages_lengths_and_questions(golden: Golden) -> None:
    lengths = [sum(map(len, made.passes[-1].ids)) for made in golden.variants["fp32"].made]
    assert len(golden.requests) == 24 and min(lengths) < 40 < max(lengths)
    states = "".join(str(request.state) for request in golden.requests)
    assert all(sign in states for sign in "订\u0301👍हい요ม")
    kinds = {type(question).__name__ for request in golden.requests for question in request.questions.values()}
    assert kinds == {"Choice", "YesNo", "Score"}


@pytest.mark.parametrize("layer", [0, 1])
def test_the_first_layer_that_departs_is_named(
    golden: Golden, bundle: Bundle, spoiled: Callable[[Spoil], None], layer: int
) -> None:
    later = [*[f"{kind}.{n}" for n in range(layer, 2) for kind in ("keys", "values")][1:], "trunk", "logits"]
    spoiled(lambda name, value: value * 1.5 if name in later else value)
    found = check_golden(golden, bundle, threads=1)
    (variant,) = found.variants
    assert not found.ok and variant.status == "departs"
    assert variant.first == f"values.{layer} of the option texts"
    assert f"departs first at values.{layer}" in variant.message and "answers the same" in variant.message


def test_logits_depart_when_nothing_before_them_does(
    golden: Golden, bundle: Bundle, spoiled: Callable[[Spoil], None]
) -> None:
    spoiled(lambda name, value: value + np.float32(2e-4) if name == "logits" else value)
    (variant,) = check_golden(golden, bundle, threads=1).variants
    assert (variant.status, variant.first) == ("departs", "logits")
    assert variant.largest_output == pytest.approx(2e-4, rel=0.01) and variant.same_answers == variant.answers


def test_a_hair_is_no_departure(golden: Golden, bundle: Bundle, spoiled: Callable[[Spoil], None]) -> None:
    spoiled(lambda name, value: value + np.float32(5e-5))
    (variant,) = check_golden(golden, bundle, threads=1).variants
    assert variant.status == "same" and 1e-5 < variant.largest_output < 1e-4


def test_a_rounded_variant_is_held_to_its_answers(
    golden: Golden, bundle: Bundle, spoiled: Callable[[Spoil], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded = replace(golden, variants={"fp32": replace(golden.variants["fp32"], precision="int8")})
    spoiled(
        lambda name, value: value + np.float32(3e-4) * (np.arange(value.shape[1]) % 2) if name == "logits" else value
    )
    (variant,) = check_golden(rounded, bundle, threads=1).variants
    assert variant.status == "same" and variant.largest_output > 1e-4
    # what int8 does on a CPU whose products saturate
    spoiled(lambda name, value: np.clip(value, -0.05, 0.05) if name in ("keys.1", "values.1", "logits") else value)
    (variant,) = check_golden(rounded, bundle, threads=1).variants
    assert variant.status == "departs" and variant.first == "keys.1 of the option texts"
    assert variant.same_answers < 0.99 * variant.answers and "dB" in variant.message


def test_answers_that_depart_alone_are_calibration(golden: Golden, bundle: Bundle) -> None:
    recorded = golden.variants["fp32"]
    said = {
        name: replace(one, probabilities=(0.1,) * len(one.probabilities)) for name, one in recorded.made[3].said.items()
    }
    made = [*recorded.made[:3], replace(recorded.made[3], said=said), *recorded.made[4:]]
    other = replace(golden, variants={"fp32": replace(recorded, made=tuple(made))})
    (variant,) = check_golden(other, bundle, threads=1).variants
    assert (variant.status, variant.first) == ("departs", "probabilities")
    assert repr(golden.requests[3].name) in variant.message and variant.largest_output == 0
    said = {name: replace(one, answer="something else") for name, one in recorded.made[3].said.items()}
    made[3] = replace(recorded.made[3], said=said)
    other = replace(golden, variants={"fp32": replace(recorded, made=tuple(made))})
    (variant,) = check_golden(other, bundle, threads=1).variants
    assert (variant.status, variant.first) == ("departs", "answers")


def test_other_token_ids_come_before_all_else(golden: Golden, bundle: Bundle) -> None:
    recorded = golden.variants["fp32"]
    passes = list(recorded.made[2].passes)
    last = passes[-1]
    passes[-1] = replace(last, ids=((*last.ids[0][:4], 7, *last.ids[0][5:]),))
    made = [*recorded.made[:2], replace(recorded.made[2], passes=tuple(passes)), *recorded.made[3:]]
    other = replace(golden, variants={"fp32": replace(recorded, made=tuple(made))})
    (variant,) = check_golden(other, bundle, threads=1).variants
    assert (variant.status, variant.first) == ("departs", "token ids")
    assert "token 4" in variant.message and "(7) in the file" in variant.message
    assert repr(golden.requests[2].name) in variant.message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_departs_and_makes_no_file(
    golden: Golden, bundle: Bundle, spoiled: Callable[[Spoil], None], value: float
) -> None:
    spoiled(lambda name, array: array * np.float32(value) if name == "logits" else array)
    with pytest.raises(EngineError, match="no number"):
        make_golden(bundle, "fp32", threads=1)
    (variant,) = check_golden(golden, bundle, threads=1).variants
    assert variant.status == "departs" and "it fails at 'English'" in variant.message


def test_a_variant_that_cannot_run_here_is_told_with_the_reason(
    bundle: Bundle, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = golden.variants["fp32"]
    int8 = replace(recorded, sha256=checking.files_of(bundle.variant("int8")), precision="int8")
    both = replace(golden, variants={"int8": int8, "fp32": recorded})
    monkeypatch.setattr(making, "probe", lambda: Cpu("x86_64", frozenset(), 1))
    found = check_golden(both, bundle, threads=1)
    assert [one.status for one in found.variants] == ["not run", "same"]
    assert found.ok and "no vnni" in found.variants[0].message
    assert not check_golden(both, bundle, "int8", threads=1).ok  # nothing was checked

    def fail(*arguments: object) -> None:
        raise EngineError("cannot load it")

    monkeypatch.setattr(decider_module, "open_engine", fail)
    found = check_golden(golden, bundle, threads=1)
    assert [(one.status, one.message) for one in found.variants] == [("not run", "cannot load it")]
    found = check_golden(golden, bundle, threads=1, engine="abacus")
    assert [(one.status, one.engine) for one in found.variants] == [("not run", "abacus")]
    assert "no engine 'abacus'" in found.variants[0].message


def test_a_variant_that_was_left_out_of_the_bundle_is_not_run(
    golden: Golden, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = replace(bundle, manifest=replace(bundle.manifest, variants=(bundle.variant("int8"),)))
    (variant,) = check_golden(golden, less, threads=1).variants
    assert (variant.status, variant.message) == ("not run", "the bundle has no such variant")


@pytest.mark.parametrize("change", ["name", "version", "calibration", "variant"])
def test_another_bundle_is_refused(golden: Golden, bundle: Bundle, change: str) -> None:
    from julia1.bundle import Calibration

    manifest = bundle.manifest
    if change == "variant":
        fp32 = bundle.variant("fp32")
        other = replace(fp32.files[0], sha256="0" * 64)
        manifest = replace(manifest, variants=(replace(fp32, files=(other, *fp32.files[1:])),))
    elif change == "calibration":
        manifest = replace(manifest, calibration={"yesno": Calibration(2.0)})
    else:
        manifest = replace(manifest, **{change: "other"})
    with pytest.raises(InputError, match="made from") as caught:
        check_golden(golden, replace(bundle, manifest=manifest), threads=1)
    assert "tiny 1" in str(caught.value) and "make a new one" in str(caught.value)


def test_a_damaged_bundle_is_no_departure(golden: Golden, tiny_bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))
    graph = copy / "model-fp32.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match="changed"):
        check_golden(golden, Bundle.open(copy), threads=1)


def test_names_that_do_not_exist_are_refused(golden: Golden, bundle: Bundle) -> None:
    with pytest.raises(InputError, match="no variant 'int9'; it has: fp32"):
        check_golden(golden, bundle, "int9", threads=1)
    with pytest.raises(InputError, match="no variant 'int9'"):
        make_golden(bundle, "int9", threads=1)


def test_requests_of_ones_own(bundle: Bundle) -> None:
    asked = [Request(f"line {n}", f"order {n} is late", {"late": YesNo("Is it late?")}) for n in range(1, 31)]
    golden = make_golden(bundle, "fp32", threads=1, requests=asked)
    assert golden.requests == tuple(asked) and check_golden(golden, bundle, threads=1).ok
    made = golden.variants["fp32"].made
    assert made[0].passes[-1].tensors and not made[-1].passes[-1].tensors  # the file stays small
    for wrong in ([], asked * 40):
        with pytest.raises(InputError, match="requests: give at least one"):
            make_golden(bundle, "fp32", threads=1, requests=wrong)
    with pytest.raises(InputError, match="is empty"):
        make_golden(bundle, "fp32", threads=1, requests=[Request("line 1", " ", asked[0].questions)])


def test_questions_that_no_budget_holds_are_left_out(golden: Golden, bundle: Bundle) -> None:
    encoding = replace(bundle.manifest.encoding, question_tokens=2, option_tokens=3)
    none = replace(bundle, manifest=replace(bundle.manifest, encoding=encoding))
    with pytest.raises(InputError, match="no built-in question is short enough"):
        make_golden(none, "fp32", threads=1)


def test_a_sketch_is_as_far_away_as_the_tensor() -> None:
    random = np.random.default_rng(3)
    values = random.normal(size=(40, 384)).astype(np.float32)
    assert sketch(values).shape == (1 + SKETCH,)
    assert sketch(values)[0] == pytest.approx(np.sqrt(np.square(values).mean()), rel=1e-6)
    for size in (1e-3, 1.0):
        moved = [sketch(values + random.normal(0, size, values.shape))[1:] - sketch(values)[1:] for _ in range(50)]
        assert np.sqrt(np.square(moved).mean()) == pytest.approx(size, rel=0.15)
    assert sketch(np.zeros((0, 3), np.float32)).tolist() == [0.0] * (1 + SKETCH)
    # fixed for good: files that exist are read by it
    assert sketch(np.arange(10))[1:].tolist() == pytest.approx(FIXED, abs=1e-7)


FIXED = [
    0.0,
    -6.260990336999411,
    -5.366563145999495,
    -12.521980673998822,
    8.94427190999916,
    0.0,
    0.0,
    -1.7888543819998317,
]


def test_what_stands_at_padding_counts_for_nothing() -> None:
    class Engine:
        inputs: ClassVar[dict[str, Any]] = {}

        def run(self, feeds: Any, outputs: Any) -> list[np.ndarray]:
            values = {"layer": layer, "flat": layer.reshape(6, 3), "pooled": pooled}
            return [values[name] for name in outputs]

    ids = np.array([[5, 6, 7], [8, 9, 0]])
    layer, pooled = np.ones((2, 3, 3), np.float32), np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    sketches = []
    for padding in (1.0, np.nan):  # pooled has as many columns as there are tokens
        layer[1, 2] = padding
        recorder = Recorder(Engine(), ["layer", "flat", "pooled"])
        recorder.run({"input_ids": ids, "attention_mask": np.array([[1, 1, 1], [1, 1, 0]])}, ["pooled"])
        (one,) = recorder.taken()
        assert one.ids == ((5, 6, 7), (8, 9))
        sketches.append(one.tensors)
    for name in ("layer", "flat", "pooled"):
        assert sketches[0][name].tolist() == sketches[1][name].tolist()
    assert sketches[0]["pooled"].tolist() == sketch(pooled).tolist()


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (Said("a"), Said("a"), True),
        (Said("a"), Said("b"), False),
        (Said("a"), Said("a", abstained=True), False),
        (Said(1.0), Said(1.09), True),
        (Said(1.0), Said(1.11), False),
        (Said([[0, 4, "place"]]), Said([[0, 4, "place"]]), True),
        (Said([[0, 4, "place"]]), Said([]), False),
        (Said(True), Said(None), False),
        (Said("a", False, (0.40005, 0.4, 0.2)), Said("b", False, (0.4, 0.40005, 0.2)), True),
        (Said("a", False, (0.401, 0.4, 0.2)), Said("b", False, (0.4, 0.401, 0.2)), False),
        (Said(True, False, (0.50005,)), Said(False, False, (0.49995,)), True),
        (Said(True, False, (0.501,)), Said(False, False, (0.499,)), False),
        (Said(2, False, (0.0, 0.49999, 0.50001)), Said(1, False, (0.0, 0.50001, 0.49999)), True),
        (Said(["x"], False, (0.5, 0.5)), Said(["y"], False, (0.5, 0.5)), False),
    ],
)
def test_answers_are_the_same(expected: Said, found: Said, same: bool) -> None:
    assert same_answer(expected, found, spread=2.0) is same
