"""Groups of operators that an engine can run as one, and what keeps it from it.

A group is found from its middle (the ``Softmax`` of an attention, the ``Erf`` of a GELU …) outwards. It is *blocked*
where a value within it is read by others too or is an output of the model, where a cast lies in it, or where what must
be stored is computed: fusions of ONNX Runtime and OpenVINO give up at these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from julia1.optimize.graph import Operator, OperatorGraph

_SCALES = ("Mul", "Div")
_MASKS = ("Add", "Where")
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul")


@dataclass(frozen=True)
class Group:
    """Operators that could be one.

    Attributes:
        pattern: what they compute.
        operators: their names, in order.
        blocked: why they stay apart, '' when nothing keeps them.
    """

    pattern: str
    operators: tuple[str, ...]
    blocked: str = ""


def find_groups(graph: OperatorGraph) -> list[Group]:
    """Every group, in the order of the graph; an operator may be in several."""
    found = []
    for one in graph.operators:
        for kinds, find in _FINDERS:
            if one.kind in kinds and (group := find(graph, one)) is not None:
                found.append(group)
    return found


def _attention(graph: OperatorGraph, softmax: Operator) -> Group | None:
    """Product, scale and mask in any order, softmax, product."""
    before, at = list[Operator](), softmax
    while (maker := _first_made(graph, at)) is not None and maker.kind in (*_SCALES, *_MASKS, "Cast"):
        before.append(maker)
        at = maker
    first = _first_made(graph, at)
    after = list[Operator]()
    last: Operator | None = softmax
    while last is not None and last.kind != "MatMul":
        # exporters put a guard behind a softmax: 0 where it gave no number
        readers = _only_readers(graph, last)
        last = next((one for one in readers if one.kind in ("MatMul", "Cast", "Where", "Dropout")), None)
        after += [one for one in readers if one.kind == "IsNaN"] + ([last] if last is not None else [])
    if first is None or first.kind != "MatMul" or last is None:
        return None
    parts = [first, *reversed(before), softmax, *after]
    guard = next((one for one in after if one.kind == "Where"), None)
    blocked = f"{guard.name} looks for NaN in it" if guard is not None else ""
    return _group(graph, "attention", parts, blocked)


def _gelu(graph: OperatorGraph, erf: Operator) -> Group | None:
    """x / √2 → Erf → + 1 → · x → / 2, the last two in any order."""
    scaled = graph.maker(erf.inputs[0])
    after = _next(graph, erf, "Add")
    times = _next(graph, after, "Mul") if after else None
    half = _next(graph, times, "Mul") if times else None
    if scaled is None or scaled.kind not in _SCALES or after is None or times is None:
        return None
    return _group(graph, "GELU", [one for one in (scaled, erf, after, times, half) if one is not None])


def _tanh_gelu(graph: OperatorGraph, tanh: Operator) -> Group | None:
    """0.5 · x · (1 + tanh(√(2/π) · (x + 0.0447 · x³)))."""
    scaled = graph.maker(tanh.inputs[0])
    summed = None if scaled is None else _made_by(graph, scaled, "Add")
    after = _next(graph, tanh, "Add")
    times = _next(graph, after, "Mul") if after else None
    if scaled is None or scaled.kind != "Mul" or summed is None or after is None or times is None:
        return None
    return _group(graph, "GELU (tanh)", [summed, scaled, tanh, after, times])


def _layer_norm(graph: OperatorGraph, root: Operator) -> Group | None:
    """Mean, difference, its square, its mean, + ε, √, quotient, and gain and bias if there are any."""
    shifted = graph.maker(root.inputs[0])
    variance = None if shifted is None or shifted.kind != "Add" else _made_by(graph, shifted, "ReduceMean")
    square = None if variance is None else graph.maker(variance.inputs[0])
    if shifted is None or variance is None or square is None or square.kind not in ("Pow", "Mul"):
        return None
    difference = graph.maker(square.inputs[0])
    quotient = next((one for one in graph.readers(root.outputs[0]) if one.kind in ("Div", "Mul")), None)
    if difference is None or difference.kind != "Sub" or quotient is None:
        return None
    mean = graph.maker(difference.inputs[1])
    gain = _next(graph, quotient, "Mul")
    bias = _next(graph, gain, "Add") if gain else None
    parts = (mean, difference, square, variance, shifted, root, quotient, gain, bias)
    return _group(graph, "layer normalization", [one for one in parts if one is not None])


def _residual_norm(graph: OperatorGraph, norm: Operator) -> Group | None:
    """A sum that a layer normalization reads; the sum may be read on beside it."""
    total = graph.maker(norm.inputs[0])
    if total is None or total.kind != "Add" or any(graph.is_constant(name) for name in total.inputs):
        return None
    return Group("residual and normalization", (total.name, norm.name))


def _bias(graph: OperatorGraph, product: Operator) -> Group | None:
    """A matrix product and the stored bias that is added to it."""
    total = next((one for one in graph.readers(product.outputs[0]) if one.kind == "Add"), None)
    if total is None:
        return None
    other = next((name for name in total.inputs if name != product.outputs[0]), "")
    weight = product.inputs[1] if len(product.inputs) > 1 else ""
    if not graph.is_constant(weight):
        return None
    known = graph.tensors.get(other)
    if not graph.is_constant(other) or known is None or known.shape is None or len(known.shape) > 1:
        return None
    return _group(graph, "product and bias", [product, total])


def _convolution(graph: OperatorGraph, convolution: Operator) -> Group | None:
    """A convolution, its batch normalization and its activation."""
    norm = _next(graph, convolution, "BatchNormalization")
    last = norm or convolution
    activation = next((one for one in _only_readers(graph, last) if one.kind in ("Relu", "Clip", "LeakyRelu")), None)
    if norm is None and activation is None:
        return None
    return _group(graph, "convolution block", [one for one in (convolution, norm, activation) if one is not None])


_FINDERS: tuple[tuple[tuple[str, ...], Callable[[OperatorGraph, Operator], Group | None]], ...] = (
    (("Softmax",), _attention),
    (("Erf",), _gelu),
    (("Tanh",), _tanh_gelu),
    (("Sqrt",), _layer_norm),
    (("LayerNormalization",), _residual_norm),
    (_PRODUCTS, _bias),
    (("Conv",), _convolution),
)


def _group(graph: OperatorGraph, pattern: str, parts: list[Operator], blocked: str = "") -> Group:
    """A group with what blocks it."""
    return Group(pattern, tuple(one.name for one in parts), blocked or next(_blocks(graph, parts), ""))


def _blocks(graph: OperatorGraph, parts: list[Operator]) -> Iterator[str]:
    within = {one.name for one in parts}
    for one in parts:
        if one.kind == "Cast":
            yield f"the cast {one.name} lies in it"
    for one in parts[:-1]:
        for name in one.outputs:
            if name in graph.outputs:
                yield f"{name} is an output of the model"
            # two parts may read one value (x of a GELU), others may not
            other = next((reader for reader in graph.readers(name) if reader.name not in within), None)
            if other is not None:
                yield f"{name} is read by {other.name} too"


def _next(graph: OperatorGraph, one: Operator, kind: str) -> Operator | None:
    """The reader of an operator's output that is of a kind."""
    return next((reader for reader in _only_readers(graph, one) if reader.kind == kind), None)


def _only_readers(graph: OperatorGraph, one: Operator) -> list[Operator]:
    return [reader for name in one.outputs for reader in graph.readers(name)]


def _made_by(graph: OperatorGraph, one: Operator, kind: str) -> Operator | None:
    """The operator of a kind that makes one of the inputs."""
    makers = (graph.maker(name) for name in one.inputs)
    return next((maker for maker in makers if maker is not None and maker.kind == kind), None)


def _first_made(graph: OperatorGraph, one: Operator) -> Operator | None:
    """What makes the input on the way back to the product: the largest one that is not stored."""
    makers = [maker for name in one.inputs if not graph.is_constant(name) and (maker := graph.maker(name)) is not None]
    return next((maker for maker in makers if maker.kind in ("MatMul", *_SCALES, *_MASKS, "Cast")), None)
