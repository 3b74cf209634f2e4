"""An input to run a model on that nobody has described: by the names, types and axes of what it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from julia1.bundle import Bundle
from julia1.errors import InputError
from julia1.questions import Choice, Question, YesNo
from julia1.runtime.cpu import probe
from julia1.runtime.decider import Decider, open_plan
from julia1.runtime.engines import Engine
from julia1.runtime.plan import make_plan

SEED = 20
_ROWS = re.compile(r"batch|rows|^n$|^b$", re.IGNORECASE)
_QUESTIONS: Mapping[str, Question] = {
    "which": Choice("Which of these is it about?", ["an order", "a payment", "something else"]),
    "urgent": YesNo("Is it urgent?"),
}


def example_feeds(model: onnx.ModelProto, rows: int = 1, tokens: int = 64) -> dict[str, npt.NDArray[Any]]:
    """Made-up values for every input: ids within the table they are looked up in, masks of ones, positions in order.

    Args:
        model: with its weights inside.
        rows: of axes that vary and are named like a batch, or come first.
        tokens: of all other axes that vary.

    Raises:
        InputError: an input is no tensor of numbers, or its axes are not said.
    """
    rng = np.random.default_rng(SEED)
    stored = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
            raise InputError(f"the input {value.name!r} has no shape: give an .npz file with a value for each input")
        shape = []
        for place, axis in enumerate(kind.shape.dim):
            of_rows = bool(_ROWS.search(axis.dim_param)) or (place == 0 and not axis.dim_value)
            shape.append(int(axis.dim_value) or (rows if of_rows else tokens))
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        found[value.name] = _made_up(model, value.name, tuple(shape), dtype, rng)
    return found


def read_feeds(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` file, by the names of the inputs; raises ``InputError`` when it is not one."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception as error:  # zip, pickle and the file system raise classes of their own
        raise InputError(f"{path} is not an .npz file of arrays: {error}") from None


def bundle_feeds(bundle: Bundle, variant: str, words: int) -> dict[str, npt.NDArray[Any]]:
    """What the graph of a bundle is given for a made-up text, options and all.

    Args:
        bundle: the model.
        variant: name of the variant.
        words: of the text.
    """
    plan = make_plan(bundle, probe(), variant=variant, engine="onnxruntime", threads=1)
    tokenizer, engine = open_plan(bundle, plan)
    watched = _Watched(engine)
    decider = Decider(bundle.manifest, tokenizer, watched, plan)
    text = "word " * words
    decider.decide(
        text,
        None if bundle.manifest.kind == "fixed" else _QUESTIONS,
        second=text if bundle.manifest.compares() else None,
    )
    return watched.last


class _Watched:
    """An engine that keeps what it was given last."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.inputs = engine.inputs
        self.last: dict[str, npt.NDArray[Any]] = {}

    def run(self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Any) -> list[npt.NDArray[np.float32]]:
        self.last = dict(feeds)
        return self._engine.run(feeds, outputs)


def _made_up(
    model: onnx.ModelProto, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator
) -> npt.NDArray[Any]:
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return rng.normal(size=shape).astype(dtype)
    if dtype.kind == "b":
        return np.ones(shape, bool)
    if dtype.kind not in "iu":
        raise InputError(f"the input {name!r} is of {dtype.name}: give an .npz file with a value for each input")
    if "mask" in name:
        return np.ones(shape, dtype)
    if "type" in name:
        return np.zeros(shape, dtype)
    if "position" in name:
        return np.broadcast_to(np.arange(shape[-1], dtype=dtype), shape).copy()
    return rng.integers(0, _rows_looked_up(model, name), shape).astype(dtype)


def _rows_looked_up(model: onnx.ModelProto, name: str) -> int:
    """Rows of the stored table that an input is looked up in; 2 where none is found."""
    tables = {tensor.name: tensor for tensor in model.graph.initializer}
    same = {name}
    for node in model.graph.node:
        if node.op_type in ("Cast", "Identity", "Reshape", "Unsqueeze") and node.input[0] in same:
            same.update(node.output)
        if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] in same and node.input[0] in tables:
            return int(numpy_helper.to_array(tables[node.input[0]]).shape[0])
    return 2
