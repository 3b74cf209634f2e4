"""Latency of one decision, end to end, beside the same trained model in PyTorch.

Texts of banking77/test with four options each: the right one and three others. Every contender gets text and question
and returns an answer, tokenizer included, on one thread; they are timed call by call in one process:

  int8, fp32             ``decide`` with that variant of the bundle; option texts met before are kept, as is the default
  int8, nothing kept     the same with ``option_memory=0``: every option is read anew in every call
  torch eager, sdpa      PyTorch eager mode in fp32, weights from the bundle, by implementation of the attention
  ... padded             the same with inputs padded to 128 tokens

The ratios compare with the implementation that is faster here. Nothing is asserted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

import julia1
from _common import (
    SEED,
    bundle_path,
    encoding_of,
    interleave,
    parser,
    print_ratio,
    run,
    sample,
    use_one_thread,
    write_json,
)
from julia1 import Answer, Choice, InputError
from julia1.answers import build_answer
from julia1.bundle import Bundle
from julia1.model import OptionModel, load_weights
from julia1.runtime.calibration import probabilities, question_kind
from julia1.runtime.decider import OPTION_MEMORY
from julia1.text import Encoded
from julia1.text.options import PADDING
from julia1.train.sources import LabelledSet, read_set
from julia1.train.trainer import to_tensors

SET, SPLIT = "banking77", "test"
OPTIONS = 4
PADDED_TOKENS = 128
ATTENTION = ("eager", "sdpa")
Request = tuple[str, dict[str, Choice]]
Decide = Callable[[Request], dict[str, Answer]]


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=300, metavar="N", help="texts (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="passes over the texts (default: %(default)s)")
    args = made.parse_args()
    use_one_thread()
    bundle = Bundle.open(bundle_path(args))
    requests = four_options(read_set(args.data / SET, [SPLIT]), args.rows)
    contenders: dict[str, Decide] = {}
    for variant in ("int8", "fp32"):
        contenders[variant] = library(bundle, variant, OPTION_MEMORY)
    contenders["int8, nothing kept"] = library(bundle, "int8", 0)
    for attention in ATTENTION:
        model = TorchModel(bundle, attention)
        contenders[f"torch {attention}"] = model.decide
        contenders[f"torch {attention}, padded"] = model.decide_padded
    timings = interleave(contenders, requests, args.rounds)
    tokens = [len(row) for request in requests for row in model.encoding.encode(*request)[0]]
    print(
        f"{len(requests)} texts x {args.rounds} rounds, {np.median(tokens):.0f} tokens a request (median), one thread\n"
    )
    timings.print()
    ratios = {}
    for form in ("padded", "unpadded"):
        names = [f"torch {attention}{', padded' if form == 'padded' else ''}" for attention in ATTENTION]
        fastest = min(names, key=lambda name: timings.milliseconds(name)["median_ms"])
        for variant in ("int8", "int8, nothing kept", "fp32"):
            ratio = ratios[f"{variant} against {form}"] = timings.ratio(fastest, variant)
            print_ratio(f"{variant} against {fastest}", ratio)
    answered = timings.results
    same = {
        name: float(np.mean([a["q"].choice == b["q"].choice for a, b in zip(found, answered["fp32"], strict=True)]))
        for name, found in answered.items()
    }
    print("\nsame answer as fp32: " + ", ".join(f"{name} {share:.1%}" for name, share in same.items()))
    figures = {"median_tokens": float(np.median(tokens)), "timings": timings.figures(), "ratios": ratios}
    write_json(args, {**figures, "same_answer_as_fp32": same})


def four_options(labelled: LabelledSet, number: int | None) -> list[Request]:
    """Texts with the right label and three others as bare names, in an order drawn anew."""
    rng = random.Random(SEED)
    labels = list(labelled.labels)
    requests = []
    for row in sample(labelled.rows, number):
        options = [row["label"], *rng.sample([label for label in labels if label != row["label"]], OPTIONS - 1)]
        rng.shuffle(options)
        requests.append((row["text"], {"q": Choice(labelled.meta["question"], options)}))
    return requests


def library(bundle: Bundle, variant: str, option_memory: int) -> Decide:
    """``decide`` with a variant of the bundle."""
    decider = julia1.load(bundle.source, variant=variant, threads=1, option_memory=option_memory)
    return lambda request: decider.decide(*request)


@dataclass
class TorchModel:
    """What a user of PyTorch would run: the same tokenizer and weights, one request at a time."""

    bundle: Bundle
    attention: str

    def __post_init__(self) -> None:
        self.encoding = encoding_of(self.bundle)
        self.model = option_model(self.bundle, self.attention)

    def decide(self, request: Request) -> dict[str, Answer]:
        """The answer, from inputs as long as the request."""
        return self._decide(request, 0)

    def decide_padded(self, request: Request) -> dict[str, Answer]:
        """The answer, from inputs of 128 tokens (a longer request stays as it is)."""
        return self._decide(request, PADDED_TOKENS)

    def _decide(self, request: Request, tokens: int) -> dict[str, Answer]:
        state, questions = request
        (row,), reading = self.encoding.encode(state, questions)
        encoded = padded(self.encoding.collate([row]), tokens, self.encoding.tokenizer.pad)
        with torch.inference_mode():
            scores = self.model(**to_tensors(encoded))[0].numpy()
        logits = np.empty(len(row.slots), np.float32)
        for (_, option), score in zip(row.slots, scores, strict=True):  # a row has its own order of options
            logits[option] = score
        ((name, question),) = questions.items()
        calibration = self.bundle.manifest.calibration[question_kind(question)]
        return {name: build_answer(question, probabilities(logits, calibration), reading)}


def option_model(bundle: Bundle, attention: str) -> OptionModel:
    """The bundle's weights in PyTorch, fp32."""
    files = bundle.manifest.checkpoint or ()
    weights = [entry.path for entry in files if Path(entry.path).suffix == ".safetensors"]
    if len(weights) != 1:
        raise InputError(f"{bundle.source} holds no weights for PyTorch: measure a bundle with its checkpoint")
    model = load_weights(bundle.folder / weights[0])
    encoder: Any = model.encoder
    encoder.set_attn_implementation(attention)
    return model


def padded(encoded: Encoded, tokens: int, pad: int) -> Encoded:
    """The batch with every sequence at least so long."""
    missing = max(0, tokens - encoded.input_ids.shape[1])
    fill = {"input_ids": pad, "branches": PADDING}
    arrays = {}
    for name in (field.name for field in fields(Encoded)):
        array = getattr(encoded, name)
        width = 0 if name == "markers" else missing
        arrays[name] = np.pad(array, ((0, 0), (0, width)), constant_values=fill.get(name, 0))
    return Encoded(**arrays)


if __name__ == "__main__":
    run(main)
