"""Memory of the request path (Linux): after thousands of mixed requests, in several workers, and under a limit.

  one process      resident memory, and the most it ever was, after so many mixed requests: 2 to 300 words in all
                   scripts, one to four questions of all types, up to 12 options, one call in ten a batch of 16 states
  four workers     what each holds with pages of several counted as shares (PSS), after 25 requests each: loaded by each
                   for itself, and forked from one that had loaded (on one thread: a pool of threads is not forked)
  under a limit    the same process in a memory cgroup of 1 GB, or without one with an address space of 4 GB

Every process is fresh.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import julia1
from _common import SEED, bundle_path, parser, print_table, run, write_json
from julia1 import Decider, InputError
from julia1.bench.process import peak_memory, sample_process
from julia1.bench.texts import made_up_questions, made_up_text

MB = 1e6
WORDS = (2, 5, 10, 20, 40, 40, 80, 300)
BATCH_EVERY, BATCH = 10, 16
WORKERS, WORKER_REQUESTS = 4, 25
LIMIT = 1_000_000_000
ADDRESSES = 4 << 30
"""Of a process without a cgroup: libraries and threads reserve far more addresses than they use."""
CGROUPS = Path("/sys/fs/cgroup")


def main() -> None:
    made = parser(__doc__, data=False)
    made.add_argument("--variant", default="int8", help="of the bundle (default: %(default)s)")
    made.add_argument("--requests", type=int, default=5000, help="in one process (default: %(default)s)")
    made.add_argument("--limited-requests", type=int, default=300, help="under the limit (default: %(default)s)")
    made.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    args = made.parse_args()
    if args.role:
        ROLES[args.role](args)
        return
    if not sys.platform.startswith("linux"):
        raise InputError("memory is read from /proc: run this on Linux")
    figures: dict[str, Any] = {"one process": finished(child(args, "requests", args.requests))}
    show("one process", figures["one process"])
    figures["workers"] = {"loaded apart": apart(args), "forked": finished(child(args, "forked"))["workers"]}
    rows = [
        [name, *(f"{sum(one[key] for one in workers) / len(workers) / MB:.0f}" for key in ("rss", "pss"))]
        for name, workers in figures["workers"].items()
    ]
    print_table([f"{WORKERS} workers, MB each", "RSS", "PSS"], rows)
    with limit() as (how, enter):
        figures["under a limit"] = finished(child(args, "requests", args.limited_requests, enter))
        figures["under a limit"]["how"] = how
    show(f"under {how}", figures["under a limit"])
    write_json(args, figures)


def answer(args: argparse.Namespace) -> None:
    """Answer ``--requests`` mixed requests and print the memory on the way, as one line of JSON."""
    decider = julia1.load(bundle_path(args), variant=args.variant, tuned=False)
    marks = [[0, sample_process().resident, peak_memory()]]
    for number, ask in enumerate(mixed(decider, args.requests), start=1):
        ask()
        if number * 10 % args.requests == 0 or number == args.requests:
            marks.append([number, sample_process().resident, peak_memory()])
    print(json.dumps({"marks": marks}))


def wait(args: argparse.Namespace) -> None:
    """Load, answer a few requests, say so, and stay until standard input ends."""
    serve_few(julia1.load(bundle_path(args), variant=args.variant, threads=1, tuned=False), os.getpid())
    print(json.dumps({"pid": os.getpid()}), flush=True)
    sys.stdin.read()


def forked(args: argparse.Namespace) -> None:
    """Load, fork workers that answer a few requests each, and print what they hold while all of them live."""
    decider = julia1.load(bundle_path(args), variant=args.variant, threads=1, tuned=False)
    done_read, done_write = os.pipe()
    stay_read, stay_write = os.pipe()
    workers = []
    for number in range(WORKERS):
        pid = os.fork()
        if not pid:
            os.close(stay_write)
            serve_few(decider, number)
            os.write(done_write, b"x")
            os.read(stay_read, 1)
            os._exit(0)
        workers.append(pid)
    for _ in workers:
        os.read(done_read, 1)
    found = [held(pid) for pid in workers]
    os.close(stay_write)
    for pid in workers:
        os.waitpid(pid, 0)
    print(json.dumps({"workers": found}))


ROLES: dict[str, Callable[[argparse.Namespace], None]] = {"requests": answer, "wait": wait, "forked": forked}


def serve_few(decider: Decider, seed: int) -> None:
    """What a worker answers before it is measured."""
    for ask in mixed(decider, WORKER_REQUESTS, seed):
        ask()


def mixed(decider: Decider, number: int, seed: int = SEED) -> Iterator[Callable[[], Any]]:
    """Requests of all lengths, scripts and types, ready to be called."""
    rng = random.Random(seed)
    fixed = decider.manifest.kind == "fixed"
    for index in range(number):
        states = [made_up_text(rng, rng.choice(WORDS)) for _ in range(BATCH if index % BATCH_EVERY == 9 else 1)]
        questions = None if fixed else made_up_questions(rng, 4, rng.randint(1, 4))
        seconds = states if decider.manifest.compares() else None
        yield lambda states=states, questions=questions, seconds=seconds: decider.decide_many(  # type: ignore[misc]
            states, questions, seconds=seconds
        )


def child(
    args: argparse.Namespace, role: str, requests: int = 0, enter: Callable[[], object] | None = None
) -> subprocess.Popen[str]:
    """A fresh process in a role; ``enter`` runs in it first."""
    command = [sys.executable, str(Path(__file__)), "--role", role, "--variant", args.variant]
    command += ["--requests", str(requests), "--model", str(bundle_path(args))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=enter)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it printed."""
    out, _ = process.communicate()
    if process.returncode:
        raise InputError(f"a process ended with {process.returncode}")
    found: dict[str, Any] = json.loads(out)
    return found


def apart(args: argparse.Namespace) -> list[dict[str, float]]:
    """Workers that each loaded for itself."""
    processes = [child(args, "wait") for _ in range(WORKERS)]
    pids = [json.loads(process.stdout.readline())["pid"] for process in processes if process.stdout]
    found = [held(pid) for pid in pids]
    for process in processes:
        process.communicate()
    return found


def held(pid: int) -> dict[str, float]:
    """Resident and proportional memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return {"rss": values["Rss"], "pss": values["Pss"]}


@contextlib.contextmanager
def limit() -> Iterator[tuple[str, Callable[[], object]]]:
    """What puts a process under the limit, and how it is called."""
    for folder, name in ((CGROUPS / "memory", "memory.limit_in_bytes"), (CGROUPS, "memory.max")):
        group = folder / f"julia1-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(LIMIT))
            members = group / "cgroup.procs"
            yield f"a cgroup of {LIMIT / MB:,.0f} MB", lambda place=members: place.write_text(str(os.getpid()))
        finally:
            group.rmdir()
        return

    def enter() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))

    yield f"an address space of {ADDRESSES / MB:,.0f} MB", enter


def show(title: str, figures: dict[str, Any]) -> None:
    """Resident and peak memory by the number of requests."""
    rows: list[Sequence[str]] = [[f"{n:,}", f"{rss / MB:.0f}", f"{peak / MB:.0f}"] for n, rss, peak in figures["marks"]]
    print_table([f"{title}: requests", "RSS MB", "peak MB"], rows)


if __name__ == "__main__":
    run(main)
