"""Memory that an engine keeps for each new shape of its inputs: rows padded to a multiple of a step, and not.

In a fresh process each: the largest batch first, then batches of other sizes in an order drawn once. What is held after
them, beside what was held after the largest, is kept for their shapes.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

from _common import SEED, bundle_path, parser, print_table, run, write_json
from julia1.bundle import Bundle
from julia1.runtime import probe
from julia1.runtime.engines import ENGINES, LENGTH_STEPS, missing_engine
from julia1.runtime.plan import make_plan

ROWS, TOKENS = 4, 96
CONTEXT = (0, 16, 32)


def main() -> None:
    made = parser(__doc__, data=False)
    made.add_argument("--shapes", type=int, default=900, metavar="N", help="shapes (default: %(default)s)")
    made.add_argument("--one", metavar="ENGINE:STEP", help="measure in this process, print JSON")
    args = made.parse_args()
    if args.one:
        engine, _, step = args.one.partition(":")
        print(json.dumps(measure(Bundle.open(bundle_path(args)), engine, int(step), args.shapes)))
        return
    figures = {}
    for engine in (name for name in ENGINES if not missing_engine(name)):
        for step in dict.fromkeys((1, LENGTH_STEPS.get(engine, 16))):
            command = [sys.executable, __file__, "--one", f"{engine}:{step}", "--shapes", str(args.shapes)]
            command += ["--model", str(bundle_path(args))]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures[f"{engine}, step {step}"] = json.loads(done.stdout.splitlines()[-1])
    rows = [[name, *(f"{value:.0f}" for value in values)] for name, values in figures.items()]
    print_table(["engine", "MB after the largest", f"MB after {args.shapes:,} shapes"], rows)
    write_json(args, {"megabytes": figures})


def measure(bundle: Bundle, engine: str, step: int, number: int) -> tuple[float, float]:
    """Megabytes held after the largest batch, and after all."""
    from julia1.runtime.engines import engine_file, open_engine

    plan = make_plan(bundle, probe(), variant="fp32", engine=engine, threads=1, tuned=False)
    opened = open_engine(engine, bundle.path(engine_file(engine, plan.variant)), 1)
    shapes = [(r, -(-t // step) * step, c) for r in range(1, ROWS + 1) for t in range(4, TOKENS + 1) for c in CONTEXT]
    random.Random(SEED).shuffle(shapes)

    def call(rows: int, tokens: int, context: int) -> None:
        feeds: dict[str, np.ndarray] = {}
        for name, axes in opened.inputs.items():
            middle = context if name.startswith("context") else 2 if name in ("markers", "option_vectors") else tokens
            shape = (rows, middle, int(axes[2])) if len(axes) == 3 else (rows, middle)
            feeds[name] = np.zeros(shape, np.float32 if len(axes) == 3 else np.int64)
        opened.run(feeds, ["logits"])

    for _ in range(3):
        call(ROWS, -(-TOKENS // step) * step, CONTEXT[-1])
    largest = resident()
    for shape in shapes[:number]:
        call(*shape)
    return largest, resident()


def resident() -> float:
    """Megabytes of memory that this process holds (Linux)."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


if __name__ == "__main__":
    run(main)
