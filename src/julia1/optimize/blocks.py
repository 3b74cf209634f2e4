"""The blocks that a graph is made of: embeddings, layers, heads, by the names its exporter gave to what is in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from julia1.optimize.graph import Operator, OperatorGraph

_LAYER = re.compile(r"(.*?(?:layers?|blocks?|h|convs?)[._](\d+))(?:[._]|$)")
_WIDTH, _HEIGHT, _GAP, _BAR = 560, 34, 14, 220


@dataclass(frozen=True)
class Block:
    """Operators that belong together.

    Attributes:
        name: of the module, or of the first operator where no name tells.
        operators: how many.
        stored_bytes: of the tensors they read.
        multiplications: multiply-adds in one run.
        count: as many layers in a row that are made alike are one block.
    """

    name: str
    operators: int
    stored_bytes: int
    multiplications: int
    count: int = 1


def find_blocks(graph: OperatorGraph) -> list[Block]:
    """Blocks in the order of the graph, layers that are alike taken together."""
    stored = graph.stored_bytes()
    groups: dict[str, list[Operator]] = {}
    current = ""
    for one in graph.operators:
        current = _block_name(one, graph) or current or "start"
        groups.setdefault(current, []).append(one)
    blocks = [
        Block(
            name,
            len(operators),
            sum(stored[one.name] for one in operators),
            sum(one.multiplications for one in operators),
        )
        for name, operators in groups.items()
    ]
    return _merged(blocks)


def _merged(blocks: Sequence[Block]) -> list[Block]:
    """Neighbours whose names differ in numbers only and that multiply as much are one."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        stem = re.sub(r"\d+", "N", block.name)
        alike = (
            last is not None
            and re.sub(r"\d+", "N", last.name) == stem
            and last.multiplications == block.multiplications * last.count
            and "N" in stem
        )
        if last is not None and alike:
            found[-1] = Block(
                stem,
                last.operators + block.operators,
                last.stored_bytes + block.stored_bytes,
                last.multiplications + block.multiplications,
                last.count + 1,
            )
        else:
            found.append(block)
    return found


def _block_name(one: Operator, graph: OperatorGraph) -> str:
    """What an exporter says about the module: in a node's name, or in the name of a weight that it reads."""
    weights = (name for name in one.inputs if graph.is_constant(name))
    paths = [path.strip("/").replace("/", ".") for path in (one.scope, one.name, *weights)]
    for path in paths:
        if match := _LAYER.match(path):
            return match[1]
    parts = next(filter(None, paths), "").split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else ""


def picture(blocks: Sequence[Block]) -> str:
    """The blocks from top to bottom as SVG: how much of the stored bytes and of the multiply-adds lies in each."""
    height = len(blocks) * (_HEIGHT + _GAP) + _GAP
    stored = sum(block.stored_bytes for block in blocks) or 1
    work = sum(block.multiplications for block in blocks) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + _BAR}" height="{height}" font-family="sans-serif" '
        'font-size="13">'
    ]
    for number, block in enumerate(blocks):
        top = _GAP + number * (_HEIGHT + _GAP)
        times = f" × {block.count}" if block.count > 1 else ""
        if number:
            parts.append(f'<path d="M{_WIDTH / 2} {top - _GAP} v{_GAP}" stroke="#888"/>')
        parts += [
            f'<rect x="4" y="{top}" width="{_WIDTH - 20}" height="{_HEIGHT}" rx="4" fill="#f3f6fa" stroke="#9ab"/>',
            f'<text x="14" y="{top + 14}">{escape(block.name)}{times}</text>',
            f'<text x="14" y="{top + 29}" fill="#666" font-size="11">{block.operators} operators, '
            f"{block.stored_bytes / 1e6:.1f} MB, {block.multiplications / 1e6:.1f} M multiply-adds</text>",
        ]
        for share, place, colour in (
            (block.stored_bytes / stored, 4, "#b5793b"),
            (block.multiplications / work, 19, "#3b6fb6"),
        ):
            width = max(1.0, share * (_BAR - 50))
            parts += [
                f'<rect x="{_WIDTH}" y="{top + place}" width="{width:.1f}" height="11" fill="{colour}"/>',
                f'<text x="{_WIDTH + width + 4:.1f}" y="{top + place + 10}" font-size="11">{share:.0%}</text>',
            ]
    return "".join([*parts, "</svg>"])
