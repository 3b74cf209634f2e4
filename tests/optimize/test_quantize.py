"""Fewer bits: what stays the same, what is stored, and what the result does not depend on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from graph_samples import FLOAT, INT, model, node, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from julia1 import InputError
from julia1.export.onnx_file import read_model
from julia1.optimize.feeds import example_feeds
from julia1.optimize.graph import OperatorGraph, new_session, run
from julia1.optimize.quantize.layers import linear_layers, lookup_tables
from julia1.optimize.quantize.observing import METHODS, Observer, Range, observe
from julia1.optimize.quantize.rows import REDUCED_RANGE, quantize_rows
from julia1.optimize.quantize.smoothing import find_scales, noise
from julia1.optimize.quantize.static import quantize_static
from julia1.optimize.quantize.weights import packed, quantize_weights, steps_by_block

Quantize = Callable[[OperatorGraph], onnx.ModelProto]


def static(graph: OperatorGraph, rows: int = 40) -> onnx.ModelProto:
    values = [layer.value for layer in linear_layers(graph)]
    feeds = [example_feeds(graph.model, 1, 4 + number % 9) for number in range(rows)]
    observers = observe(graph.model, values, feeds)
    return quantize_static(graph, {name: one.best_range("min_max") for name, one in observers.items()})


SCHEMES: dict[str, Quantize] = {
    "dynamic": quantize_rows,
    "static": static,
    "weight_only 8": lambda graph: quantize_weights(graph, 8),
}


def logits(made: onnx.ModelProto, feeds: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = run(new_session(made, optimised=True), None, feeds)[0]
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_classifier_keeps_its_answers_in_a_third_of_the_bytes(bert_file: Path, scheme: str) -> None:
    before = read_model(bert_file)
    feeds = example_feeds(before, 3, 9)
    after = SCHEMES[scheme](OperatorGraph(before, feeds))
    onnx.checker.check_model(after)
    was, now = logits(before, feeds), logits(after, feeds)
    assert np.abs(now - was).max() < (0.15 if scheme == "static" else 0.05) * np.ptp(was)
    stored = [sum(len(tensor.raw_data) for tensor in made.graph.initializer) for made in (before, after)]
    assert stored[1] < stored[0] / 2


def test_every_linear_layer_and_table_is_found(bert_file: Path) -> None:
    graph = OperatorGraph(read_model(bert_file))
    # three layers of q, k, v, output and two of the feed-forward; the pooler and the classifier
    assert len(linear_layers(graph)) == 3 * 6 + 2
    assert len(lookup_tables(graph)) >= 1


def moved_by_neighbours(made: onnx.ModelProto) -> float:
    """How far the logits of a row move when it is padded and has neighbours."""
    alone = example_feeds(made, 1, 5)
    others = example_feeds(made, 4, 12)
    for name, value in alone.items():
        others[name][0, :5], others[name][0, 5:] = value[0], 0
    return float(np.abs(logits(made, others)[0] - logits(made, alone)[0]).max())


@pytest.mark.parametrize("scheme", ["dynamic", "static"])
def test_answers_depend_on_no_batch_and_no_padding(bert_file: Path, tmp_path: Path, scheme: str) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(bert_file, tmp_path / "usual.onnx", weight_type=QuantType.QInt8, per_channel=True)
    usual = moved_by_neighbours(read_model(tmp_path / "usual.onnx"))
    before = read_model(bert_file)
    own = moved_by_neighbours(SCHEMES[scheme](OperatorGraph(before, example_feeds(before))))
    assert usual > 1e-3, "one step for a whole tensor does depend on them"
    assert own < usual / 10


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Gemm, turned"])
def test_products_of_every_form_and_operator_set(opset: int, kind: str) -> None:
    turned = kind == "Gemm, turned"
    product = (
        node("MatMul", "x w", "y")
        if kind == "MatMul"
        else node("Gemm", "x w b", "y", **({"transB": 1} if turned else {}))
    )
    axes: list[int | str] = ["n", "m", 6] if kind == "MatMul" else ["n", 6]
    stored = {"w": weights(4, 6) if turned else weights(6, 4)} | ({} if kind == "MatMul" else {"b": weights(4)})
    made = model([product], {"x": (FLOAT, axes)}, ["y"], stored, opset=opset)
    feeds = example_feeds(made, 3, 5)
    graph = OperatorGraph(made, feeds)
    was = logits(made, feeds)
    for after in (quantize_rows(graph), quantize_rows(graph, most=REDUCED_RANGE), quantize_weights(graph)):
        now = logits(after, feeds)
        assert now.shape == was.shape
        assert np.abs(now - was).max() < 0.05 * np.abs(was).max()


def test_values_that_several_layers_read_are_rounded_once() -> None:
    made = model(
        [node("MatMul", "x a", "p"), node("MatMul", "x b", "q"), node("Add", "p q", "y")],
        {"x": (FLOAT, ["n", 4])},
        ["y"],
        {"a": weights(4, 4), "b": weights(4, 4, seed=1)},
    )
    after = quantize_rows(OperatorGraph(made, example_feeds(made)))
    assert sum(one.op_type == "QuantizeLinear" for one in after.graph.node) == 1
    assert sum(one.op_type == "MatMulInteger" for one in after.graph.node) == 2


def test_channels_with_outliers_are_evened_out() -> None:
    made = model(
        [node("Mul", "x size", "v"), node("MatMul", "v w", "y")],
        {"x": (FLOAT, ["n", 64])},
        ["y"],
        {"size": np.where(np.arange(64) == 5, 300, 1).astype(np.float32), "w": weights(64, 32)},
    )
    graph = OperatorGraph(made, example_feeds(made))
    rows = [{"x": weights(1, 64, seed=number)} for number in range(40)]
    scales = find_scales(graph, rows, 127)
    assert scales["v"][5] > 5 * np.median(scales["v"])
    feeds = {"x": weights(200, 64, seed=99)}
    was = logits(made, feeds)
    plain, even = (np.square(logits(quantize_rows(graph, scales=one), feeds) - was).mean() for one in ({}, scales))
    assert even < plain / 4
    assert noise(feeds["x"], weights(64, 32), 127) > 0


def test_even_channels_are_left_alone() -> None:
    made = model(
        [node("Relu", "x", "v"), node("MatMul", "v w", "y")], {"x": (FLOAT, ["n", 8])}, ["y"], {"w": weights(8, 4)}
    )
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.sign(weights(8, 4)), "w"))
    rows = [{"x": np.sign(weights(1, 8, seed=number))} for number in range(20)]
    assert find_scales(OperatorGraph(made, example_feeds(made)), rows, 127) == {}


def test_layers_may_stay_as_they_are() -> None:
    made = model([node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 4])}, ["y"], {"w": weights(4, 4)})
    graph = OperatorGraph(made, example_feeds(made))
    assert [one.op_type for one in quantize_rows(graph, ["y"]).graph.node] == ["MatMul"]
    with pytest.raises(InputError, match="there is no linear layer 'z' to keep"):
        quantize_rows(graph, ["z"])


def test_rows_of_zeros_and_of_one_large_value_are_numbers() -> None:
    made = model([node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 4])}, ["y"], {"w": weights(4, 4)})
    after = quantize_rows(OperatorGraph(made, example_feeds(made)))
    found = logits(after, {"x": np.array([[0, 0, 0, 0], [0, 1e30, 0, 0], [1e-30, 0, 0, 0]], np.float32)})
    assert np.isfinite(found).all()
    assert (found[0] == 0).all()


def test_a_table_is_decoded_after_the_lookup() -> None:
    made = model([node("Gather", "t ids", "y")], {"ids": (INT, ["n", "m"])}, ["y"], {"t": weights(40, 16)})
    made.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(weights(40, 16) * np.logspace(-3, 3, 40)[:, None].astype(np.float32), "t")
    )
    feeds = example_feeds(made, 2, 7)
    after = quantize_rows(OperatorGraph(made, feeds))
    was, now = logits(made, feeds), logits(after, feeds)
    assert (np.abs(now - was).max(axis=-1) <= np.abs(was).max(axis=-1) / 250).all(), "each row has a step of its own"


def test_an_old_operator_set_is_refused() -> None:
    made = model([node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 4])}, ["y"], {"w": weights(4, 4)}, opset=12)
    graph = OperatorGraph(made, example_feeds(made))
    with pytest.raises(InputError, match="the model is in opset 12: export it in opset 13 or later"):
        quantize_rows(graph)
    made.opset_import[0].version = 20
    with pytest.raises(InputError, match="opset 21 or later"):
        quantize_weights(OperatorGraph(made, example_feeds(made)), 4)
    with pytest.raises(InputError, match="weights of 3 bits: 8 or 4"):
        quantize_weights(graph, 3)


@pytest.mark.parametrize("inputs", [32, 40, 7])
def test_four_bits_go_by_blocks(inputs: int) -> None:
    made = model(
        [node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", inputs])}, ["y"], {"w": weights(inputs, 6)}, opset=21
    )
    feeds = example_feeds(made, 3)
    graph = OperatorGraph(made, feeds)
    codes, steps = steps_by_block(weights(inputs, 6))
    by_hand = feeds["x"] @ (codes * np.repeat(steps, 32, axis=0)[:inputs])
    after = quantize_weights(graph, 4)
    assert np.allclose(run(new_session(after), None, feeds)[0], by_hand, atol=1e-5)
    # optimised, ONNX Runtime rounds activations by block too
    assert np.allclose(logits(after, feeds), by_hand, atol=0.02 * np.abs(by_hand).max())
    assert len(packed(codes)) == (inputs * 6 + 1) // 2


@given(
    arrays.arrays(np.float32, st.integers(1, 200), elements=st.floats(-1e4, 1e4, width=32)),
    st.sampled_from(METHODS),
)
@settings(max_examples=80)
def test_a_range_spans_what_was_seen(values: npt.NDArray[np.float32], method: str) -> None:
    observer = Observer()
    for part in np.array_split(values, 3):
        observer.see(part)
    how = observer.best_range(method)
    assert how.step > 0
    assert 0 <= how.zero <= 255
    assert how.rounded(np.zeros(1))[0] == 0, "0 stays 0"
    if method == "min_max":
        moved = np.abs(how.rounded(values.astype(np.float64)) - values)
        assert moved.max() <= how.step * 0.51 + 1e-6


def test_a_percentile_leaves_outliers_out() -> None:
    observer = Observer()
    observer.see(np.concatenate([np.linspace(-1, 1, 100_000), [1000.0]]).astype(np.float32))
    assert observer.span("min_max")[1] == 1000
    assert observer.span("percentile")[1] < 2
    assert observer.span("entropy")[1] < 1000


def test_one_sided_values_use_all_codes() -> None:
    observer = Observer()
    observer.see(np.linspace(0, 10, 1000).astype(np.float32))
    assert observer.best_range("min_max") == Range(pytest.approx(10 / 255), 0)
    even = Observer()
    even.see(np.linspace(-10, 10, 1000).astype(np.float32))
    assert abs(even.best_range("min_max").zero - 128) <= 1


def test_what_is_no_number_stops_a_calibration() -> None:
    made = model(
        [node("Log", "x", "l"), node("MatMul", "l w", "y")], {"x": (FLOAT, ["n", 4])}, ["y"], {"w": weights(4, 4)}
    )
    with pytest.raises(InputError, match="no number came up"):
        observe(made, ["l"], [{"x": -np.ones((1, 4), np.float32)}])
    with pytest.raises(InputError, match="no rows to calibrate on"):
        observe(made, ["l"], [])
    with pytest.raises(InputError, match="the method 'max' is none"):
        Observer().span("max")
