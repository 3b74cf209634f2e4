"""How well one variant stands for another: int8 beside fp32 on real questions, and which is faster.

Texts of the test and validation splits of many sets, English, Chinese and others, with choices (2 options to whole
label lists, described or not), yes/no questions and scales. Prints the share of the same answers, overall and by type,
how far probabilities move, and the speed of ``decide`` on one thread, timed call by call.
"""

from __future__ import annotations

import julia1
from _common import bundle_path, interleave, parser, print_ratio, print_table, run, use_one_thread, write_json
from _compare import Comparison, kind
from _questions import draw_requests


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=2000, metavar="N", help="questions (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=1, help="passes over the requests (default: %(default)s)")
    made.add_argument("--variant", default="int8", help="variant to judge (default: %(default)s)")
    made.add_argument("--reference", default="fp32", help="variant to compare with (default: %(default)s)")
    args = made.parse_args()
    use_one_thread()
    requests = draw_requests(args.data, args.rows)
    names = (args.variant, args.reference)
    deciders = {name: julia1.load(bundle_path(args), variant=name, threads=1) for name in names}
    contenders = {name: lambda request, d=decider: d.decide(*request) for name, decider in deciders.items()}
    timings = interleave(contenders, requests, args.rounds)
    by_kind = {"all": Comparison(), "choice": Comparison(), "yesno": Comparison(), "score": Comparison()}
    for found, expected in zip(timings.results[args.variant], timings.results[args.reference], strict=True):
        by_kind["all"].add(expected, found)
        for name, answer in expected.items():
            by_kind[kind(answer)].add({name: answer}, found)
    figures = {name: comparison.figures() for name, comparison in by_kind.items()}
    print(f"{args.variant} beside {args.reference}: {args.rows:,} questions in {len(requests):,} requests\n")
    header = ["type", "questions", "same answer", "mean movement", "largest movement", "widest margin changed"]
    keys = ("mean_movement", "largest_movement", "widest_margin_changed")
    rows = [
        [name, f"{found['answers']:,}", f"{found['same']:.2%}", *(f"{found[key]:.4f}" for key in keys)]
        for name, found in figures.items()
    ]
    print_table(header, rows)
    timings.print("variant")
    ratio = timings.ratio(args.reference, args.variant)
    print_ratio(f"{args.variant} against {args.reference}", ratio)
    write_json(args, {"agreement": figures, "timings": timings.figures(), "ratio": ratio})


if __name__ == "__main__":
    run(main)
