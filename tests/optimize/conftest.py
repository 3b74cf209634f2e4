"""Models as users export them, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graph_samples import SmallBert, TextCnn, bert_inputs, exported


@pytest.fixture(scope="session")
def cnn_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(TextCnn(), {"ids": torch.randint(0, 60, (2, 9))}, tmp_path_factory.mktemp("cnn") / "cnn.onnx")


@pytest.fixture(scope="session")
def bert_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(SmallBert(), bert_inputs(), tmp_path_factory.mktemp("bert") / "bert.onnx")
