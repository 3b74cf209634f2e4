"""Graphs: parity with PyTorch, dynamic shapes, operators, and one shared weight file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

from julia1 import Choice, VerificationError, YesNo  # noqa: E402
from julia1.export import Parity, SharedWeights, measure_parity, option_graph, require_parity  # noqa: E402
from julia1.export.shared_weights import stored_tensors  # noqa: E402
from julia1.model import OptionModel, load_weights, new_encoder, round_weights, save_weights  # noqa: E402
from julia1.model.weights import INPUT_SCALE_SUFFIX, InputRange, linear_layers  # noqa: E402
from julia1.runtime.engines import open_engine  # noqa: E402
from julia1.runtime.scorer import OptionScorer  # noqa: E402
from julia1.text import OptionsEncoding  # noqa: E402
from julia1.text.options import INPUT_NAMES, QuestionTokens, Row  # noqa: E402

if TYPE_CHECKING:
    from conftest import Exported

PRECISIONS = ("fp32", "int8")
CONFIG = {
    "model_type": "bert",
    "vocab_size": 64,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.1,
}


def made_up_rows(
    encoding: OptionsEncoding, rows: int, tokens: int, options: int, seed: int = 0, pieces: int = 300
) -> list[Row]:
    """Rows of random pieces: a trunk of ``tokens`` (the last row half of it), a branch and its leaves."""
    random = np.random.default_rng(seed)

    def draw(number: int) -> list[int]:
        return [int(piece) for piece in random.integers(5, pieces, number)]

    wide = OptionsEncoding(encoding.tokenizer, replace(encoding.limits, pass_tokens=100_000))
    made = []
    for i in range(rows):
        trunk = draw(max(1, tokens // 2) if i and i == rows - 1 else tokens)
        question = QuestionTokens(draw(3), [draw(2 + int(random.integers(0, 4))) for _ in range(options)])
        made += wide.rows(trunk, [question])
    return made


def expected(model: OptionModel, encoding: OptionsEncoding, rows: list[Row]) -> np.ndarray:
    with torch.inference_mode():
        feeds = encoding.collate(rows).feeds()
        found: np.ndarray = model(**{name: torch.from_numpy(array) for name, array in feeds.items()}).numpy()
    return found


def scorer_of(graph: Path, memory: int = 0) -> OptionScorer:
    return OptionScorer(open_engine("onnxruntime", graph, 1), 1, memory)


@pytest.fixture(scope="module", params=PRECISIONS)
def graph(request: pytest.FixtureRequest, exported: Exported) -> onnx.ModelProto:
    return onnx.load_model(exported.graphs[request.param], load_external_data=False)


@pytest.fixture(scope="module")
def fp32(exported: Exported) -> OptionScorer:
    return scorer_of(exported.graphs["fp32"])


def test_rows_tokens_options_and_context_are_dynamic(graph: onnx.ModelProto) -> None:
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in [*graph.graph.input, *graph.graph.output]
    }
    layers, width = range(2), 64
    assert shapes == {
        **{name: ["rows", "tokens"] for name in INPUT_NAMES},
        "markers": ["rows", "options"],
        "option_vectors": ["rows", "options", width],
        "context_leaves": ["rows", "context"],
        **{f"context_{kind}.{i}": ["rows", "context", width] for i in layers for kind in ("keys", "values")},
        **{f"{kind}.{i}": ["rows", "tokens", width] for i in layers for kind in ("keys", "values")},
        "trunk": ["rows", width],
        "logits": ["rows", "options"],
    }


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(("tokens", "options"), [(1, 1), (2, 1), (9, 3), (31, 2), (64, 20)])
def test_fp32_agrees_with_pytorch_in_any_shape(
    exported: Exported, encoding: OptionsEncoding, fp32: OptionScorer, rows: int, tokens: int, options: int
) -> None:
    made = made_up_rows(encoding, rows, tokens, options)
    found = fp32.scores(made)
    assert found.shape == (rows, options)
    assert np.abs(found - expected(exported.model, encoding, made)).max() < 1e-4


@pytest.mark.parametrize("tokens", [127, 128])
def test_fp32_agrees_up_to_the_last_position(
    exported: Exported, encoding: OptionsEncoding, fp32: OptionScorer, tokens: int
) -> None:
    made = made_up_rows(encoding, 2, tokens - 4, 5, seed=tokens)
    assert np.abs(fp32.scores(made) - expected(exported.model, encoding, made)).max() < 1e-4


def test_int8_stays_close_to_fp32(
    exported: Exported, encoding: OptionsEncoding, fp32: OptionScorer, decider_int8: object
) -> None:
    int8 = scorer_of(exported.graphs["int8"])
    differences, spread = [], []
    for seed in range(8):
        made = made_up_rows(encoding, 3, 30, 6, seed)
        exact, found = fp32.scores(made), int8.scores(made)
        differences.append(np.abs(exact - found))
        spread.append(exact)
    assert np.mean(differences) < 0.05 * np.std(spread)
    assert np.max(differences) < 0.3 * np.std(spread)


def test_graphs_use_standard_operators_only(graph: onnx.ModelProto) -> None:
    assert {node.domain for node in graph.graph.node} == {""}
    assert [opset.domain for opset in graph.opset_import] == [""]
    assert not graph.functions


def test_graphs_pass_the_checker(exported: Exported) -> None:
    for path in exported.graphs.values():
        onnx.checker.check_model(str(path), full_check=True)


def test_int8_multiplies_integers_in_every_linear_layer_but_the_last(exported: Exported) -> None:
    int8 = onnx.load_model(exported.graphs["int8"], load_external_data=False)
    read = {name for node in int8.graph.node if node.op_type == "MatMulInteger" for name in node.input}
    assert {f"{name}.weight" for name in linear_layers(exported.model)} - read == {"head.score.weight"}
    assert not any(node.op_type == "DynamicQuantizeLinear" for node in int8.graph.node), "one step a tensor"


def test_weights_are_ranges_of_the_shared_file(graph: onnx.ModelProto, exported: Exported) -> None:
    table = stored_tensors(exported.weights)
    size = exported.weights.stat().st_size
    external = [tensor for tensor in graph.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    assert external
    for tensor in external:
        place = {entry.key: entry.value for entry in tensor.external_data}
        stored = table[tensor.name]
        assert place["location"] == exported.weights.name
        assert (int(place["offset"]), int(place["length"])) == (stored.offset, stored.length)
        assert stored.offset + stored.length <= size
        assert tuple(tensor.dims) == stored.shape
        width = {onnx.TensorProto.INT8: 1, onnx.TensorProto.UINT8: 1, onnx.TensorProto.FLOAT16: 2}
        assert stored.length == width.get(tensor.data_type, 4) * int(np.prod(stored.shape))


def test_only_vectors_are_inline(graph: onnx.ModelProto) -> None:
    inline = [t for t in graph.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
    assert max(numpy_helper.to_array(tensor).ndim for tensor in inline) <= 2
    assert max(numpy_helper.to_array(tensor).size for tensor in inline) <= 512
    assert graph.ByteSize() < 100_000


def test_every_matrix_of_the_model_is_read_from_the_file(exported: Exported) -> None:
    table = stored_tensors(exported.weights)
    for path in exported.graphs.values():
        graph = onnx.load_model(path, load_external_data=False).graph
        used = {name for node in graph.node for name in node.input}
        assert not {name for name, stored in table.items() if len(stored.shape) > 1} - used


def test_the_same_weights_make_the_same_graph(exported: Exported) -> None:
    weights = exported.weights.read_bytes()
    for precision, path in exported.graphs.items():
        again = option_graph(SharedWeights(exported.weights), precision)
        assert again.SerializeToString(deterministic=True) == onnx.load_model(
            path, load_external_data=False
        ).SerializeToString(deterministic=True)
    assert exported.weights.read_bytes() == weights


@pytest.mark.parametrize(
    ("change", "message"), [({"hidden_act": "relu"}, "bert encoder with relu"), ({"model_type": "t5"}, "t5")]
)
def test_an_encoder_that_the_graph_cannot_express_is_named(
    exported: Exported, change: dict[str, str], message: str
) -> None:
    weights = SharedWeights(exported.weights)
    weights.config = {**weights.config, **change}
    with pytest.raises(VerificationError, match=f"no graph is known for a {message}"):
        option_graph(weights, "fp32")


def test_a_tensor_that_is_not_in_the_file_is_named(exported: Exported) -> None:
    weights = SharedWeights(exported.weights)
    weights.config = {**weights.config, "num_hidden_layers": 3}
    with pytest.raises(VerificationError, match=r"no tensor encoder\.encoder\.layer\.2\."):
        option_graph(weights, "fp32")


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_every_way_of_storing_weights_keeps_parity(
    encoding: OptionsEncoding, tmp_path: Path, ranges: bool, blocks: bool
) -> None:
    """Vocabulary, positions, hidden and inner width all 64, and two layers with the same numbers."""
    torch.manual_seed(3)
    encoder: Any = new_encoder(CONFIG)
    encoder.encoder.layer[1].load_state_dict(encoder.encoder.layer[0].state_dict())
    model = OptionModel(encoder)
    if blocks:
        table = model.encoder.get_input_embeddings().weight  # type: ignore[operator]
        numbers = torch.randint(-8, 8, (64, 2, 32))
        numbers[..., 5] = -8
        with torch.no_grad():
            table.copy_((numbers * (torch.rand(64, 2, 1) * 0.03).half().float()).flatten(1))
    channels = {name: layers[0].in_features for name, layers in linear_layers(model).items()}
    given = {
        name: InputRange(torch.exp2(torch.randint(-1, 2, (number,)).float()), torch.randn(number) * 0.2)
        for name, number in channels.items()
    }
    round_weights(model, given if ranges else None)
    save_weights(model, tmp_path / "weights.safetensors", given if ranges else None)
    stored = load_weights(tmp_path / "weights.safetensors")
    table_of = stored_tensors(tmp_path / "weights.safetensors")
    assert any(name.endswith(INPUT_SCALE_SUFFIX) for name in table_of) is ranges
    assert (len(table_of["encoder.embeddings.word_embeddings.weight"].shape) == 3) is blocks
    rows = made_up_rows(encoding, 3, 20, 4, pieces=64)
    exact = expected(stored, encoding, rows)
    for precision, limit in (("fp32", 1e-4), ("int8", 0.5 * exact.std())):
        path = tmp_path / f"{precision}.onnx"
        onnx.save_model(option_graph(SharedWeights(tmp_path / "weights.safetensors"), precision), path)
        assert np.abs(scorer_of(path).scores(rows) - exact).max() < limit


def test_parity_on_real_rows(
    exported: Exported, encoding: OptionsEncoding, fp32: OptionScorer, texts: list[str]
) -> None:
    questions = [{"q": YesNo("Late?")}, {"q": Choice("Which?", ["food", "music", "sport", "hotel"])}]
    rows = [row for i, text in enumerate(texts[:12]) for row in encoding.encode(text, questions[i % 2])[0]]
    parity = measure_parity(exported.model, fp32, encoding, [rows[:5], rows[5:]])
    assert parity.options == 36
    require_parity(parity)


def test_parity_compares_real_options_only(exported: Exported, encoding: OptionsEncoding, texts: list[str]) -> None:
    questions = [{"q": YesNo("Late?")}, {"q": Choice("Which?", ["food", "music", "sport", "hotel"])}]
    rows = [row for i, text in enumerate(texts[:6]) for row in encoding.encode(text, questions[i % 2])[0]]

    class Spoiled:
        """Wrong by 1 wherever there is no option, and by 0.5 at the last option of each row."""

        def scores(self, rows: list[Row]) -> np.ndarray:
            logits = expected(exported.model, encoding, rows)
            for i, row in enumerate(rows):
                logits[i, len(row.markers) :] += 1
                logits[i, len(row.markers) - 1] += 0.5
            return logits

    parity = measure_parity(exported.model, Spoiled(), encoding, [rows])  # type: ignore[arg-type]
    assert parity.options == sum(len(row.markers) for row in rows)
    assert parity.largest == pytest.approx(0.5, abs=1e-5)
    assert parity.mean == pytest.approx(0.5 * len(rows) / parity.options, abs=1e-5)


@pytest.mark.parametrize("largest", [1e-4, 0.5, float("nan"), float("inf")])
def test_a_graph_that_departs_is_refused(largest: float) -> None:
    with pytest.raises(VerificationError, match="departs from PyTorch"):
        require_parity(Parity(largest, 0.0, 10))
