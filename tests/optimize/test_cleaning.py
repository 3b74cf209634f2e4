"""What a graph can do without, and the same answers without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_samples import FLOAT, SmallBert, bert_inputs, exported, model, node, weights
from hypothesis import given
from hypothesis import strategies as st

from julia1 import InputError, VerificationError
from julia1.export.onnx_file import folded, read_model
from julia1.optimize import cleaning
from julia1.optimize.cleaning import cleaned, find_waste
from julia1.optimize.feeds import example_feeds
from julia1.optimize.graph import OperatorGraph, new_session, run

WASTEFUL = model(
    [
        node("Mul", "w two", "double"),
        node("MatMul", "x double", "m"),
        node("Identity", "m", "same"),
        node("Cast", "same", "cast", to=FLOAT),
        node("Add", "cast b", "a"),
        node("Add", "a again", "y"),
        node("Relu", "m", "dead"),
        node("Neg", "dead", "deader"),
    ],
    {"x": (FLOAT, ["n", 4])},
    ["y"],
    {"w": weights(4, 4), "two": np.float32(2).reshape(()), "b": weights(4), "again": weights(4), "unread": weights(9)},
)


def graph_of(made: onnx.ModelProto) -> OperatorGraph:
    return OperatorGraph(made, example_feeds(made, 2, 6))


def test_waste_is_named() -> None:
    waste = find_waste(graph_of(WASTEFUL))
    assert waste.dead == ("dead", "deader")
    assert waste.constant == ("double",)
    assert waste.nothing == ("same", "cast")
    assert waste.twice == {"again": "b"}
    assert waste.unread == ("unread",)
    assert (waste.unread_bytes, waste.twice_bytes) == (36, 16)


def test_a_clean_graph_answers_the_same_and_the_old_one_stays() -> None:
    before = WASTEFUL.SerializeToString()
    made = cleaned(graph_of(WASTEFUL), example_feeds(WASTEFUL, 2))
    assert [one.op_type for one in made.graph.node] == ["MatMul", "Add", "Add"]
    assert len(made.graph.initializer) == 2
    assert WASTEFUL.SerializeToString() == before
    feeds = {"x": weights(5, 4, seed=3)}
    assert np.allclose(run(new_session(made), ["y"], feeds)[0], run(new_session(WASTEFUL), ["y"], feeds)[0])


def test_a_clean_graph_has_no_waste(bert_file: Path, cnn_file: Path) -> None:
    for file in (bert_file, cnn_file):
        made = read_model(file)
        small = cleaned(graph_of(made), example_feeds(made, 2, 6))
        assert len(small.graph.node) <= len(made.graph.node) - 20 * (file == bert_file)
        waste = find_waste(graph_of(small))
        assert (waste.dead, waste.constant, waste.nothing, waste.twice, waste.unread) == ((), (), (), {}, ())
        feeds = example_feeds(made, 3, 11)
        assert np.allclose(run(new_session(small), None, feeds)[0], run(new_session(made), None, feeds)[0], atol=1e-5)


def test_a_folded_number_stays_a_number() -> None:
    made = model(
        [node("Neg", "number", "negative"), node("Add", "x negative", "y")],
        {"x": (FLOAT, [2])},
        ["y"],
        {"number": np.float32(2).reshape(())},
    )
    (tensor,) = folded(made).graph.initializer
    assert list(tensor.dims) == []


def test_an_output_that_is_another_s_name_stays() -> None:
    made = model([node("Relu", "x", "a"), node("Identity", "a", "y")], {"x": (FLOAT, [2])}, ["y", "a"])
    small = cleaned(graph_of(made), example_feeds(made))
    assert [one.name for one in small.graph.output] == ["y", "a"]


def test_a_graph_in_training_mode_is_refused(tmp_path: Path) -> None:
    made = read_model(exported(SmallBert(1), bert_inputs(), tmp_path / "training.onnx", training=True))
    with pytest.raises(InputError, match=r"gives something else each time: export the model in evaluation mode"):
        cleaned(graph_of(made), example_feeds(made, 2, 6))


def test_a_clean_up_that_changes_answers_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(made: onnx.ModelProto) -> onnx.ModelProto:
        (stored,) = (tensor for tensor in made.graph.initializer if tensor.name == "double")
        stored.CopyFrom(onnx.numpy_helper.from_array(weights(4, 4, seed=9), "double"))
        return made

    monkeypatch.setattr(cleaning, "folded", lambda made: broken(folded(made)))
    with pytest.raises(VerificationError, match="changed the output 'y'"):
        cleaned(graph_of(WASTEFUL), example_feeds(WASTEFUL, 2))


@given(st.lists(st.sampled_from(["Relu", "Identity", "Neg", "Mul", "Add", "dead"]), min_size=1, max_size=12))
def test_any_chain_keeps_its_answer(kinds: list[str]) -> None:
    nodes, last = [], "x"
    for number, kind in enumerate(kinds):
        if kind == "dead":
            nodes.append(node("Relu", last, f"dead{number}"))
            continue
        inputs = f"{last} c{number % 2}" if kind in ("Mul", "Add") else last
        nodes.append(node(kind, inputs, last := f"v{number}"))
    nodes.append(node("Neg", last, "y"))
    made = model(nodes, {"x": (FLOAT, [3])}, ["y"], {"c0": weights(3), "c1": weights(3)})
    feeds = {"x": weights(3, seed=7)}
    small = cleaned(OperatorGraph(made, feeds), feeds)
    assert np.array_equal(run(new_session(small), ["y"], feeds)[0], run(new_session(made), ["y"], feeds)[0])
    assert len(small.graph.node) == 1 + sum(kind not in ("dead", "Identity") for kind in kinds)
