"""Loading a Hugging Face folder, trimmed in vocabulary and depth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from julia1 import InputError  # noqa: E402
from julia1.model import load_encoder, new_encoder  # noqa: E402
from julia1.model.backbone import backbone_config, complete_config, config_dictionary, take_pooler  # noqa: E402

CONFIG = {
    "model_type": "bert",
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.1,
}


@pytest.fixture(scope="module")
def whole() -> Any:
    torch.manual_seed(9)
    return new_encoder(CONFIG).eval()


@pytest.fixture(scope="module")
def folder(whole: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("backbone")
    whole.save_pretrained(place)
    return place


def hidden(encoder: Any, ids: list[int]) -> Any:
    with torch.inference_mode():
        return encoder.eval()(input_ids=torch.tensor([ids])).last_hidden_state


def test_a_loaded_encoder_is_the_saved_one_without_dropout(folder: Path, whole: Any) -> None:
    encoder: Any = load_encoder(folder)
    assert torch.allclose(hidden(encoder, [1, 5, 9]), hidden(whole, [1, 5, 9]), atol=1e-6)
    assert encoder.pooler is None
    encoder.train()
    with torch.no_grad():
        first, second = (encoder(input_ids=torch.tensor([[1, 5]])).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)


def test_a_pooler_is_taken_only_where_it_is_pretrained(folder: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    assert take_pooler(load_encoder(folder)) is None
    pooled: Any = BertModel(BertConfig(**{k: v for k, v in CONFIG.items() if k != "model_type"}))
    pooled.save_pretrained(tmp_path)
    encoder: Any = load_encoder(tmp_path)
    taken = take_pooler(encoder)
    assert taken is not None
    assert torch.equal(taken.weight, pooled.pooler.dense.weight)
    assert encoder.pooler is None


def test_kept_pieces_get_their_rows_in_the_new_order(folder: Path, whole: Any) -> None:
    keep = [7, 2, 29, 5]
    encoder: Any = load_encoder(folder, keep_pieces=keep)
    assert encoder.config.vocab_size == 4
    assert encoder.get_input_embeddings().weight.requires_grad
    assert torch.allclose(hidden(encoder, [0, 3, 2]), hidden(whole, [7, 5, 29]), atol=1e-6)


@pytest.mark.parametrize(("number", "chosen"), [(1, [3]), (2, [1, 3]), (3, [0, 2, 3]), (4, [0, 1, 2, 3])])
def test_kept_layers_are_spread_and_end_with_the_last(folder: Path, whole: Any, number: int, chosen: list[int]) -> None:
    encoder: Any = load_encoder(folder, layers=number)
    assert encoder.config.num_hidden_layers == number
    for layer, index in zip(encoder.encoder.layer, chosen, strict=True):
        expected = whole.encoder.layer[index].state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in layer.state_dict().items())


@pytest.mark.parametrize("number", [0, 5, -1])
def test_a_number_of_layers_that_is_not_there_is_refused(folder: Path, number: int) -> None:
    with pytest.raises(InputError, match=f"the backbone has 4 layers, {number} were asked for"):
        load_encoder(folder, layers=number)


def test_only_a_model_folder_is_loaded_and_nothing_is_fetched(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "intfloat/multilingual-e5-small"):
        with pytest.raises(InputError, match="not a Hugging Face model folder"):
            load_encoder(place)


def test_a_config_makes_the_same_encoder_again(folder: Path) -> None:
    encoder = load_encoder(folder, layers=2, keep_pieces=[0, 1, 2])
    again: Any = new_encoder(config_dictionary(encoder))
    assert {n: v.shape for n, v in again.state_dict().items()} == {n: v.shape for n, v in encoder.state_dict().items()}


FAMILY: dict[str, dict[str, Any]] = {
    "xlm-roberta": {"max_position_embeddings": 20, "pad_token_id": 1, "type_vocab_size": 1},
    "roberta": {"max_position_embeddings": 20, "pad_token_id": 1, "type_vocab_size": 1},
    "camembert": {"max_position_embeddings": 20, "pad_token_id": 1, "type_vocab_size": 1},
    "distilbert": {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12, "max_position_embeddings": 16},
}


@pytest.mark.parametrize("kind", FAMILY)
def test_encoders_of_the_family_become_bert_and_stay_the_same(kind: str, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModel

    common = {key: value for key, value in CONFIG.items() if key not in ("model_type", "max_position_embeddings")}
    given = {"vocab_size": 30} if kind == "distilbert" else {**common, "num_hidden_layers": 2}
    torch.manual_seed(3)
    original: Any = AutoModel.from_config(AutoConfig.for_model(kind, **{**given, **FAMILY[kind]})).eval()
    original.save_pretrained(tmp_path)
    encoder: Any = load_encoder(tmp_path)
    assert encoder.config.model_type == "bert"
    assert encoder.config.max_position_embeddings == FAMILY[kind]["max_position_embeddings"] - (
        0 if kind == "distilbert" else 2
    )
    for ids in ([5], [5, 9, 7, 20], list(range(2, 18))):
        with torch.inference_mode():
            mask = torch.ones(1, len(ids), dtype=torch.int64)
            expected = original(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state
        assert torch.allclose(hidden(encoder, ids), expected, atol=1e-6)
    assert backbone_config(tmp_path)["max_position_embeddings"] == encoder.config.max_position_embeddings
    assert backbone_config(tmp_path)["hidden_size"] == 8


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "foo"}, "the model_type 'foo', which transformers does not know: name another encoder"),
        ({}, "names no model_type: name the type of the encoder"),
        ({"model_type": ["bert"]}, "has the model_type \\['bert'\\]"),
        ([], "is \\[\\], not an object"),
        ({**CONFIG, "hidden_size": "wide"}, "of a bert encoder .*'hidden_size' expected int, got str"),
        ({**CONFIG, "id2label": 3}, "does not take this config of a bert encoder"),
        ({"model_type": "xlm-roberta", "max_position_embeddings": None}, "of a xlm-roberta encoder"),
        ({"model_type": "distilbert", "dim": [8]}, "of a distilbert encoder .*'dim' expected int"),
        (
            {**CONFIG, "model_type": "new", "auto_map": {"AutoModel": "own.Model"}},
            "'new', which transformers does not know, and the custom code .*own.Model.* is never run",
        ),
    ],
)
def test_a_config_that_transformers_does_not_take_is_one_error(
    folder: Path, tmp_path: Path, config: Any, words: str
) -> None:
    place = shutil.copytree(folder, tmp_path / "broken")
    (place / "config.json").write_text(json.dumps(config))
    (place / "own.py").write_text("raise SystemExit('run')")
    for read in (backbone_config, load_encoder):
        with pytest.raises(InputError, match=words) as caught:
            read(place)
        said = str(caught.value)
        assert str(place / "config.json") in said and ("modernbert" in said or config == [])
        assert len(said) < 700 and "\n" not in said
    with pytest.raises(InputError, match=words):
        complete_config(config)


def test_a_config_of_the_family_may_leave_fields_to_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "distilbert"}')
    assert backbone_config(tmp_path)["hidden_size"] == 768


@pytest.mark.parametrize("break_it", ["missing", "damaged", "other"])
def test_weights_that_do_not_load_are_one_error(folder: Path, tmp_path: Path, break_it: str) -> None:
    place = shutil.copytree(folder, tmp_path / "broken")
    weights = place / "model.safetensors"
    if break_it == "missing":
        weights.unlink()
    elif break_it == "damaged":
        weights.write_bytes(weights.read_bytes()[:50])
    else:
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, "num_attention_heads": 3}))
    with pytest.raises(InputError, match="holds no model that transformers can load: ") as caught:
        load_encoder(place)
    assert "\n" not in str(caught.value)
