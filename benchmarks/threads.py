"""The number of threads that julia1 chooses under a CPU set and under a quota, and what it costs to choose otherwise.

Processes that are all loaded answer in turn: as julia1 chooses, with the number set by hand, and with the engine's own
default (as many threads as the machine has cores, which wait by spinning). One group is pinned to one CPU with
``sched_setaffinity``, as ``taskset`` does; the other is in a cgroup with the quota of one CPU, which needs root and a
cgroup file system that can be written to.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from _common import SEED, bundle_path, parser, print_table, run, write_json

CGROUP = Path("/sys/fs/cgroup")
PERIOD = 100_000
PAUSE = 0.3
"""Seconds between rounds: who spends more than the quota leaves a debt, which the next in turn must not pay."""
TEXT = "I was charged twice for one order, the second time a day later, and nobody has answered my mails since."


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--requests", type=int, default=50, help="in a round (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=7, help="of every process in turn (default: %(default)s)")
    made.add_argument("--child", help="how a process of this script chooses its threads")
    args = made.parse_args()
    if args.child is not None:
        return serve(args.child, str(bundle_path(args)), args.requests)
    rng = random.Random(SEED)
    table: list[list[str]] = []
    figures: dict[str, Any] = {}
    for limit in ("one CPU of the set", "quota of one CPU"):
        with contextlib.ExitStack() as stack:
            group = None
            if limit.startswith("quota"):
                group = quota_group()
                if group is None:
                    print("no cgroup can be made here: the quota is left out")
                    continue
                stack.callback(group.rmdir)
            children = {how: Child(how, group, args) for how in ("chosen", "by hand", "engine's default")}
            for child in children.values():
                stack.callback(child.close)
            seconds: dict[str, list[float]] = {how: [] for how in children}
            order = list(children)
            for _ in range(args.rounds):
                rng.shuffle(order)
                for how in order:
                    time.sleep(PAUSE)
                    seconds[how].append(children[how].round())
            by_hand = median(seconds["by hand"])
            for how, child in children.items():
                middle = median(seconds[how])
                spread = f"{1000 * min(seconds[how]):.1f} to {1000 * max(seconds[how]):.1f}"
                table.append([limit, how, child.threads, f"{1000 * middle:.1f}", spread, f"{middle / by_hand:.2f}"])
                figures[f"{limit}, {how}"] = {"threads": child.threads, "ms": 1000 * middle, "ratio": middle / by_hand}
    print_table(["limit", "threads", "number", "ms a request", "rounds", "of by hand"], table)
    write_json(args, {"threads": figures})
    return None


class Child:
    """A process that answers when it is told to."""

    def __init__(self, how: str, group: Path | None, args: Any) -> None:
        command = [sys.executable, __file__, "--child", how, "--requests", str(args.requests)]
        if args.model:
            command += ["--model", str(args.model)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("JULIA1_")}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        if group is None:
            os.sched_setaffinity(self._process.pid, {min(os.sched_getaffinity(0))})
        else:
            (group / "cgroup.procs").write_text(str(self._process.pid))
        self.threads = self._tell("load")

    def round(self) -> float:
        """Mean seconds of a request."""
        return float(self._tell("go"))

    def close(self) -> None:
        """End it."""
        self._process.communicate("stop\n")

    def _tell(self, word: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a child ended with {self._process.wait()}")
        return str(json.loads(line))


def serve(how: str, bundle: str, requests: int) -> None:
    """Answer what the parent asks, on lines."""
    words = iter(sys.stdin.readline, "")
    next(words)  # the limits are set before anything looks at them
    import julia1
    from julia1 import Choice

    decider = julia1.load(bundle, threads=1 if how == "by hand" else None, tuned=False)
    number: int | str = decider.plan.threads
    if how == "engine's default":
        number = "default"
        engine_default(decider, bundle)
    questions = {"q": Choice("Which team?", ["billing", "shipping", "accounts", "other"])}
    decider.decide(TEXT, questions)
    print(json.dumps(number), flush=True)
    for word in words:
        if word.strip() == "stop":
            return
        began = time.perf_counter()
        for _ in range(requests):
            decider.decide(TEXT, questions)
        print(json.dumps((time.perf_counter() - began) / requests), flush=True)


def engine_default(decider: Any, bundle: str) -> None:
    """Give the decider a session with the engine's own number of threads."""
    import onnxruntime

    from julia1.bundle import Bundle

    opened = Bundle.open(bundle)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(opened.path(decider.plan.variant.files[0])), options)
    decider._scorer._engine._session = session


def quota_group() -> Path | None:
    """A new cgroup with the quota of one CPU, v2 or v1; ``None`` where none can be made."""
    name = f"julia1-threads-{os.getpid()}"
    for folder, files in (
        (CGROUP / name, {"cpu.max": f"{PERIOD} {PERIOD}"}),
        (CGROUP / "cpu" / name, {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(PERIOD)}),
    ):
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            for file, text in files.items():
                if not (folder / file).exists():
                    raise FileNotFoundError(file)
                (folder / file).write_text(text)
            return folder
        except OSError:
            folder.rmdir()
    return None


if __name__ == "__main__":
    run(main)
