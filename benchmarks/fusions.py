"""ONNX Runtime with and without the fusions that ``julia1.runtime.engines.onnxruntime`` turns off.

Requests of banking77/test with four options, those nearest to a number of tokens; one thread, call by call in one
process. Prints the time without tokenization. Ratios above 1 say that it is right to have them off.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

from _common import bundle_path, encoding_of, interleave, parser, print_ratio, run, use_one_thread, write_json
from decide_latency import SET, SPLIT, four_options
from julia1.bundle import Bundle
from julia1.runtime.decider import OPTION_MEMORY
from julia1.runtime.engines import onnxruntime, open_engine
from julia1.runtime.scorer import OptionScorer
from julia1.train.sources import read_set


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--tokens", type=int, default=35, help="length of a request (default: %(default)s)")
    made.add_argument("--rows", type=int, default=100, metavar="N", help="requests (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=5, help="passes over the requests (default: %(default)s)")
    args = made.parse_args()
    use_one_thread()
    bundle = Bundle.open(bundle_path(args))
    encoding = encoding_of(bundle)
    requests = four_options(read_set(args.data / SET, [SPLIT]), None)
    rows = [row for request in requests for row in encoding.encode(*request)[0]]
    rows = sorted(rows, key=lambda row: abs(len(row) - args.tokens))[: args.rows]
    contenders = {}
    for variant in bundle.manifest.variants:
        graph, pad = bundle.path(variant.files[0]), encoding.tokenizer.pad
        shipped = OptionScorer(open_engine(variant.engine, graph, 1), pad, OPTION_MEMORY)
        with patch.object(onnxruntime, "_SLOW_FUSIONS", []):  # no setting: nobody but this script needs it
            fused = OptionScorer(open_engine(variant.engine, graph, 1), pad, OPTION_MEMORY)
        contenders[f"{variant.name}, as shipped"] = shipped.scores
        contenders[f"{variant.name}, all fusions"] = fused.scores
    timings = interleave(contenders, [[row] for row in rows], args.rounds)
    lengths = [len(row) for row in rows]
    print(f"off as shipped: {', '.join(onnxruntime._SLOW_FUSIONS)}")
    print(f"{len(rows)} requests x {args.rounds} rounds, {min(lengths)} to {max(lengths)} tokens, one thread\n")
    timings.print("engine")
    ratios = {}
    for variant in bundle.manifest.variants:
        ratio = ratios[variant.name] = timings.ratio(f"{variant.name}, all fusions", f"{variant.name}, as shipped")
        print_ratio(f"{variant.name} as shipped against all fusions", ratio)
    write_json(args, {"median_tokens": float(np.median(lengths)), "timings": timings.figures(), "ratios": ratios})


if __name__ == "__main__":
    run(main)
