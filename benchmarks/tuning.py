"""Whether ``julia1 tune`` finds what an exhaustive search finds.

The tuner picks a setting; then every combination is measured, round by round in turn, and the tuner's pick is judged by
the figures of that run, in which it had no part. A ratio of 1 says that nothing better was there.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from _common import bundle_path, parser, print_table, run, write_json
from julia1.bench.trial import typical_load
from julia1.bench.tuning import Wanted, allowed, search
from julia1.bundle import Bundle
from julia1.runtime import probe


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=5, help="of either search (default: %(default)s)")
    made.add_argument("--goals", type=lambda s: s.split(","), default=["latency", "throughput"], help="such as latency")
    made.add_argument("--engines", type=lambda s: s.split(","), default=[], help="all that are installed without it")
    args = made.parse_args()
    bundle, cpu = Bundle.open(bundle_path(args)), probe()
    work = typical_load(bundle.manifest)
    table, figures = [], {}
    for goal in args.goals:
        began = time.monotonic()
        picked = search(bundle, cpu, work, Wanted(goal, engines=args.engines, rounds=args.rounds), tell)[0]
        between = time.monotonic()
        wanted = Wanted(goal, engines=args.engines, exhaustive=True, rounds=args.rounds)
        every = [one for one in search(bundle, cpu, work, wanted, tell) if allowed(one, wanted)]
        ended = time.monotonic()
        (own,) = [one for one in every if one.setting == picked.setting]
        best = every[0]
        ratio = own.cost(goal) / best.cost(goal)
        record: dict[str, Any] = {
            "picked": own.to_dict(),
            "best": best.to_dict(),
            "ratio": ratio,
            "settings": len(every),
            "seconds": [between - began, ended - between],
        }
        figures[goal] = record
        table.append(
            [
                goal,
                str(len(every)),
                told(own),
                told(best),
                f"{ratio:.3f}",
                f"{between - began:.0f} / {ended - between:.0f}",
            ]
        )
    print_table(["goal", "settings", "picked", "best of all", "ratio", "seconds"], table)
    write_json(args, figures)


def told(one: Any) -> str:
    """A setting in a few words."""
    way, batches = one.setting.way, f"{one.setting.batch_tokens}/{one.setting.length_step}"
    return f"{way.variant} {way.engine} x{way.threads} {batches}: {one.latency:.2f} ms {one.rate:.0f}/s"


def tell(line: str) -> None:
    """Progress."""
    print(f"  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main)
