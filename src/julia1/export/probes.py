"""What a model computes on the way: embeddings, every encoder layer, pooling, heads; in PyTorch and in a graph.

Three forms of a model give the same names: a module (hooks), an exported program (the nodes of a submodule) and an ONNX
graph (tensors, which are made outputs). Names are ``embeddings``, ``layer.N``, ``final_norm`` (ModernBERT), ``pooled``,
``window_weight``, ``head.NAME``. A value of tokens is ``[rows, tokens, width]``, any other ``[rows, outputs]``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from julia1.bundle.heads import HeadSpec
from julia1.export.onnx_file import read_model, save
from julia1.export.running import Arrays, called
from julia1.export.writing import writing
from julia1.model.fixed_model import WINDOW_WEIGHT as MODULE_WINDOW_WEIGHT
from julia1.runtime.engines import Engine, open_engine
from julia1.runtime.fixed import HEAD, WINDOW_WEIGHT
from julia1.runtime.scorer import TRUNK_MEAN

EMBEDDINGS, FINAL_NORM, POOLED, LAYER = "embeddings", "final_norm", "pooled", "layer.{}"
Values = dict[str, npt.NDArray[Any]]
_OF_TOKENS = (EMBEDDINGS, "layer.", FINAL_NORM)

_MODULES = re.compile(r"(?:encoder\.)?(?:(embeddings)|(final_norm)|(?:encoder\.layer|layers)\.(\d+))")
_BERT_LAYER = re.compile(r"encoder\.encoder\.layer\.(\d+)\.output\.LayerNorm")
_MODERNBERT_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
_TABLE = re.compile(r"(?:encoder\.)?embeddings\.(?:word|tok)_embeddings\.weight")
_INTEGER_PRODUCTS = ("MatMulInteger", "QLinearMatMul", "QGemm", "ConvInteger")
_TYPE_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


@dataclass(frozen=True)
class Types:
    """Types of a model's numbers.

    Attributes:
        inputs, outputs: by name, such as ``int64`` and ``float32``.
        products: in which types matrices are multiplied, such as ``fp32``; several are sorted.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    products: tuple[str, ...] = ()


class Probe(Protocol):
    """A model that shows what it computes.

    Attributes:
        pieces: rows of its embedding table, ``None`` where none is found.
    """

    pieces: int | None

    def values(self, feeds: Arrays) -> Values:
        """What it computes for a batch, by name, in the order it is computed in."""
        ...

    def types(self, feeds: Arrays) -> Types:
        """The types of its numbers, for inputs such as these."""
        ...


class ModuleProbe:
    """A PyTorch module: a decision model, or a Hugging Face encoder by itself."""

    def __init__(self, module: nn.Module, heads: Sequence[HeadSpec] = ()) -> None:
        self.call: Callable[..., Any] = module
        self._module, self._heads = module, heads
        self.pieces = _pieces_of({name: value.shape for name, value in module.named_parameters()})

    def values(self, feeds: Arrays) -> Values:
        """See ``Probe``."""
        found: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[[nn.Module, Any, Any], None]:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                found[name] = output[0] if isinstance(output, tuple) else output

            return hook

        def keep_pooled(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found.setdefault(POOLED, inputs[0] if self._heads else inputs[-1])  # an option head is given the trunk last

        handles = []
        reader = _pooled_reader(self._heads)
        for path, module in self._module.named_modules():
            if name := _layer_name(path):
                handles.append(module.register_forward_hook(keep(name)))
            elif path == reader:
                handles.append(module.register_forward_pre_hook(keep_pooled))
        try:
            outputs = called(self.call, feeds)
        finally:
            for handle in handles:
                handle.remove()
        return _arrays({**found, **_named_outputs(outputs, self._heads)})

    def types(self, feeds: Arrays) -> Types:
        """See ``Probe``."""
        matrices = {parameter.dtype for parameter in self._module.parameters() if parameter.dim() > 1}
        return _module_types(feeds, _named_outputs(called(self.call, feeds), self._heads), matrices)


class ProgramProbe:
    """An exported program: the value of a submodule is that of the last node that was traced in it."""

    def __init__(self, program: torch.export.ExportedProgram, heads: Sequence[HeadSpec] = ()) -> None:
        module = program.module()
        self.call: Callable[..., Any] = module
        self._program, self._heads = program, heads
        self.pieces = _pieces_of({name: value.shape for name, value in program.state_dict.items()})
        self._graph: Any = module
        first: dict[str, Any] = {}
        last: dict[str, Any] = {}
        for node in self._graph.graph.nodes:
            for path, _ in (node.meta.get("nn_module_stack") or {}).values():
                path = path.removeprefix("L['self'].")
                first.setdefault(path, node)
                last[path] = node
        self._nodes = {node: name for path, node in last.items() if (name := _layer_name(path))}
        if (reader := _pooled_reader(heads)) in first:
            self._nodes[first[reader].args[0]] = POOLED

    def values(self, feeds: Arrays) -> Values:
        """See ``Probe``."""
        found: dict[str, Tensor] = {}
        names = self._nodes

        class Watching(torch.fx.Interpreter):
            def run_node(self, n: Any) -> Any:
                result = super().run_node(n)
                if n in names:
                    found[names[n]] = result
                return result

        order = [str(node.target) for node in self._graph.graph.nodes if node.op == "placeholder"]
        tensors = [torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in order]
        with torch.inference_mode():
            Watching(self._graph).run(*tensors)
        return _arrays({**found, **_named_outputs(called(self.call, feeds), self._heads)})

    def types(self, feeds: Arrays) -> Types:
        """See ``Probe``."""
        matrices = {value.dtype for value in self._program.state_dict.values() if value.dim() > 1}
        return _module_types(feeds, _named_outputs(called(self.call, feeds), self._heads), matrices)


class GraphProbe:
    """An ONNX graph whose layers are made outputs; an engine too.

    Layers are found by the names that the graphs of julia1 have, or, where those are gone, by structure: in a BERT
    every layer ends with the second of its two normalizations.

    Args:
        path: the graph.
        heads: of a model with fixed heads.
        threads: of the engine.
    """

    def __init__(self, path: Path, heads: Sequence[HeadSpec], threads: int) -> None:
        model = read_model(path)
        self._heads = heads
        self.pieces = _pieces_of_graph(model.graph)
        self._model_types = _graph_types(model)
        self._graph_inputs = {
            value.name: (
                helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
                [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim],
            )
            for value in model.graph.input
        }
        outputs = {output.name for output in model.graph.output}
        self._tensors = {name: tensor for name, tensor in layer_tensors(model.graph).items() if tensor}
        for tensor in self._tensors.values():
            if tensor not in outputs:
                model.graph.output.append(helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None))
                outputs.add(tensor)
        self._tensors.update(
            (f"head.{h.name}", HEAD.format(i)) for i, h in enumerate(heads) if HEAD.format(i) in outputs
        )
        if WINDOW_WEIGHT in outputs:
            self._tensors[WINDOW_WEIGHT] = WINDOW_WEIGHT
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            probed = Path(folder) / "probed.onnx"
            with writing(probed):
                save(model, probed)
            self._engine: Engine = open_engine("onnxruntime", probed, threads)

    @property
    def inputs(self) -> Mapping[str, Sequence[int | str]]:
        """As of an engine."""
        return self._engine.inputs

    def run(
        self, feeds: Mapping[str, npt.NDArray[np.generic]], outputs: Sequence[str]
    ) -> list[npt.NDArray[np.float32]]:
        """As of an engine; inputs are cast to the types that the graph declares."""
        given = {name: feeds[name].astype(dtype) for name, (dtype, _) in self._graph_inputs.items()}
        return [values.astype(np.float32) for values in self._engine.run(given, outputs)]

    def values(self, feeds: Arrays) -> Values:
        """See ``Probe``; inputs that are left out, such as features and option texts, are given as missing."""
        rows, tokens = feeds["input_ids"].shape
        places: dict[int | str, int] = {"rows": rows, "tokens": tokens, "options": 1, "context": 0}
        blank = {
            name: np.full(
                [places.get(d, d if isinstance(d, int) else 1) for d in shape], np.nan if name == "numbers" else 0
            )
            for name, (_, shape) in self._graph_inputs.items()
            if name not in feeds
        }
        found = self.run({**feeds, **blank}, list(self._tensors.values()))
        return {
            name: value.reshape(rows, tokens, -1) if name.startswith(_OF_TOKENS) else value
            for name, value in zip(self._tensors, found, strict=True)
        }

    def types(self, feeds: Arrays) -> Types:
        """See ``Probe``."""
        renamed = {HEAD.format(number): f"head.{head.name}" for number, head in enumerate(self._heads)}
        outputs = {renamed.get(name, name): value for name, value in self._model_types.outputs.items()}
        return Types(self._model_types.inputs, outputs, self._model_types.products)


def layer_tensors(graph: onnx.GraphProto) -> dict[str, str]:
    """Layer name to the tensor that holds it, in order; empty where no layers are known."""
    by_name = {node.name: node for node in graph.node}
    produced = {output for node in graph.node for output in node.output}
    found: dict[str, str] = {}
    norms = [node for node in graph.node if node.op_type == "LayerNormalization"]
    bert = {int(m[1]): node for node in norms if (m := _BERT_LAYER.fullmatch(node.name))}
    modern = {int(m[1]) for node in graph.node if (m := _MODERNBERT_LAYER.match(node.name))}
    if bert:
        found[EMBEDDINGS] = "encoder.embeddings.LayerNorm" if "encoder.embeddings.LayerNorm" in produced else ""
        found.update((LAYER.format(i), bert[i].output[0]) for i in sorted(bert))
    elif modern:
        found[EMBEDDINGS] = "encoder.embeddings.norm" if "encoder.embeddings.norm" in produced else ""
        for number in sorted(modern):
            # a layer ends with a sum, which is what the next one's normalization reads
            following = by_name.get(f"encoder.layers.{number + 1}.attn_norm") or by_name.get("encoder.final_norm")
            found[LAYER.format(number)] = following.input[0] if following is not None else ""
        found[FINAL_NORM] = by_name["encoder.final_norm"].output[0] if "encoder.final_norm" in by_name else ""
    elif len(norms) >= 3 and len(norms) % 2 and _feeds_a_sum(graph, norms[1].output[0]):
        found[EMBEDDINGS] = norms[0].output[0]
        found.update((LAYER.format(i), norms[2 * i + 2].output[0]) for i in range(len(norms) // 2))
    for tensor in (POOLED, TRUNK_MEAN):
        if tensor in produced:
            found[POOLED] = tensor
    return {name: tensor for name, tensor in found.items() if tensor}


def _feeds_a_sum(graph: onnx.GraphProto, tensor: str) -> bool:
    return any(node.op_type == "Add" and tensor in node.input for node in graph.node)


def _layer_name(path: str) -> str:
    """What a submodule's value is called, '' for none of the names."""
    match = _MODULES.fullmatch(path)
    if match is None:
        return ""
    return match[1] or match[2] or LAYER.format(match[3])


def _pooled_reader(heads: Sequence[HeadSpec]) -> str:
    """The submodule that reads the pooled vectors."""
    if not heads:
        return "head"
    return next((f"heads.{number}" for number, head in enumerate(heads) if head.kind != "tags"), "no head")


def _named_outputs(outputs: Any, heads: Sequence[HeadSpec]) -> dict[str, Tensor]:
    """Outputs of heads by name; those of an encoder or of an option head, whose logits mean nothing here, are none."""
    if not heads:
        return {}
    found = {f"head.{head.name}": outputs[head.name] for head in heads}
    if MODULE_WINDOW_WEIGHT in outputs:
        found[WINDOW_WEIGHT] = outputs[MODULE_WINDOW_WEIGHT]
    return found


def _pieces_of(shapes: Mapping[str, Sequence[int]]) -> int | None:
    return next((int(shape[0]) for name, shape in shapes.items() if _TABLE.fullmatch(name)), None)


def _pieces_of_graph(graph: onnx.GraphProto) -> int | None:
    """The fewest rows of the tables that are looked up by ``input_ids``."""
    rows = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    read = (node.input for node in graph.node if node.op_type == "Gather")
    return min((rows[table] for table, index in read if index == "input_ids" and table in rows), default=None)


def _arrays(tensors: Mapping[str, Tensor]) -> Values:
    return {name: value.detach().float().numpy() for name, value in tensors.items()}


def _module_types(feeds: Arrays, outputs: Mapping[str, Tensor], matrices: set[torch.dtype]) -> Types:
    return Types(
        {name: value.dtype.name for name, value in feeds.items()},
        {name: str(value.dtype).removeprefix("torch.") for name, value in outputs.items()},
        tuple(sorted(_short(str(dtype).removeprefix("torch.")) for dtype in matrices)),
    )


def _graph_types(model: onnx.ModelProto) -> Types:
    def declared(values: Sequence[onnx.ValueInfoProto]) -> dict[str, str]:
        return {value.name: _type_name(value.type.tensor_type.elem_type) for value in values}

    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model)
    elements = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for tensor in skeleton.graph.initializer:
        if len(tensor.raw_data) > 1024:  # inference of types needs the shapes of weights, and a small message
            skeleton.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    kept = [tensor for tensor in skeleton.graph.initializer if len(tensor.raw_data) <= 1024]
    del skeleton.graph.initializer[:]
    skeleton.graph.initializer.extend(kept)
    inferred = onnx.shape_inference.infer_shapes(skeleton).graph
    for value in [*inferred.value_info, *inferred.input, *inferred.output]:
        elements.setdefault(value.name, value.type.tensor_type.elem_type)
    products = set()
    for node in model.graph.node:
        if node.op_type in _INTEGER_PRODUCTS:
            products.add("int8")
        elif node.op_type in ("MatMul", "Gemm") and elements.get(node.input[0]):
            products.add(_short(_type_name(elements[node.input[0]])))
    return Types(declared(model.graph.input), declared(model.graph.output), tuple(sorted(products)))


def _type_name(element: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(element).name)


def _short(name: str) -> str:
    return _TYPE_NAMES.get(name, name)
