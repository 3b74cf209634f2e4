"""Operators, shapes and costs of a graph, and what it is run on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_samples import FLOAT, INT, model, node, weights

from julia1 import InputError
from julia1.export.onnx_file import read_model
from julia1.optimize.feeds import example_feeds, read_feeds
from julia1.optimize.graph import OperatorGraph

LINEAR = model(
    [node("Gather", "table ids", "rows"), node("MatMul", "rows weight", "product"), node("Add", "product bias", "y")],
    {"ids": (INT, ["batch", "tokens"])},
    ["y"],
    {"table": weights(50, 8), "weight": weights(8, 4), "bias": weights(4)},
)


def test_shapes_are_those_of_the_run() -> None:
    graph = OperatorGraph(LINEAR, example_feeds(LINEAR, rows=3, tokens=5))
    assert graph.tensors["product"].shape == (3, 5, 4)
    assert graph.tensors["product"].dtype == "float32"
    assert graph.tensors["table"].bytes == 50 * 8 * 4
    assert graph.opsets == {"ai.onnx": 20}
    assert [one.multiplications for one in graph.operators] == [0, 3 * 5 * 4 * 8, 0]


def test_stored_bytes_are_counted_once() -> None:
    twice = model(
        [node("MatMul", "x w", "a"), node("MatMul", "a w", "y")], {"x": (FLOAT, ["n", 4])}, ["y"], {"w": weights(4, 4)}
    )
    stored = OperatorGraph(twice, example_feeds(twice)).stored_bytes()
    assert stored == {"a": 64, "y": 0}


def test_without_a_run_shapes_are_inferred() -> None:
    graph = OperatorGraph(LINEAR)
    assert graph.tensors["rows"].shape == (1, 1, 8)


@pytest.mark.parametrize(
    ("nodes", "stored", "expected"),
    [
        ([node("Gemm", "x w", "y")], {"w": weights(8, 5)}, 2 * 5 * 8),
        ([node("Gemm", "x w", "y", transB=1)], {"w": weights(5, 8)}, 2 * 5 * 8),
        (
            [node("Unsqueeze", "x one", "r"), node("Conv", "r w", "y")],
            {"one": np.array([1]), "w": weights(3, 1, 4)},
            2 * 3 * 5 * 4,
        ),
        (
            [
                node("Cast", "x", "c", to=2),
                node("MatMulInteger", "c w", "m"),
                node("Cast", "m", "y", to=1),
            ],
            {"w": np.ones((8, 3), np.int8)},
            2 * 3 * 8,
        ),
    ],
)
def test_multiply_adds(nodes: list[object], stored: dict[str, object], expected: int) -> None:
    made = model(nodes, {"x": (FLOAT, [2, 8])}, ["y"], stored)  # type: ignore[arg-type]
    graph = OperatorGraph(made, example_feeds(made))
    assert sum(one.multiplications for one in graph.operators) == expected


def test_made_up_ids_lie_within_their_table(bert_file: Path) -> None:
    bert = read_model(bert_file)
    feeds = example_feeds(bert, rows=2, tokens=40)
    assert feeds["input_ids"].shape == (2, 40)
    assert feeds["input_ids"].max() < 80
    assert feeds["input_ids"].max() > 40, "the whole table is used"
    assert (feeds["attention_mask"] == 1).all()


def test_an_input_without_a_shape_needs_a_file(tmp_path: Path) -> None:
    made = model([node("Relu", "x", "y")], {"x": (FLOAT, [2])}, ["y"])
    made.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(InputError, match=r"input 'x' has no shape: give an .npz"):
        example_feeds(made)
    np.savez(tmp_path / "x.npz", x=weights(3))
    assert OperatorGraph(made, read_feeds(tmp_path / "x.npz")).tensors["y"].shape == (3,)


def test_inputs_that_the_model_does_not_take_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the model does not run on this input"):
        OperatorGraph(LINEAR, {"ids": weights(2)})
    (tmp_path / "x.npz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"is not an .npz file of arrays"):
        read_feeds(tmp_path / "x.npz")


def test_constants_have_their_value_under_any_name() -> None:
    made = model(
        [
            node("Constant", "", "c", value_float=2.0),
            node("Identity", "c", "again"),
            node("Identity", "w", "other"),
            node("Mul", "x again", "m"),
            node("Add", "m other", "y"),
        ],
        {"x": (FLOAT, [2])},
        ["y"],
        {"w": weights(2)},
    )
    graph = OperatorGraph(made, example_feeds(made))
    assert float(graph.value("again")) == 2.0
    assert np.array_equal(graph.value("other"), weights(2))
    assert [graph.is_constant(name) for name in ("c", "again", "other", "m", "x")] == [True, True, True, False, False]
