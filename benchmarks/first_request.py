"""The first request after a load beside those that follow it: in fresh processes, by length and by questions.

A case is a request of a kind. In each process the model is loaded with its warm-up, the request is asked once and
timed, then ``--following`` others of the same kind. By case, over the processes: the median of the first, of the
others, of their ratio, and its largest value; by the clock, and in CPU time, which other processes disturb less.

  new questions    every request brings three questions of its own: the same work for all
  same questions   the first request also has their options read, which are then kept
  loaded with them the same after ``load(questions=...)``, as a service does that knows what it asks
  60 options       the same with one question of 60 options
  fixed heads      a model that is asked without questions

``load`` is the time of ``julia1.load()``, warm-up included and imports apart.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import julia1
import julia1.runtime.decider  # imports are no part of a load
from _common import SEED, Progress, bundle_path, parser, print_table, run, write_json
from julia1 import Choice, Decider, InputError, Question, Score, YesNo
from julia1.bench.texts import made_up_text

Ask = Callable[[int], dict[str, Question] | None]


def new_questions(number: int) -> dict[str, Question]:
    """Three questions that no other number has."""
    return {
        "team": Choice("Which team handles this?", [f"{name} {number}" for name in ("billing", "shipping", "support")]),
        "urgent": YesNo(f"Is case {number} urgent?"),
        "upset": Score("How upset is the writer?", [f"{level} {number}" for level in ("calm", "annoyed", "furious")]),
    }


def many_options(number: int) -> dict[str, Question]:
    """Sixty options, the same for all numbers."""
    return {"which": Choice("Which of these?", [f"made-up option number {i}" for i in range(60)])}


LENGTHS = {"5 words": 5, "40 words": 40, "over the limit": 600}
OPEN: dict[str, tuple[int, Ask]] = {
    **{f"{name}, new questions": (words, new_questions) for name, words in LENGTHS.items()},
    "5 words, same questions": (5, lambda number: new_questions(0)),
    "40 words, same questions": (40, lambda number: new_questions(0)),
    "40 words, 60 options": (40, many_options),
    "5 words, loaded with them": (5, lambda number: new_questions(0)),
    "40 words, loaded with them": (40, lambda number: new_questions(0)),
}
FIXED: dict[str, tuple[int, Ask]] = {f"{name}, fixed heads": (n, lambda number: None) for name, n in LENGTHS.items()}
CASES = OPEN | FIXED


def main() -> None:
    made = parser(__doc__, data=False)
    made.add_argument("--variant", help="of the bundle (default: the one that suits the CPU)")
    made.add_argument("--processes", type=int, default=10, help="a case (default: %(default)s)")
    made.add_argument("--following", type=int, default=100, help="requests after the first (default: %(default)s)")
    made.add_argument("--cases", type=lambda s: s.split(";"), help="some, between ; (default: all of the model)")
    made.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    args = made.parse_args()
    if args.case:
        print(json.dumps(measured(args)))
        return
    fixed = julia1.load(bundle_path(args), variant=args.variant, warm_up=False).manifest.kind == "fixed"
    cases = [case for case in (FIXED if fixed else OPEN) if args.cases is None or case in args.cases]
    if not cases:
        raise InputError(f"--cases: the model has {'; '.join(FIXED if fixed else OPEN)}")
    progress = Progress("processes", args.processes * len(cases))
    found: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
    for _ in range(args.processes):  # in turn, so that all meet the same machine
        for case in cases:
            found[case].append(in_a_process(args, case))
            progress.step()
    rows = []
    for clock in ("wall", "cpu"):
        for case, results in found.items():
            first, later = (np.array([one[f"{clock}_{which}"] for one in results]) for which in ("first", "later"))
            ratio = first / later
            figures = (np.median(first) * 1e3, np.median(later) * 1e3, np.median(ratio), ratio.max())
            rows.append([f"{case}, {clock}", *(f"{value:.2f}" for value in figures)])
    print_table(["request", "first ms", "others ms", "ratio", "at most"], rows)
    for clock in ("wall", "cpu"):
        loads = [one[f"{clock}_load"] for results in found.values() for one in results]
        print(f"load, {clock}: median {np.median(loads):.2f} s, p90 {np.percentile(loads, 90):.2f} s")
    write_json(args, found)


def in_a_process(args: argparse.Namespace, case: str) -> dict[str, float]:
    """The figures of one fresh process."""
    command = [sys.executable, str(Path(__file__)), "--case", case, "--following", str(args.following)]
    command += ["--model", str(bundle_path(args)), *(["--variant", args.variant] if args.variant else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"a process failed: {done.stderr.strip().splitlines()[-1:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measured(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of the load, of the first request and of the median of the others."""
    rng = random.Random(SEED)
    words, questions = CASES[args.case]
    known = questions(0) if args.case.endswith("loaded with them") else None
    decider, *load = timed(lambda: julia1.load(bundle_path(args), variant=args.variant, questions=known))
    numbers = range(1 + args.following)
    requests = [request(decider, made_up_text(rng, words), questions(number)) for number in numbers]
    seconds = np.array([timed(ask)[1:] for ask in requests])
    wall, cpu = np.median(seconds[1:], axis=0)
    figures = {"wall_load": load[0], "wall_first": seconds[0, 0], "wall_later": wall}
    return figures | {"cpu_load": load[1], "cpu_first": seconds[0, 1], "cpu_later": cpu}


def request(decider: Decider, text: str, questions: dict[str, Question] | None) -> Callable[[], Any]:
    """What asks a model of either kind."""
    second = text if decider.manifest.compares() else None
    return lambda: decider.decide(text, questions, second=second)


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it returns, and its seconds by the clock and in CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    run(main)
