"""What an ONNX model is made of, where its bytes and its work lie, and what stands in an engine's way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from julia1.optimize.blocks import Block, find_blocks
from julia1.optimize.cleaning import Waste, find_waste, is_random
from julia1.optimize.graph import OWN_DOMAINS, OperatorGraph, domain_name
from julia1.optimize.patterns import Group, find_groups

NORM_OPSET, GELU_OPSET, CHANNEL_OPSET = 17, 20, 13
LARGE_TABLE = 0.25
"""Share of a model's bytes from which on an fp32 embedding table is told of."""
_SHAPES = (
    "Shape",
    "Gather",
    "Concat",
    "Unsqueeze",
    "Squeeze",
    "Slice",
    "Range",
    "Expand",
    "ConstantOfShape",
    "Reshape",
)


@dataclass(frozen=True)
class Share:
    """What the operators of one kind add up to.

    Attributes:
        kind: the operator.
        count: how many there are.
        stored_bytes: of the tensors they read.
        multiplications: multiply-adds in one run.
    """

    kind: str
    count: int
    stored_bytes: int
    multiplications: int


@dataclass(frozen=True)
class Analysis:
    """All that is found of a graph.

    Attributes:
        opsets: version by operator domain.
        inputs, outputs: shape and type by name, as one run saw them.
        stored_bytes, multiplications: in all; the latter for one run.
        kinds: by operator, the most work first.
        blocks: in order.
        groups: what could run as one operator, and what blocks it.
        waste: what the graph can do without.
        shape_operators: operators that compute shapes and places, not values.
        problems: in plain words, what an optimization will meet.
    """

    opsets: dict[str, int]
    inputs: dict[str, str]
    outputs: dict[str, str]
    stored_bytes: int
    multiplications: int
    kinds: list[Share]
    blocks: list[Block]
    groups: list[Group]
    waste: Waste
    shape_operators: int
    problems: list[str]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def analyse(graph: OperatorGraph) -> Analysis:
    """Look at everything."""
    stored = graph.stored_bytes()
    kinds: dict[str, list[int]] = {}
    for one in graph.operators:
        sums = kinds.setdefault(one.kind, [0, 0, 0])
        for place, value in enumerate((1, stored[one.name], one.multiplications)):
            sums[place] += value
    shares = [Share(kind, *sums) for kind, sums in kinds.items()]
    waste = find_waste(graph)
    groups = find_groups(graph)
    return Analysis(
        graph.opsets,
        {name: _described(graph, name) for name in graph.inputs},
        {name: _described(graph, name) for name in graph.outputs},
        sum(stored.values()),
        sum(one.multiplications for one in graph.operators),
        sorted(shares, key=lambda share: (-share.multiplications, -share.stored_bytes, -share.count)),
        find_blocks(graph),
        groups,
        waste,
        sum(_computes_shapes(graph, number) for number in range(len(graph.operators))),
        [
            *_chance_problems(graph),
            *_version_problems(graph),
            *_type_problems(graph, stored),
            *_group_problems(groups),
            *_waste_problems(waste),
        ],
    )


def _described(graph: OperatorGraph, name: str) -> str:
    known = graph.tensors.get(name)
    if known is None or known.shape is None:
        return "no tensor"
    return f"{known.dtype} {list(known.shape)}"


def _computes_shapes(graph: OperatorGraph, number: int) -> bool:
    """Whether an operator works on numbers of axes: integers of at most a few elements."""
    one = graph.operators[number]
    if one.kind not in _SHAPES or not one.outputs:
        return one.kind == "Shape"
    made = graph.tensors.get(one.outputs[0])
    return made is not None and made.dtype == "int64" and made.size <= 8


def _chance_problems(graph: OperatorGraph) -> list[str]:
    found = [one.name for one in graph.operators if is_random(graph, one)]
    if not found:
        return []
    return [
        f"{len(found)} operators give something else each time, the first is {found[0]}: the model was exported in "
        "training mode; export it after model.eval()"
    ]


def _version_problems(graph: OperatorGraph) -> list[str]:
    own = next((version for name, version in graph.opsets.items() if name == "ai.onnx"), 0)
    found = []
    if own < CHANNEL_OPSET:
        found.append(
            f"opset {own} knows no step for each channel of a weight: export it in opset {NORM_OPSET} or later"
        )
    elif own < NORM_OPSET:
        found.append(f"opset {own} has no LayerNormalization: engines must find it in its parts; export it anew")
    foreign = Counter(one.kind.partition("::")[0] for one in graph.operators if "::" in one.kind)
    for domain, count in foreign.items():
        if domain not in OWN_DOMAINS:
            found.append(
                f"{count} operators of {domain_name(domain)}: only the engine that has them runs the model, and no "
                "fusion reaches across them"
            )
    return found


def _type_problems(graph: OperatorGraph, stored: dict[str, int]) -> list[str]:
    found = []
    total = sum(stored.values()) or 1
    for one in graph.operators:
        table = graph.tensors.get(one.inputs[0]) if one.kind == "Gather" else None
        if table is not None and table.constant and table.dtype == "float32" and table.bytes > LARGE_TABLE * total:
            found.append(
                f"the table {one.inputs[0]} is {table.bytes / 1e6:.1f} MB of fp32, {table.bytes / total:.0%} of the "
                "model: quantize it too"
            )
    doubles = sum(tensor.dtype == "float64" for tensor in graph.tensors.values())
    if doubles:
        found.append(f"{doubles} tensors are float64: no engine has fast kernels for it")
    chains = [
        one.name
        for one in graph.operators
        if one.kind == "Cast" and (before := graph.maker(one.inputs[0])) is not None and before.kind == "Cast"
    ]
    if chains:
        found.append(f"{len(chains)} casts read a cast, the first is {chains[0]}")
    return found


def _group_problems(groups: Sequence[Group]) -> list[str]:
    blocked = [group for group in groups if group.blocked]
    kinds = Counter(group.pattern for group in blocked)
    return [
        f"{count} of {sum(group.pattern == kind for group in groups)} groups of the kind {kind} stay apart: "
        f"{next(group.blocked for group in blocked if group.pattern == kind)}"
        for kind, count in kinds.items()
    ]


def _waste_problems(waste: Waste) -> list[str]:
    found = []
    if waste.dead:
        found.append(f"{len(waste.dead)} operators lead to no output, the first is {waste.dead[0]}")
    if waste.constant:
        found.append(f"{len(waste.constant)} operators compute the same in every run, the first is {waste.constant[0]}")
    if waste.twice:
        found.append(f"{len(waste.twice)} stored tensors hold what another holds, {waste.twice_bytes / 1e6:.2f} MB")
    if waste.unread:
        found.append(f"{len(waste.unread)} stored tensors are never read, {waste.unread_bytes / 1e6:.2f} MB")
    return found
