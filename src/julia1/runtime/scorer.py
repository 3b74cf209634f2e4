"""From rows to logits: option texts are read once and kept, states are read against what was kept.

Arrays of the graph, beside those of ``Encoded`` (all fp32 but ``context_leaves``, int64):

    option_vectors    [rows, options, width]    mean of each option's text, by marker
    context_leaves    [rows, context]           number of the leaf that each kept token belongs to, 0 for padding
    context_keys.N    [rows, context, width]    kept keys of layer N, ...
    context_values.N  [rows, context, width]    ... and values

    logits            [rows, options]
    trunk             [rows, width]             mean of each row's trunk
    keys.N, values.N  [rows, tokens, width]     of the row's own tokens
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

from julia1.errors import EngineError
from julia1.runtime.batches import padded_batches
from julia1.runtime.engines import Engine
from julia1.text.options import PADDING, TRUNK, Row
from julia1.text.states import round_up

LOGITS, TRUNK_MEAN, KEYS, VALUES = "logits", "trunk", "keys.{}", "values.{}"
OPTION_VECTORS, CONTEXT_LEAVES = "option_vectors", "context_leaves"
CONTEXT_KEYS, CONTEXT_VALUES = "context_keys.{}", "context_values.{}"
TEXT_BATCH_TOKENS = 256
"""Padded tokens of option text in one engine call at most."""

CONTEXT_STEP = 16
"""The context of a batch is padded to a multiple of this, the width of a vector register: a row's own tokens, which
come after it, then keep their places in the lanes that a softmax is added up in, and no answer moves by a bit."""

FloatArray = npt.NDArray[np.float32]
Text = tuple[int, ...]


@dataclass(frozen=True)
class ReadText:
    """What the encoder made of one option text.

    Attributes:
        context: keys and values, fp32 ``[2 · layers, tokens, width]``, layer by layer, keys first.
        vector: mean of its last hidden states, fp32 ``[width]``.
    """

    context: FloatArray
    vector: FloatArray


class OptionScorer:
    """Scores rows. Safe to share between threads.

    Args:
        engine: runs the graph.
        pad: id of the padding piece.
        memory_tokens: tokens of option text that are kept for later calls, the least recently used go first; 0 keeps
            none. One takes ``8 · layers · width`` bytes, 37 kB in a model of 12 layers of 384.
        length_step: rows are padded to a multiple of so many tokens.
    """

    def __init__(self, engine: Engine, pad: int, memory_tokens: int, length_step: int = 1) -> None:
        self._engine = engine
        self._step = length_step
        self._pad = pad
        self._memory = _TextMemory(memory_tokens)
        if OPTION_VECTORS not in engine.inputs:
            raise EngineError(
                f"the graph has no input {OPTION_VECTORS!r}: the bundle was made by another version of julia1, export "
                "it again"
            )
        self._width = int(engine.inputs[OPTION_VECTORS][2])
        self._layers = sum(name.startswith("context_keys.") for name in engine.inputs)
        self._context_inputs = [n.format(i) for i in range(self._layers) for n in (CONTEXT_KEYS, CONTEXT_VALUES)]
        self._kept_outputs = [n.format(i) for i in range(self._layers) for n in (KEYS, VALUES)]

    def scores(self, rows: Sequence[Row]) -> FloatArray:
        """Logits of a batch of rows, fp32 ``[rows, options]``, to be read up to each row's number of markers."""
        read = self._read({text for row in rows for text in row.texts})
        stems = [row.leaves >= 0 for row in rows]
        lengths = [int(stem.sum()) for stem in stems]
        options = max(len(row.markers) for row in rows)
        feeds = self._blank(len(rows), max(lengths), options)
        contexts = [[read[text] for text in row.texts] for row in rows]
        longest = max(map(context_room, rows))
        kept = np.zeros((2 * self._layers, len(rows), longest, self._width), np.float32)
        leaves = np.zeros((len(rows), longest), np.int64)
        for i, (row, stem, length) in enumerate(zip(rows, stems, lengths, strict=True)):
            feeds["input_ids"][i, :length] = row.input_ids[stem]
            feeds["position_ids"][i, :length] = row.position_ids[stem]
            feeds["branches"][i, :length] = row.branches[stem]
            feeds["leaves"][i, :length] = row.leaves[stem]
            feeds["markers"][i, : len(row.markers)] = np.flatnonzero(row.leaves[stem])
            end = 0
            for leaf, item in enumerate(contexts[i], start=1):
                start, end = end, end + item.context.shape[1]
                kept[:, i, start:end] = item.context
                leaves[i, start:end] = leaf
                feeds[OPTION_VECTORS][i, leaf - 1] = item.vector
        feeds[CONTEXT_LEAVES] = leaves
        feeds.update(zip(self._context_inputs, kept, strict=True))
        return self._engine.run(feeds, [LOGITS])[0]

    def _read(self, texts: set[Text]) -> dict[Text, ReadText]:
        """Each text as the encoder reads it, from memory where it is there."""
        found = self._memory.get(texts)
        missing = sorted(texts - found.keys(), key=lambda text: (len(text), text))
        for batch in padded_batches(missing, len, TEXT_BATCH_TOKENS):
            fresh = self._read_batch(batch)
            found.update(fresh)
            self._memory.put(fresh)
        return found

    def _read_batch(self, texts: Sequence[Text]) -> dict[Text, ReadText]:
        feeds = self._blank(len(texts), max(map(len, texts)), 1)
        for i, text in enumerate(texts):
            feeds["input_ids"][i, : len(text)] = text
            feeds["position_ids"][i, : len(text)] = np.arange(len(text))
            feeds["branches"][i, : len(text)] = TRUNK
        feeds[CONTEXT_LEAVES] = np.zeros((len(texts), 0), np.int64)
        nothing = np.zeros((len(texts), 0, self._width), np.float32)
        feeds.update(dict.fromkeys(self._context_inputs, nothing))
        means, *kept = self._engine.run(feeds, [TRUNK_MEAN, *self._kept_outputs])
        return {
            text: ReadText(np.stack([layer[i, : len(text)] for layer in kept]), means[i].copy())
            for i, text in enumerate(texts)
        }

    def _blank(self, rows: int, tokens: int, options: int) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays of padding only."""
        tokens = round_up(tokens, self._step)
        return {
            "input_ids": np.full((rows, tokens), self._pad, np.int64),
            "position_ids": np.zeros((rows, tokens), np.int64),
            "branches": np.full((rows, tokens), PADDING, np.int64),
            "leaves": np.zeros((rows, tokens), np.int64),
            "markers": np.zeros((rows, options), np.int64),
            OPTION_VECTORS: np.zeros((rows, options, self._width), np.float32),
        }


class _TextMemory:
    """Texts that were read, up to a number of tokens in all; the least recently used go first. Thread-safe."""

    def __init__(self, tokens: int) -> None:
        self._room = tokens
        self._items: OrderedDict[Text, ReadText] = OrderedDict()
        self._lock = Lock()

    def get(self, texts: set[Text]) -> dict[Text, ReadText]:
        with self._lock:
            found = {text: self._items[text] for text in texts if text in self._items}
            for text in found:
                self._items.move_to_end(text)
        return found

    def put(self, fresh: dict[Text, ReadText]) -> None:
        with self._lock:
            for text, item in fresh.items():
                if text not in self._items:
                    self._items[text] = item
                    self._room -= len(text)
            while self._room < 0:
                text, _ = self._items.popitem(last=False)
                self._room += len(text)


def context_room(row: Row) -> int:
    """Kept tokens of a row, filled up to a multiple of ``CONTEXT_STEP``."""
    return round_up(sum(map(len, row.texts)), CONTEXT_STEP)
