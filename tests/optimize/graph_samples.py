"""Small ONNX models: built node by node, and exported from PyTorch as users export theirs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Axes = Sequence[int | str]


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node from names between blanks, called like its first output."""
    return helper.make_node(kind, inputs.split(), outputs.split(), name=outputs.split()[0], **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, Axes]],
    outputs: Sequence[str],
    stored: dict[str, npt.NDArray[Any]] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    """A model whose outputs are float tensors of any shape."""
    graph = helper.make_graph(
        nodes,
        "sample",
        [helper.make_tensor_value_info(name, kind, axes) for name, (kind, axes) in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (stored or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 10
    return made


def weights(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class TextCnn(nn.Module):
    """Embeddings, three convolutions of different widths, the largest value of each, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(60, 8)
        self.convs = nn.ModuleList([nn.Conv1d(8, 6, size) for size in (2, 3, 4)])
        self.out = nn.Linear(18, 4)

    def forward(self, ids: Tensor) -> Tensor:
        values = self.table(ids).transpose(1, 2)
        pooled = [torch.relu(conv(values)).amax(2) for conv in self.convs]
        made: Tensor = self.out(torch.cat(pooled, 1))
        return made


class SmallBert(nn.Module):
    """A classifier of transformers with its logits alone."""

    def __init__(self, layers: int = 3, vocabulary: int = 80) -> None:
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        config = BertConfig(
            vocab_size=vocabulary,
            hidden_size=16,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=32,
            num_labels=5,
            initializer_range=0.3,
        )
        self.model = BertForSequenceClassification(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits


def exported(module: nn.Module, inputs: dict[str, Tensor], path: Path, training: bool = False) -> Path:
    """A module as PyTorch's exporter writes it, rows and tokens dynamic."""
    torch.manual_seed(0)
    module.train(training)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in inputs},
            opset_version=17,
            dynamo=False,
            training=torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL,
        )
    return path


def bert_inputs() -> dict[str, Tensor]:
    ids = torch.randint(0, 80, (2, 7))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
