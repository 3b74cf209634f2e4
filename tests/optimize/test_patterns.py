"""Groups of operators that an engine can run as one, and what keeps them apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
from graph_samples import FLOAT, SmallBert, bert_inputs, exported, model, node, weights

from julia1.optimize.graph import OperatorGraph, open_graph
from julia1.optimize.patterns import Group, find_groups

NUMBERS = {name: weights(seed=number)[()].reshape(()) for number, name in enumerate(("root", "one", "half", "tiny"))}


def groups(nodes: list[onnx.NodeProto], outputs: str = "y", **stored: object) -> list[Group]:
    made = model(nodes, {"x": (FLOAT, [2, 3, 8]), "z": (FLOAT, [2, 3, 8])}, outputs.split(), {**NUMBERS, **stored})  # type: ignore[arg-type]
    return find_groups(OperatorGraph(made))


GELU = [
    node("Div", "x root", "a"),
    node("Erf", "a", "b"),
    node("Add", "b one", "c"),
    node("Mul", "x c", "d"),
    node("Mul", "d half", "y"),
]
NORM = [
    node("ReduceMean", "x axes", "mean"),
    node("Sub", "x mean", "difference"),
    node("Pow", "difference two", "square"),
    node("ReduceMean", "square axes", "variance"),
    node("Add", "variance tiny", "moved"),
    node("Sqrt", "moved", "deviation"),
    node("Div", "difference deviation", "normal"),
    node("Mul", "normal gain", "scaled"),
    node("Add", "scaled bias", "y"),
]


def attention(*between: onnx.NodeProto, last: str = "s") -> list[onnx.NodeProto]:
    return [
        node("Transpose", "z", "t", perm=[0, 2, 1]),
        node("MatMul", "x t", "product"),
        node("Div", "product root", "scaled"),
        node("Softmax", "scaled", "s", axis=-1),
        *between,
        node("MatMul", f"{last} z", "y"),
    ]


def test_a_gelu_is_found_in_its_parts() -> None:
    assert groups(GELU) == [Group("GELU", ("a", "b", "c", "d", "y"))]


def test_what_others_read_keeps_a_group_apart() -> None:
    (found,) = groups([*GELU, node("Relu", "b", "other")], "y other")
    assert found.blocked == "b is read by other too"
    (found,) = groups(GELU, "y c")
    assert found.blocked == "c is an output of the model"


def test_a_layer_normalization_is_found_in_its_parts() -> None:
    import numpy as np

    more = {"axes": np.array([-1]), "two": np.float32(2).reshape(()), "gain": weights(8), "bias": weights(8)}
    (found,) = groups(NORM, **more)
    assert found.pattern == "layer normalization"
    assert len(found.operators) == len(NORM)
    assert not found.blocked


def test_an_attention_is_found_with_its_scale() -> None:
    assert groups(attention()) == [Group("attention", ("product", "scaled", "s", "y"))]


def test_a_guard_behind_a_softmax_keeps_an_attention_apart() -> None:
    guard = [node("IsNaN", "s", "broken"), node("Where", "broken tiny s", "kept")]
    (found,) = groups(attention(*guard, last="kept"))
    assert found.blocked == "kept looks for NaN in it"


def test_a_cast_keeps_an_attention_apart() -> None:
    (found,) = groups(attention(node("Cast", "s", "again", to=FLOAT), last="again"))
    assert found.blocked == "the cast again lies in it"


@pytest.mark.parametrize(("bias", "found"), [(weights(8), 1), (weights(2, 3, 8), 0)])
def test_a_bias_is_one_number_a_column(bias: object, found: int) -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y")]
    assert len(groups(nodes, w=weights(8, 8), b=bias)) == found


def test_a_bert_has_its_parts(bert_file: Path) -> None:
    found = Counter(group.pattern for group in find_groups(open_graph(bert_file)))
    assert found["attention"] == 3
    assert found["GELU"] == 3
    assert found["product and bias"] == 18
    assert found["residual and normalization"] == 7


def test_a_convolution_block_has_its_norm_and_activation(cnn_file: Path) -> None:
    assert Counter(group.pattern for group in find_groups(open_graph(cnn_file))) == {"convolution block": 3}


def test_attention_spelled_out_is_found_too(tmp_path: Path) -> None:
    module = SmallBert(1)
    module.model.set_attn_implementation("eager")
    file = exported(module, bert_inputs(), tmp_path / "eager.onnx")
    (found,) = [group for group in find_groups(open_graph(file)) if group.pattern == "attention"]
    assert not found.blocked
