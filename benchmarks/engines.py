"""Engines beside each other: one decision end to end, by engine, variant and precision.

Texts of banking77/test with four options each, or where there is no such set a few that stand here. Contenders are
those that are installed, on the same number of threads, timed call by call in one process: ``decide`` with option texts
met before.

  onnxruntime int8, fp32    the variants as ``julia1.load`` runs them
  openvino fp32, bf16       the fp32 variant; bf16 where the CPU has it (``open_engine`` with that precision)
  pytorch fp32, bf16        the weights of the fp32 variant

Prints also what ``load`` takes, read from the cache where the engine has one, and how far logits are from those of ONNX
Runtime's fp32. Pin the process (``taskset -c 0``) on a machine that does anything else.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import bundle_path, interleave, parser, print_ratio, print_table, run, use_one_thread, write_json
from decide_latency import SET, SPLIT, Request, four_options
from julia1 import Choice, Decider, load
from julia1.bundle import Bundle
from julia1.errors import EngineError
from julia1.runtime import probe
from julia1.runtime.engines import ENGINES, cannot_run, engine_file, missing_engine, open_engine
from julia1.runtime.plan import make_plan
from julia1.runtime.variants import missing_needs
from julia1.text import TextTokenizer
from julia1.train.sources import read_set

TEXTS = (
    "I was charged twice for one order and nobody answers",
    "My card has not arrived yet",
    "How do I change my PIN?",
    "The transfer to my friend failed, where is my money?",
    "Why was I charged a fee for a withdrawal in another country, and can I have it back?",
    "明天早上七点叫我起床",
)
REFERENCE = "onnxruntime fp32"


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=100, metavar="N", help="texts (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="passes over the texts (default: %(default)s)")
    made.add_argument("--threads", type=int, default=1, help="of every engine (default: %(default)s)")
    args = made.parse_args()
    if args.threads == 1:
        use_one_thread()
    bundle = Bundle.open(bundle_path(args))
    requests = asked(args.data, args.rows)
    deciders, seconds = contenders(bundle, args.threads)
    timings = interleave(
        {name: lambda request, d=decider: d.decide(*request) for name, decider in deciders.items()},  # type: ignore[misc]
        requests,
        args.rounds,
    )
    print(f"{len(requests)} texts x {args.rounds} rounds, threads: {args.threads}\n")
    timings.print("engine and precision")
    ratios = {name: timings.ratio(REFERENCE, name) for name in deciders if name != REFERENCE}
    for name, ratio in ratios.items():
        print_ratio(f"{name} against {REFERENCE}", ratio)
    same = agreement(deciders, requests)
    rows = [
        [name, f"{seconds[name]:.2f}", f"{figures['largest_difference']:.1e}", f"{figures['same_answer']:.1%}"]
        for name, figures in same.items()
    ]
    print()
    print_table(["engine and precision", "load s", "logits off by", "same answer"], rows)
    write_json(args, {"timings": timings.figures(), "ratios": ratios, "load_seconds": seconds, "agreement": same})


def asked(data: Path, number: int) -> list[Request]:
    """Requests of the labelled set, or of the texts that stand here."""
    if (data / SET).is_dir():
        return four_options(read_set(data / SET, [SPLIT]), number)
    options = ["card payment fee", "card arrival", "failed transfer", "something else"]
    return [(text, {"q": Choice("What is it about?", options)}) for text in TEXTS]


def contenders(bundle: Bundle, threads: int) -> tuple[dict[str, Decider], dict[str, float]]:
    """A decider for each engine, variant and precision that runs here, and the seconds that loading it took."""
    found: dict[str, Decider] = {}
    seconds: dict[str, float] = {}
    for engine in ENGINES:
        if missing_engine(engine):
            print(f"without {engine}: {missing_engine(engine)}")
            continue
        for variant in bundle.manifest.variants:
            if missing_needs(variant, probe()) or cannot_run(engine, variant):
                continue
            load(bundle.source, variant=variant.name, engine=engine, threads=threads)  # fills the cache
            began = time.perf_counter()
            name = f"{engine} {variant.name}"
            found[name] = load(bundle.source, variant=variant.name, engine=engine, threads=threads)
            seconds[name] = time.perf_counter() - began
        if engine != "onnxruntime":
            began = time.perf_counter()
            try:
                found[f"{engine} bf16"] = in_bf16(bundle, engine, threads)
                seconds[f"{engine} bf16"] = time.perf_counter() - began
            except EngineError as error:
                print(f"without {engine} in bf16: {error}")
    return found, seconds


def in_bf16(bundle: Bundle, engine: str, threads: int) -> Decider:
    """The fp32 variant, computed in bf16."""
    plan = make_plan(bundle, probe(), variant="fp32", engine=engine, threads=threads, tuned=False)
    path = bundle.path(engine_file(engine, plan.variant))
    tokenizer = TextTokenizer.from_file(bundle.path(bundle.manifest.tokenizer), threads)
    opened = open_engine(engine, path, threads, {"precision": "bf16"})
    decider = Decider(bundle.manifest, tokenizer, opened, plan)
    decider.warm_up()
    return decider


def agreement(deciders: dict[str, Decider], requests: list[Request]) -> dict[str, dict[str, Any]]:
    """How far logits are from those of the reference, and how often the same option comes first."""
    asked: list[Any] = list(requests)
    logits = {name: [values for (values,) in decider.logits(asked)] for name, decider in deciders.items()}
    expected = logits[REFERENCE]
    return {
        name: {
            "largest_difference": float(max(np.abs(a - b).max() for a, b in zip(values, expected, strict=True))),
            "same_answer": float(np.mean([a.argmax() == b.argmax() for a, b in zip(values, expected, strict=True)])),
        }
        for name, values in logits.items()
    }


if __name__ == "__main__":
    run(main)
