"""An option model in two passes: the same logits as in one, and only where option texts can be read apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

from julia1 import EngineError, YesNo  # noqa: E402
from julia1.model import OptionModel, new_encoder  # noqa: E402
from julia1.model.option_reading import read_options  # noqa: E402
from julia1.text import OptionsEncoding  # noqa: E402

if TYPE_CHECKING:
    from conftest import Exported


def test_a_row_without_kept_text_is_read_as_in_one_pass(exported: Exported, encoding: OptionsEncoding) -> None:
    """Where a row carries the text of its options itself, markers see it there."""
    rows = [encoding.encode(text, {"q": YesNo("Late?")})[0][0] for text in ("where is my order", "good")]
    feeds = {name: torch.from_numpy(array) for name, array in encoding.collate(rows).feeds().items()}
    stem = {**feeds, "leaves": feeds["leaves"].clamp_min(0)}
    number, width = feeds["markers"].shape[1], exported.model.encoder.config.hidden_size
    nothing = torch.zeros(2, 0, width)
    layers = exported.model.encoder.config.num_hidden_layers
    with torch.inference_mode():
        read = read_options(
            exported.model,
            stem,
            torch.ones(2, number, width),
            torch.zeros(2, 0, dtype=torch.int64),
            [(nothing, nothing)] * layers,
        )
        trunk_alone = read_options(
            exported.model,
            {name: values[:, :4] if name != "markers" else values * 0 for name, values in stem.items()},
            torch.ones(2, number, width),
            torch.zeros(2, 0, dtype=torch.int64),
            [(nothing, nothing)] * layers,
        )
    assert read.logits.shape == feeds["markers"].shape
    assert len(read.kept) == layers
    assert read.kept[0][0].shape == (*feeds["input_ids"].shape, width)
    shortest = int((feeds["branches"][1] == 0).sum())
    assert shortest <= 4, "the second text is read whole by the second call"
    assert torch.allclose(read.trunk[1], trunk_alone.trunk[1], atol=1e-5), "the trunk sees nothing but itself"


def test_an_encoder_that_is_no_bert_is_named() -> None:
    config = {
        "model_type": "modernbert",
        "vocab_size": 50,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "pad_token_id": 0,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = OptionModel(new_encoder(config))
    with pytest.raises(EngineError, match="by a modernbert encoder: only by a bert"):
        read_options(model, {}, torch.zeros(0), torch.zeros(0), [])
