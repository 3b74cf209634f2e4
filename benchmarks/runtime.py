"""What each trick of a fast runtime is worth here, switched on alone: ratios, beside what is claimed for it.

Texts of banking77/test with four options, in one process, call by call in an order drawn anew; a ratio above 1 says
that the second of two is faster. Claims are those of the sources that this product was set against: I/O binding 30 %
more throughput, an arena 15 to 20 %, batches of 32 six times as much as single texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import julia1
from _common import Timings, bundle_path, interleave, parser, print_table, run, sample, write_json
from decide_latency import SET, SPLIT, four_options
from julia1.bundle import Bundle
from julia1.runtime import Decider, probe
from julia1.runtime.engines.onnxruntime import open_session, session_options
from julia1.runtime.plan import make_plan
from julia1.train.sources import read_set

Feeds = Mapping[str, npt.NDArray[np.generic]]
Call = tuple[Feeds, Sequence[str]]
BATCHES = (1, 2, 4, 8, 16, 32)
PADDED = 128


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=100, metavar="N", help="single texts (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="passes over the texts (default: %(default)s)")
    made.add_argument("--variant", help="variant to run; the one that this CPU gets without it")
    args = made.parse_args()
    bundle = Bundle.open(bundle_path(args))
    plan = make_plan(bundle, probe(), variant=args.variant, tuned=False)
    decider = julia1.load(bundle_path(args), variant=plan.variant.name, threads=1, tuned=False)
    requests = four_options(read_set(args.data / SET, [SPLIT]), None)
    questions = requests[0][1]
    texts = [state for state, _ in sample(requests, 320)]
    graph = str(bundle.path(plan.variant.files[0]))
    print(f"{bundle.manifest.name}, {plan.variant.name}, {probe().name}\n")
    table: list[list[str]] = []
    figures: dict[str, Any] = {}

    def judge(what: str, timings: Timings, slow: str, fast: str, claim: str) -> None:
        ratio = timings.ratio(slow, fast)
        ms = (f"{timings.milliseconds(name)['median_ms']:.2f}" for name in (slow, fast))
        table.append([what, *ms, f"{ratio['ratio']:.2f}", f"{ratio['p10']:.2f} to {ratio['p90']:.2f}", claim])
        figures[what] = ratio

    calls = recorded(decider, questions, texts[: args.rows])
    timings = interleave(session_contenders(graph), calls, args.rounds)
    judge("I/O binding, buffers used again", timings, "shipped", "binding", "1.30")
    judge("arena", timings, "no arena", "arena", "1.15 to 1.20")
    judge("memory pattern", timings, "arena, no pattern", "arena", "")
    judge("2 threads, sleeping when idle", timings, "shipped", "2 threads", "")
    judge("2 threads, spinning when idle", timings, "shipped", "2 spinning", "")
    judge("spinning instead of sleeping", timings, "2 threads", "2 spinning", "")

    for size in BATCHES[1:]:
        groups = [texts[i : i + size] for i in range(0, min(len(texts), 10 * size), size)]
        pair: dict[str, Callable[[list[str]], Any]] = {
            "alone": lambda group: [decider.decide(text, questions) for text in group],
            "together": lambda group: decider.decide_many(group, questions, batch_tokens=1 << 20),
        }
        judge(f"batch of {size}", interleave(pair, groups, args.rounds, 2), "alone", "together", CLAIMS.get(size, ""))

    mixed = sorted(texts, key=lambda text: hash_of(text))[:256]
    padded = decider.with_batches(decider.plan.batch_tokens, PADDED)
    ways: dict[str, Callable[[list[str]], Any]] = {
        "sorted by length": lambda some: decider.decide_many(some, questions),
        "as they come": lambda some: [
            decider.decide_many(some[i : i + 16], questions, batch_tokens=1 << 20) for i in range(0, len(some), 16)
        ],
        f"padded to {PADDED}": lambda some: padded.decide_many(some, questions),
    }
    timings = interleave(ways, [mixed], args.rounds + 2, 1)
    judge("batches by length, not as texts come", timings, "as they come", "sorted by length", "")
    judge(f"by length, not padded to {PADDED}", timings, f"padded to {PADDED}", "sorted by length", "")

    tokenizer = decider._encoding.tokenizer
    ways = {
        "one by one": lambda some: [tokenizer.ids([text]) for text in some],
        "in a batch": lambda some: tokenizer.ids(some),
    }
    judge("tokenizing in a batch", interleave(ways, [mixed], 20, 2), "one by one", "in a batch", "")

    print_table(["switched on", "ms without", "ms with", "times as fast", "call by call", "claimed"], table)
    write_json(args, {"variant": plan.variant.name, "ratios": figures})


CLAIMS = {32: "6"}


def hash_of(text: str) -> int:
    """A number that shuffles texts the same way each time."""
    return int.from_bytes(text.encode()[:8].rjust(8, b"\0"), "little") * 2654435761 % (1 << 32)


def recorded(decider: Decider, questions: Mapping[str, julia1.Question], texts: Sequence[str]) -> list[Call]:
    """What the engine is fed for each text, its options read before."""
    calls: list[Call] = []
    engine = decider._scorer._engine

    class Recorder:
        inputs = engine.inputs

        def run(self, feeds: Feeds, outputs: Sequence[str]) -> list[npt.NDArray[np.float32]]:
            calls.append(({name: np.ascontiguousarray(array) for name, array in feeds.items()}, outputs))
            return engine.run(feeds, outputs)

    decider.decide(texts[0], questions)
    decider._scorer._engine = Recorder()
    try:
        for text in texts:
            decider.decide(text, questions)
    finally:
        decider._scorer._engine = engine
    return calls


def session_contenders(graph: str) -> dict[str, Callable[[Call], Any]]:
    """Sessions that differ in one thing each."""

    def plain(threads: int, **changes: Any) -> Callable[[Call], Any]:
        options = session_options(threads)
        for name, value in changes.items():
            if name == "spinning":
                options.add_session_config_entry("session.intra_op.allow_spinning", value)
            else:
                setattr(options, name, value)
        session = open_session(graph, options)
        return lambda call: session.run(list(call[1]), dict(call[0]))

    return {
        "shipped": plain(1),
        "binding": bound(graph),
        "arena": plain(1, enable_cpu_mem_arena=True, enable_mem_pattern=True),
        "no arena": plain(1, enable_cpu_mem_arena=False, enable_mem_pattern=False),
        "arena, no pattern": plain(1, enable_cpu_mem_arena=True, enable_mem_pattern=False),
        "2 threads": plain(2),
        "2 spinning": plain(2, spinning="1"),
    }


def bound(graph: str) -> Callable[[Call], Any]:
    """Inputs and outputs bound, the output's buffer used again where its shape is the same."""
    import onnxruntime

    session = open_session(graph, session_options(1))
    buffers: dict[tuple[str, tuple[int, ...]], npt.NDArray[np.float32]] = {}

    def call(item: Call) -> Any:
        feeds, outputs = item
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        (name,) = outputs
        shape = (len(feeds["input_ids"]), feeds["markers"].shape[1])
        buffer = buffers.setdefault((name, shape), np.empty(shape, np.float32))
        binding.bind_output(name, "cpu", 0, np.float32, shape, buffer.ctypes.data)
        session.run_with_iobinding(binding)
        return [buffer.copy()]

    return call


if __name__ == "__main__":
    run(main)
