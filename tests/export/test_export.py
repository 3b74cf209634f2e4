"""Traced and rewritten graphs: parity, dynamic shapes, standard operators, and one shared weight file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

from julia1 import Choice, VerificationError, YesNo  # noqa: E402
from julia1.export import Parity, SharedWeights, measure_parity, require_parity, rewrite, trace  # noqa: E402
from julia1.export.eight_bit import stored_tensors  # noqa: E402
from julia1.model import OptionModel, load_weights, new_encoder, round_weights, save_weights  # noqa: E402
from julia1.runtime.engines import open_engine  # noqa: E402
from julia1.text import Encoded, OptionsEncoding  # noqa: E402
from julia1.text.options import INPUT_NAMES  # noqa: E402

if TYPE_CHECKING:
    from conftest import Exported

PRECISIONS = ("fp32", "int8")


def made_up_batch(rows: int, tokens: int, options: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of random pieces: a trunk, one branch and its leaves, the last row half padding when there are several."""
    random = np.random.default_rng(seed)
    trunk, branch = max(1, tokens // 2), max(1, tokens // 4)
    ids = random.integers(0, 300, (rows, tokens))
    branches = np.where(np.arange(tokens) < trunk, 0, 1)[None].repeat(rows, 0)
    place = np.arange(tokens)
    number = (1 + place % options) * np.where(place // options % 2, -1, 1)  # markers and texts
    leaf = np.where(place < trunk + branch, 0, number)
    leaves = leaf[None].repeat(rows, 0)
    positions = (np.arange(tokens) % 120)[None].repeat(rows, 0)
    markers = random.integers(0, tokens, (rows, options))
    if rows > 1 and tokens > 3:
        branches[-1, tokens * 3 // 4 :] = -1
        leaves[-1, tokens * 3 // 4 :] = 0
        markers[-1] %= tokens * 3 // 4
    return dict(
        zip(INPUT_NAMES, (x.astype(np.int64) for x in (ids, positions, branches, leaves, markers)), strict=True)
    )


def expected(model: OptionModel, feeds: dict[str, np.ndarray]) -> np.ndarray:
    with torch.inference_mode():
        found: np.ndarray = model(**{name: torch.from_numpy(array) for name, array in feeds.items()}).numpy()
    return found


@pytest.fixture(scope="module", params=PRECISIONS)
def graph(request: pytest.FixtureRequest, exported: Exported) -> onnx.ModelProto:
    return onnx.load_model(exported.graphs[request.param], load_external_data=False)


@pytest.fixture(scope="module")
def fp32_engine(exported: Exported) -> Any:
    return open_engine("onnxruntime", exported.graphs["fp32"], 1)


def test_rows_tokens_and_options_are_dynamic(graph: onnx.ModelProto) -> None:
    shapes = {
        value.name: [d.dim_param for d in value.type.tensor_type.shape.dim]
        for value in [*graph.graph.input, *graph.graph.output]
    }
    assert list(shapes) == [*INPUT_NAMES, "logits"]
    assert shapes == {
        **{name: ["rows", "tokens"] for name in INPUT_NAMES},
        "markers": ["rows", "options"],
        "logits": ["rows", "options"],
    }


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(("tokens", "options"), [(1, 1), (2, 1), (9, 3), (31, 2), (64, 20)])
def test_fp32_agrees_with_pytorch_in_any_shape(
    exported: Exported, fp32_engine: Any, rows: int, tokens: int, options: int
) -> None:
    feeds = made_up_batch(rows, tokens, options)
    found = fp32_engine.run(feeds)
    assert found.shape == (rows, options)
    assert np.abs(found - expected(exported.model, feeds)).max() < 1e-4


@pytest.mark.parametrize("tokens", [127, 128, 129, 255, 256, 257, 288])
def test_fp32_agrees_around_the_lengths_that_kernels_like(exported: Exported, fp32_engine: Any, tokens: int) -> None:
    feeds = made_up_batch(2, tokens, 5, seed=tokens)
    assert np.abs(fp32_engine.run(feeds) - expected(exported.model, feeds)).max() < 1e-4


def test_int8_stays_close_to_fp32(exported: Exported, fp32_engine: Any, decider_int8: object) -> None:
    engine = open_engine("onnxruntime", exported.graphs["int8"], 1)
    differences, spread = [], []
    for seed in range(8):
        feeds = made_up_batch(3, 40, 6, seed)
        exact, found = fp32_engine.run(feeds), engine.run(feeds)
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


def test_int8_multiplies_integers_in_every_linear_layer(exported: Exported) -> None:
    linear = sum(isinstance(module, torch.nn.Linear) for module in exported.model.modules())
    int8 = onnx.load_model(exported.graphs["int8"], load_external_data=False)
    assert sum(node.op_type == "MatMulInteger" for node in int8.graph.node) == linear
    assert not any(node.op_type == "DynamicQuantizeLinear" for node in int8.graph.node), "one scale a tensor"


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
        width = 1 if tensor.data_type == onnx.TensorProto.INT8 else 4
        assert stored.length == width * int(np.prod(stored.shape))


def test_only_small_constants_are_inline(graph: onnx.ModelProto) -> None:
    inline = [t for t in graph.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
    assert max(numpy_helper.to_array(tensor).size for tensor in inline) <= 512
    assert graph.ByteSize() < 100_000


def test_every_matrix_of_the_model_is_read_from_the_file(exported: Exported) -> None:
    from julia1.model.weights import matrix_modules

    for path in exported.graphs.values():
        graph = onnx.load_model(path, load_external_data=False).graph
        used = {name for node in graph.node for name in node.input}
        unused = set(matrix_modules(exported.model)) - used - {"encoder.embeddings.token_type_embeddings.weight"}
        assert not unused


def test_rewriting_changes_neither_the_file_nor_the_traced_graph(exported: Exported) -> None:
    weights, traced = exported.weights.read_bytes(), exported.traced.SerializeToString(deterministic=True)
    shared = SharedWeights(exported.weights)
    first, second = (rewrite(exported.traced, shared, "int8") for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    assert exported.weights.read_bytes() == weights
    assert exported.traced.SerializeToString(deterministic=True) == traced


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_matrix_that_is_not_in_the_file_is_refused(exported: Exported, precision: str) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(exported.traced)
    tensor = next(t for t in changed.graph.initializer if list(t.dims) == [64, 128])
    value = numpy_helper.to_array(tensor) + np.float32(1e-3)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    with pytest.raises(VerificationError, match=r"the weight .* \(64, 128\) is not in the weight file"):
        rewrite(changed, SharedWeights(exported.weights), precision)


def test_shapes_and_weights_that_coincide_are_told_apart(tmp_path: Path) -> None:
    """Vocabulary, positions, hidden and inner width all 64, and two layers with the same numbers."""
    torch.manual_seed(3)
    config = {
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
    encoder: Any = new_encoder(config)
    encoder.encoder.layer[1].load_state_dict(encoder.encoder.layer[0].state_dict())
    model = OptionModel(encoder)
    round_weights(model)
    save_weights(model, tmp_path / "weights.safetensors")
    stored = load_weights(tmp_path / "weights.safetensors")
    onnx.save_model(
        rewrite(trace(stored), SharedWeights(tmp_path / "weights.safetensors"), "fp32"), tmp_path / "model.onnx"
    )
    feeds = made_up_batch(3, 20, 4)
    feeds = {**feeds, "input_ids": feeds["input_ids"] % 64, "position_ids": feeds["position_ids"] % 64}
    found = open_engine("onnxruntime", tmp_path / "model.onnx", 1).run(feeds)
    assert np.abs(found - expected(stored, feeds)).max() < 1e-4


def test_parity_compares_real_options_only(exported: Exported, encoding: OptionsEncoding, texts: list[str]) -> None:
    questions = [{"q": YesNo("Late?")}, {"q": Choice("Which?", ["food", "music", "sport", "hotel"])}]
    rows = [row for i, text in enumerate(texts[:6]) for row in encoding.encode(text, questions[i % 2])[0]]
    batch, counts = encoding.collate(rows), [len(row.markers) for row in rows]

    class Spoiled:
        """Wrong by 1 wherever there is no option."""

        def run(self, feeds: dict[str, np.ndarray]) -> np.ndarray:
            logits = expected(exported.model, feeds)
            for i, count in enumerate(counts):
                logits[i, count:] += 1
            return logits

    parity = measure_parity(exported.model, Spoiled(), [(batch, counts)])
    assert parity == Parity(0.0, 0.0, sum(counts))
    everything = measure_parity(exported.model, Spoiled(), [(batch, [batch.markers.shape[1]] * len(rows))])
    assert everything.largest == pytest.approx(1, abs=1e-5)


def test_parity_on_real_rows(exported: Exported, encoding: OptionsEncoding, fp32_engine: Any, texts: list[str]) -> None:
    batches: list[tuple[Encoded, list[int]]] = []
    for start in range(0, 12, 4):
        rows = [row for text in texts[start : start + 4] for row in encoding.encode(text, {"q": YesNo("Late?")})[0]]
        batches.append((encoding.collate(rows), [len(row.markers) for row in rows]))
    parity = measure_parity(exported.model, fp32_engine, batches)
    assert parity.options == 24
    require_parity(parity)


@pytest.mark.parametrize("largest", [1e-4, 0.5, float("nan"), float("inf")])
def test_a_graph_that_departs_is_refused(largest: float) -> None:
    with pytest.raises(VerificationError, match="departs from PyTorch"):
        require_parity(Parity(largest, 0.0, 10))
