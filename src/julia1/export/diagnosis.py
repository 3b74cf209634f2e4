"""Why two forms of a model differ: tokenizer, dtypes, padding, then layer by layer; the first that departs is named.

Each stage is compared by itself, so that one fault does not hide the next: models read the ids of side A, and layers
are compared on texts alone, without padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from julia1.export.probes import EMBEDDINGS, FINAL_NORM, POOLED, Values
from julia1.export.samples import QUESTIONS, TEXTS
from julia1.export.sides import Side
from julia1.export.standalone import option_rows
from julia1.text.options import Row
from julia1.text.states import framed, framed_pair

STAGES = ("tokenizer", "dtypes", "padding", "layers")
TOLERANCE = 1e-4
LEAST_SNR = 15.0
"""Decibels. Where one side rounds to int8, a layer departs when its signal stands less than this above the difference,
unless a tolerance is given; the layers of the bundled model in int8 have 30 to 40."""
MOST_TEXTS = 64
BATCH_TEXTS = 8
LONGER = 8
"""Tokens that the longest text is made longer by, so that it is padded too."""
LONG_TEXT = " ".join(TEXTS * 4)
"""What stands beside the others in a batch of a model for open decisions: more than any of them reads."""
LOGITS = "logits"
ENCODER = (EMBEDDINGS, "layer.", FINAL_NORM)
HIDDEN = (*ENCODER, POOLED)
"""How the names of encoder layers begin, and of all that is no output."""


@dataclass(frozen=True)
class Stage:
    """What one stage found.

    Attributes:
        name: one of ``STAGES``.
        departs: whether the sides differ here.
        message: in words, the first difference first.
    """

    name: str
    departs: bool
    message: str


@dataclass(frozen=True)
class LayerDifference:
    """How far side B departs from side A in one layer, over all real tokens of all texts.

    Attributes:
        name: of the layer.
        largest: absolute difference.
        relative: the same over the largest magnitude in A.
        cosine: between the two, taken as one long vector each.
        snr: mean square of A over that of the difference, in decibels; ``None`` where they are equal.
        departs: beyond the tolerance.
        problem: why it could not be compared, else ''.
    """

    name: str
    largest: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    snr: float | None = None
    departs: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        a, b: the sides.
        texts, tokens: how much was read.
        stages: in order.
        layers: in order.
        first: the first layer that departs, '' for none.
    """

    a: str
    b: str
    texts: int
    tokens: int
    stages: tuple[Stage, ...]
    layers: tuple[LayerDifference, ...]
    first: str

    @property
    def departs(self) -> bool:
        """Whether any stage does."""
        return any(stage.departs for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "departs": self.departs}


def diagnose(a: Side, b: Side, texts: Sequence[str] = (), tolerance: float | None = None) -> Diagnosis:
    """Compare two models stage by stage.

    Args:
        a, b: the sides.
        texts: what is read; built-in texts when empty. At most ``MOST_TEXTS`` of them are, spread over all.
        tolerance: largest absolute difference of an output; of hidden states in units of their root mean square, where
            that is over 1. When ``None``, ``TOLERANCE``; with int8 on one side, ``LEAST_SNR`` holds instead.
    """
    chosen = list(texts or TEXTS)
    chosen = chosen[:: max(1, len(chosen) // MOST_TEXTS)][:MOST_TEXTS]
    rows = _rows(a, b, chosen)
    smallest = min(_ids_read(side) for side in (a, b))
    # types need no ids but such as every table has
    stages = [_tokenizers(a, b, chosen), _types(a, b, [[min(i, smallest - 1) for i in rows[0]]])]
    if max(a.tokenizer.pad, b.tokenizer.pad, *(max(row) for row in rows)) >= smallest:
        message = f"not compared: the texts have ids that a side does not know ({smallest:,} pieces)"
        stages += [Stage("padding", False, message), Stage("layers", True, message)]
        return Diagnosis(a.label, b.label, len(chosen), sum(map(len, rows)), tuple(stages), (), "")
    options = option_rows(a.options(), chosen) if a.kind == b.kind == "open" else []
    alone = [_read_alone(side, rows, options) for side in (a, b)]
    stages.append(_padding((a, b), alone, rows, options, tolerance))
    layers = _layers(a, b, alone, tolerance)
    first = next((layer for layer in layers if layer.departs), None)
    stages.append(Stage("layers", first is not None, _layers_message(layers, first)))
    name = "" if first is None else first.name
    return Diagnosis(a.label, b.label, len(chosen), sum(map(len, rows)), tuple(stages), tuple(layers), name)


def _rows(a: Side, b: Side, texts: Sequence[str]) -> list[list[int]]:
    """The texts as both sides would frame them, by the tokenizer of A; pairs where both read pairs."""
    ids = a.tokenizer.ids(texts)
    room = min(a.encoding.state_tokens, b.encoding.state_tokens)
    if a.encoding.type == b.encoding.type == "pair":
        return [framed_pair(a.tokenizer, one, ids[(i + 1) % len(ids)], room)[0] for i, one in enumerate(ids)]
    return [framed(a.tokenizer, one, room)[0] for one in ids]


def _ids_read(side: Side) -> int:
    """How many ids both the tokenizer and the embedding table of a side have."""
    pieces = 1 + max(side.tokenizer.vocabulary().values())
    return pieces if side.probe.pieces is None else min(pieces, side.probe.pieces)


def _tokenizers(a: Side, b: Side, texts: Sequence[str]) -> Stage:
    """Embeddings for all ids; the same ids for the texts, special tokens included; then the same vocabulary."""
    for which, side in (("A", a), ("B", b)):
        piece, last = max(side.tokenizer.vocabulary().items(), key=lambda item: item[1])
        if side.probe.pieces is not None and last >= side.probe.pieces:
            message = (
                f"the tokenizer of {which} has ids up to {last:,} ({piece!r}), its embedding table "
                f"{side.probe.pieces:,} rows: they do not belong together"
            )
            return Stage("tokenizer", True, message)
    for name in ("cls", "sep", "pad"):
        one, other = getattr(a.tokenizer, name), getattr(b.tokenizer, name)
        if one != other:
            return Stage("tokenizer", True, f"the {name} token is {one} in A and {other} in B")
    ids_a, ids_b = a.tokenizer.ids(texts), b.tokenizer.ids(texts)
    for number, (one, other) in enumerate(zip(ids_a, ids_b, strict=True)):
        if one != other:
            place = next(
                (i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(map(len, (one, other)))
            )
            seen = [
                f"{tokenizer.piece(ids[place])!r} ({ids[place]})" if place < len(ids) else "the end"
                for tokenizer, ids in ((a.tokenizer, one), (b.tokenizer, other))
            ]
            message = f"text {number} ({texts[number][:40]!r}), token {place}: {seen[0]} in A, {seen[1]} in B"
            return Stage("tokenizer", True, message)
    pieces_a, pieces_b = a.tokenizer.vocabulary(), b.tokenizer.vocabulary()
    moved = sorted(set(pieces_a.items()) ^ set(pieces_b.items()), key=lambda item: (item[1], item[0]))
    if moved:
        piece, number = moved[0]
        only = f"{len(moved):,} pieces stand on one side only, the first {piece!r} ({number})"
        return Stage("tokenizer", True, f"the same ids for these texts, but {only}")
    return Stage("tokenizer", False, f"the same {sum(map(len, ids_a)):,} ids for {len(texts):,} texts")


def _types(a: Side, b: Side, rows: Sequence[Sequence[int]]) -> Stage:
    """Inputs and outputs of the same types; products in what the side says of itself."""
    of_a, of_b = (side.probe.types(side.feeds(rows[:1])[0]) for side in (a, b))
    problems = [
        f"the {what} {name} is {one[name]} in A, {other[name]} in B"
        for what, one, other in (("input", of_a.inputs, of_b.inputs), ("output", of_a.outputs, of_b.outputs))
        for name in one
        if name in other and one[name] != other[name]
    ]
    for which, side, types in (("A", a, of_a), ("B", b, of_b)):
        allowed = {side.precision, "fp32"}  # an int8 graph keeps attention and its last layers in fp32
        if strange := [name for name in types.products if name not in allowed]:
            problems.append(f"{which} is said to be {side.precision} and multiplies in {', '.join(strange)}")
    told = " and ".join(" + ".join(types.products) or "unknown" for types in (of_a, of_b))
    if problems:
        return Stage("dtypes", True, "; ".join(problems))
    return Stage("dtypes", False, f"the same inputs and outputs; matrices multiply in {told}")


def _read_alone(side: Side, rows: Sequence[Sequence[int]], options: Sequence[Row]) -> list[Values]:
    """What a side computes for each text by itself: tokens ``[tokens, width]``, all else ``[outputs]``."""
    found = []
    for row in rows:
        feeds, _ = side.feeds([row])
        found.append({name: value[0] for name, value in side.probe.values(feeds).items()})
    if options:
        for values, logits in zip(found, (side.logits([row])[0] for row in options), strict=False):
            values[LOGITS] = logits
    return found


def _padding(
    sides: Sequence[Side],
    alone: Sequence[Sequence[Values]],
    rows: Sequence[Sequence[int]],
    options: Sequence[Row],
    tolerance: float | None,
) -> Stage:
    """Texts in batches, each beside a longer one, against what was computed for them alone."""
    problems, padded = [], [0, 0]
    for place, (side, own) in enumerate(zip(sides, alone, strict=True)):
        for number, values in enumerate(_read_together(side, rows, options)):
            padded[place] += bool(values)
            differences = (
                _difference(name, [own[number][name]], [value], side.precision == "int8", tolerance)
                for name, value in values.items()
            )
            worst = next((difference for difference in differences if difference.departs), None)
            if worst is not None:
                change = worst.problem or f"by {worst.largest:.1e}"
                problems.append(f"{'AB'[place]} changes when text {number} is padded: {worst.name} {change}")
                break
    if problems:
        return Stage("padding", True, "; ".join(problems))
    if not any(padded):
        return Stage("padding", False, "not compared: every text is as long as what the models read")
    full = len(rows) - min(padded)
    left_out = f"; {full:,} of {len(rows):,} are as long as what a model reads and cannot be" if full else ""
    return Stage("padding", False, f"no text changes when it is padded{left_out}")


def _read_together(side: Side, rows: Sequence[Sequence[int]], options: Sequence[Row]) -> Iterator[Values]:
    """As ``_read_alone``, with ``BATCH_TEXTS`` texts at a time and a longer one; nothing of a text that is not padded.

    The text beside them is the longest, made longer still as far as the model reads.
    """
    longest = max(rows, key=len)
    width = max(len(longest), min(len(longest) + LONGER, side.most_tokens))
    longer = [*longest[:-1], *[longest[len(longest) // 2]] * (width - len(longest)), longest[-1]]
    beside = max([*option_rows(side.options(), [LONG_TEXT] * len(QUESTIONS)), *options], key=len) if options else None
    for start in range(0, len(rows), BATCH_TEXTS):
        batch = rows[start : start + BATCH_TEXTS]
        feeds, mask = side.feeds([*batch, longer])
        values = side.probe.values(feeds)
        asked = options[start : start + BATCH_TEXTS]
        logits = side.logits([*asked, beside]) if beside is not None else None
        for i, row in enumerate(batch):
            inside = mask[i] == 1
            found: Values = {}
            if len(row) < width:
                found = {name: value[i][inside] if value.ndim == 3 else value[i] for name, value in values.items()}
            if logits is not None and beside is not None and len(asked[i]) < len(beside):
                found[LOGITS] = logits[i][: len(asked[i].markers)]
            yield found


def _layers(a: Side, b: Side, alone: Sequence[Sequence[Values]], tolerance: float | None) -> list[LayerDifference]:
    """Every layer that both sides show, and those that one of two models of a kind lacks."""
    of_a, of_b = alone
    names = list(of_a[0])
    common = [name for name in names if name in of_b[0]]
    rounded = "int8" in (a.precision, b.precision)
    found = [
        _difference(
            name, [v[name] for v in of_a if name in v], [v[name] for v in of_b if name in v], rounded, tolerance
        )
        for name in common
        if a.kind == b.kind or name.startswith(ENCODER)
    ]
    for which, own, other in (("A", of_a[0], of_b[0]), ("B", of_b[0], of_a[0])):
        # a side without any layers cannot be looked into; one with fewer is another model
        looked_into = any(name.startswith("layer.") for name in other)
        wanted = [*(["layer."] if looked_into else []), *(["head."] if a.kind == b.kind == "fixed" else [])]
        found += [
            LayerDifference(name, departs=True, problem=f"only {which} has it")
            for name in own
            if name not in other and name.startswith(tuple(wanted))
        ]
    return found


def _difference(
    name: str,
    expected: Sequence[npt.NDArray[Any]],
    found: Sequence[npt.NDArray[Any]],
    rounded: bool,
    tolerance: float | None,
) -> LayerDifference:
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape:
            return LayerDifference(name, departs=True, problem=f"its shape is {one.shape} in A, {other.shape} in B")
    flat = [np.concatenate([value.ravel() for value in values]).astype(np.float64) for values in (expected, found)]
    if not all(np.isfinite(values).all() for values in flat):
        return LayerDifference(name, departs=True, problem="it holds values that are no numbers")
    one, other = flat
    difference = one - other
    largest = float(np.abs(difference).max(initial=0.0))
    power, noise = float(np.square(one).mean()), float(np.square(difference).mean())
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    snr = 10 * float(np.log10(max(power, 1e-300) / noise)) if noise else None
    if rounded and tolerance is None:
        departs = snr is not None and snr < LEAST_SNR
    else:
        unit = max(1.0, power**0.5) if name.startswith(HIDDEN) else 1.0
        departs = largest > (TOLERANCE if tolerance is None else tolerance) * unit
    return LayerDifference(
        name,
        largest,
        largest / max(float(np.abs(one).max(initial=0.0)), 1e-300) if largest else 0.0,
        float(one @ other) / lengths if lengths else 1.0,
        snr,
        departs,
    )


def _layers_message(layers: Sequence[LayerDifference], first: LayerDifference | None) -> str:
    if first is not None:
        return f"{first.name} is the first that departs: {first.problem or f'by {first.largest:.1e}'}"
    if not layers:
        return "nothing to compare: no layer is known on both sides"
    if not any(layer.name.startswith("layer.") for layer in layers):
        return "the outputs agree; no encoder layers are known on both sides"
    worst = max(layers, key=lambda layer: layer.largest)
    return f"{len(layers)} agree, {worst.name} least: by {worst.largest:.1e}"


def table(layers: Sequence[LayerDifference]) -> list[list[str]]:
    """Layers as rows of text, with a heading."""
    lines = [["", "layer", "largest", "relative", "cosine", "SNR"]]
    for layer in layers:
        mark = "*" if layer.departs else ""
        if layer.problem:
            lines.append([mark, layer.name, layer.problem, "", "", ""])
            continue
        snr = "equal" if layer.snr is None else f"{layer.snr:.1f} dB"
        lines.append([mark, layer.name, f"{layer.largest:.1e}", f"{layer.relative:.1e}", f"{layer.cosine:.6f}", snr])
    return lines
