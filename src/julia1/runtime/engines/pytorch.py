"""PyTorch as an engine: where no other runs, and on a GPU in half precision.

It opens the weight file of a variant and not its graph, expands the low-bit weights as the fp32 graph does, and
computes them with the model of ``julia1.model``. No other module of ``runtime`` may import ``julia1.model``: a second
copy of the encoder here could depart from the one that was trained. The import happens when an engine is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from julia1.errors import BundleError, EngineError, InputError, MissingExtraError
from julia1.runtime.engines._settings import checked_settings
from julia1.runtime.fixed import ATTENTION_MASK, CATEGORIES, HEAD, INPUT_IDS, NUMBERS, WINDOW_WEIGHT
from julia1.runtime.scorer import (
    CONTEXT_KEYS,
    CONTEXT_LEAVES,
    CONTEXT_VALUES,
    KEYS,
    LOGITS,
    OPTION_VECTORS,
    TRUNK_MEAN,
    VALUES,
)
from julia1.text.options import INPUT_NAMES

if TYPE_CHECKING:
    import torch

PRECISIONS = {"f32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Names as the engines have them, and PyTorch's."""


class PyTorchEngine:
    """Runs the weights of a bundle. Safe to share between threads.

    Args:
        weights: a weight file of ``julia1.model.weights``.
        threads: on a CPU; what else uses PyTorch in this process keeps its own number.
        settings: ``device``, ``"cpu"`` or ``"cuda"`` (the GPU where there is one, without it); ``precision`` of the
            encoder, ``"f32"``, ``"bf16"`` or ``"fp16"``: without it f32 on a CPU, and on a GPU bf16, or fp16 where it
            has no bf16. Heads are always computed in f32.

    Raises:
        MissingExtraError: PyTorch or a library that comes with it is not installed.
        EngineError: the file cannot be read, or the device or precision is not there.
        InputError: an unknown setting.
    """

    def __init__(self, weights: Path, threads: int, settings: Mapping[str, Any] | None = None) -> None:
        chosen = checked_settings("pytorch", settings, {"device": ("cpu", "cuda"), "precision": tuple(PRECISIONS)})
        try:
            import safetensors  # noqa: F401
            import torch
            import transformers  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(error.name or "PyTorch", "pytorch") from None
        from julia1.model.option_model import OptionModel
        from julia1.model.weights import load_any

        self._device, self.precision = choose_device(chosen.get("device"), chosen.get("precision"))
        self._threads = threads
        try:
            with self._own_threads():
                model = load_any(weights)
                model.to(self._device)
                model.encoder.to(getattr(torch, PRECISIONS[self.precision]))
        except (BundleError, InputError) as error:
            raise EngineError(f"PyTorch {torch.__version__} cannot load {weights}: {error}") from None
        except Exception as error:  # transformers on a config, the GPU on its memory
            raise EngineError(f"PyTorch {torch.__version__} cannot load {weights}: {_gist(error)}") from None
        self._model = model
        config: Any = model.encoder.config
        self._layers = int(config.num_hidden_layers)
        if isinstance(model, OptionModel):
            self._inputs = _option_inputs(self._layers, int(config.hidden_size))
        else:
            self._inputs, self._heads = _fixed_interface(model)

    @property
    def inputs(self) -> Mapping[str, Sequence[int | str]]:
        """Shape of each input by name; a dynamic axis is a name."""
        return self._inputs

    def run(
        self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Sequence[str]
    ) -> list[npt.NDArray[np.float32]]:
        """The named outputs for a batch, fp32; raises ``EngineError`` when the engine fails."""
        import torch

        try:
            with self._own_threads(), torch.inference_mode():
                tensors = {
                    name: torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
                    for name, array in feeds.items()
                }
                found = self._computed(tensors)
                return [found[name].float().cpu().numpy() for name in outputs]
        except Exception as error:
            shape = feeds[INPUT_IDS].shape
            raise EngineError(f"PyTorch failed on a batch of shape {shape}: {_gist(error)}") from None

    def _computed(self, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Every output by the graph's name."""
        from julia1.model.option_model import OptionModel
        from julia1.model.option_reading import read_options

        if not isinstance(self._model, OptionModel):
            of_heads = self._model(**tensors)
            return {name: of_heads[key] for name, key in self._heads.items()}
        context = [(tensors[CONTEXT_KEYS.format(i)], tensors[CONTEXT_VALUES.format(i)]) for i in range(self._layers)]
        read = read_options(self._model, tensors, tensors[OPTION_VECTORS], tensors[CONTEXT_LEAVES], context)
        found = {LOGITS: read.logits, TRUNK_MEAN: read.trunk}
        for i, (keys, values) in enumerate(read.kept):
            found |= {KEYS.format(i): keys, VALUES.format(i): values}
        return found

    @contextmanager
    def _own_threads(self) -> Iterator[None]:
        """Compute with this engine's threads, and leave the calling thread's number as it was."""
        import torch

        before = torch.get_num_threads()
        if before == self._threads:
            yield
            return
        torch.set_num_threads(self._threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def choose_device(device: str | None, precision: str | None) -> tuple[str, str]:
    """The device to run on and the precision of the encoder: what is asked for, else what suits the machine.

    Raises:
        EngineError: what is asked for is not there.
    """
    import torch

    on_gpu = torch.cuda.is_available()
    if device == "cuda" and not on_gpu:
        raise EngineError(f"PyTorch {torch.__version__} finds no GPU here: leave the device out, or take cpu")
    device = device or ("cuda" if on_gpu else "cpu")
    if device == "cpu":
        return device, precision or "f32"
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bf16" and not has_bf16:
        raise EngineError(f"the GPU {torch.cuda.get_device_name()} has no bf16: take fp16 or f32")
    return device, precision or ("bf16" if has_bf16 else "fp16")


def _option_inputs(layers: int, width: int) -> dict[str, tuple[int | str, ...]]:
    tokens, context = ("rows", "tokens"), ("rows", "context")
    inputs: dict[str, tuple[int | str, ...]] = dict.fromkeys(INPUT_NAMES, tokens)
    inputs |= {"markers": ("rows", "options"), CONTEXT_LEAVES: context, OPTION_VECTORS: ("rows", "options", width)}
    names = [name.format(number) for number in range(layers) for name in (CONTEXT_KEYS, CONTEXT_VALUES)]
    return inputs | dict.fromkeys(names, (*context, width))


def _fixed_interface(model: Any) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str]]:
    """Inputs of a model with fixed heads, and the graph's name of each output with the model's."""
    from julia1.model.fixed_model import WINDOW_WEIGHT as MODEL_WINDOW_WEIGHT

    inputs: dict[str, tuple[int | str, ...]] = dict.fromkeys((INPUT_IDS, ATTENTION_MASK), ("rows", "tokens"))
    if model.feature_spec:
        inputs[NUMBERS] = ("rows", len(model.feature_spec.numbers))
        inputs[CATEGORIES] = ("rows", len(model.feature_spec.categories))
    heads = {HEAD.format(number): spec.name for number, spec in enumerate(model.specs)}
    if model.window_weight is not None:
        heads[WINDOW_WEIGHT] = MODEL_WINDOW_WEIGHT
    return inputs, heads


def _gist(error: Exception) -> str:
    """The first line of an error of PyTorch, which may have a page of C++ frames after it."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
