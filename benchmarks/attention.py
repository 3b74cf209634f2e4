"""A training step of the encoder by implementation of its attention: plain matrix products, or PyTorch's fused kernel.

Forward and backward of the option loss on real requests, in bf16 autocast, embeddings frozen, as training does it;
batches are timed one by one in one process. Needs the backbone as a Hugging Face folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from _common import interleave, parser, print_ratio, run, write_json
from _questions import draw_requests
from julia1.model import OptionModel, load_encoder
from julia1.runtime.limits import usable_cores
from julia1.text import Limits, OptionsEncoding, TextTokenizer
from julia1.train.recipe import Training
from julia1.train.trainer import TrainingRow, encode_examples, micro_batches, option_loss, to_tensors
from julia1.train.views import Example

ATTENTION = ("eager", "sdpa")


def main() -> None:
    defaults = Training()
    made = parser(__doc__, model=False)
    made.add_argument(
        "--backbone", type=Path, required=True, metavar="FOLDER", help="Hugging Face folder of the encoder"
    )
    made.add_argument("--rows", type=int, default=400, metavar="N", help="questions (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="passes over the batches (default: %(default)s)")
    made.add_argument("--batch-tokens", type=int, default=defaults.batch_tokens, help="default: %(default)s")
    made.add_argument("--threads", type=int, default=usable_cores(), help="default: the physical cores")
    made.add_argument("--fp32", action="store_true", help="without bf16 autocast")
    args = made.parse_args()
    torch.set_num_threads(args.threads)
    limits = Limits(state_tokens=defaults.state_tokens, pass_tokens=defaults.pass_tokens)
    encoding = OptionsEncoding(TextTokenizer.from_file(args.backbone / "tokenizer.json"), limits)
    examples = []
    for state, questions in draw_requests(args.data, args.rows):
        sizes = [len(question.option_texts()) for question in questions.values()]
        targets = [[1 / size] * size for size in sizes]  # any will do: only the time counts
        examples.append(Example(state, list(zip(questions.values(), targets, strict=True))))
    batches = list(micro_batches(encode_examples(encoding, examples), args.batch_tokens))
    steps = {name: partial(step, option_model(args.backbone, name), encoding, not args.fp32) for name in ATTENTION}
    timings = interleave(steps, batches, args.rounds, warm_up=1)
    tokens = sum(len(item.row) for batch in batches for item in batch)
    print(f"{len(batches)} batches x {args.rounds} rounds, {tokens:,} tokens a round, {args.threads} threads\n")
    timings.print("attention")
    pace = {name: tokens * args.rounds / float(timings.seconds[name].sum()) for name in steps}
    print(", ".join(f"{name} {value:,.0f} tokens/s" for name, value in pace.items()))
    ratio = timings.ratio("sdpa", "eager")
    print_ratio("eager against sdpa", ratio)
    write_json(args, {"timings": timings.figures(), "tokens_per_second": pace, "ratio": ratio})


def option_model(backbone: Path, attention: str) -> OptionModel:
    """The backbone with an untrained head, set up as the trainer does it."""
    model = OptionModel(load_encoder(backbone)).train()
    encoder: Any = model.encoder
    encoder.set_attn_implementation(attention)
    encoder.get_input_embeddings().weight.requires_grad_(False)
    return model


def step(model: OptionModel, encoding: OptionsEncoding, bf16: bool, batch: Sequence[TrainingRow]) -> None:
    """Forward and backward of one batch."""
    encoded = encoding.collate([item.row for item in batch])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        logits = model(**to_tensors(encoded))
    loss, questions = option_loss(logits, batch, Training().label_smoothing)
    (loss / questions).backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)


if __name__ == "__main__":
    run(main)
