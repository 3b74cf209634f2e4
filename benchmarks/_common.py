"""What the benchmarks share: arguments, data, interleaved timing, tables, and the JSON with machine facts."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from julia1 import Julia1Error, settings
from julia1.bundle import Bundle
from julia1.runtime.cpu import probe
from julia1.runtime.decider import token_limits
from julia1.text import OptionsEncoding, TextTokenizer

ROOT = Path(__file__).resolve().parents[1]
SEED = 20261130
LIBRARIES = ("julia1", "numpy", "onnxruntime", "openvino", "tokenizers", "torch", "transformers", "scikit-learn")

Item = TypeVar("Item")


def parser(description: str | None, model: bool = True, data: bool = True) -> argparse.ArgumentParser:
    """The arguments that benchmarks have in common; ``description`` is the module's docstring."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if model:
        made.add_argument("--model", type=Path, metavar="BUNDLE", help="bundle to measure (default: the bundled model)")
    if data:
        folder = ROOT.parent / "shared" / "data"
        made.add_argument(
            "--data", type=Path, default=folder, metavar="FOLDER", help="data sets (default: %(default)s)"
        )
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures, with facts about the machine")
    return made


def run(main: Callable[[], int | None]) -> None:
    """Run a benchmark and exit with what it returns; errors that julia1 raises on purpose are one line and exit 2."""
    try:
        sys.exit(main())
    except Julia1Error as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def bundle_path(args: argparse.Namespace) -> Path:
    """The bundle that ``--model`` names, or the bundled model."""
    return Path(args.model or settings.model_path())


def encoding_of(bundle: Bundle) -> OptionsEncoding:
    """The bundle's tokenizer and token budgets."""
    tokenizer = TextTokenizer.from_file(bundle.path(bundle.manifest.tokenizer))
    return OptionsEncoding(tokenizer, token_limits(bundle.manifest))


def use_one_thread() -> None:
    """Keep every contender to one thread: PyTorch, and the tokenizer, whose batch call would take all cores.

    Engines are told when they are opened. Call it before a tokenizer is used.
    """
    import torch

    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def sample(rows: Sequence[Item], number: int | None, seed: int = SEED) -> list[Item]:
    """``number`` of the rows, drawn without replacement and kept in order; all of them when ``None``."""
    if number is None or number >= len(rows):
        return list(rows)
    return [rows[i] for i in sorted(random.Random(seed).sample(range(len(rows)), number))]


@dataclass(frozen=True)
class Timings:
    """Seconds of interleaved calls.

    Attributes:
        seconds: by contender, ``[rounds, items]``.
        results: by contender, what its calls returned in the last round.
    """

    seconds: Mapping[str, npt.NDArray[np.float64]]
    results: Mapping[str, list[Any]]

    def milliseconds(self, name: str) -> dict[str, float]:
        """Median, p10, p90 and p95 over all calls of a contender."""
        median, p10, p90, p95 = np.percentile(self.seconds[name] * 1e3, (50, 10, 90, 95))
        return {"median_ms": float(median), "p10_ms": float(p10), "p90_ms": float(p90), "p95_ms": float(p95)}

    def ratio(self, slow: str, fast: str) -> dict[str, float]:
        """How many times faster ``fast`` is: ratio of the medians, and p10 and p90 of the ratios call by call."""
        medians = float(np.median(self.seconds[slow]) / np.median(self.seconds[fast]))
        p10, p90 = np.percentile(self.seconds[slow] / self.seconds[fast], (10, 90))
        return {"ratio": medians, "p10": float(p10), "p90": float(p90)}

    def figures(self) -> dict[str, dict[str, float]]:
        """The milliseconds of every contender."""
        return {name: self.milliseconds(name) for name in self.seconds}

    def print(self, title: str = "contender") -> None:
        """A row a contender."""
        rows = [[name, *(f"{v:.2f}" for v in self.milliseconds(name).values())] for name in self.seconds]
        print_table([title, "median ms", "p10", "p90", "p95"], rows)


def interleave(
    contenders: Mapping[str, Callable[[Item], Any]], items: Sequence[Item], rounds: int, warm_up: int = 5
) -> Timings:
    """Time contenders call by call in one process: on each item all of them, in an order drawn anew.

    Whatever else the machine does then meets all of them alike, and none always runs after the same one.

    Args:
        contenders: name to a function of one item.
        items: what to call them with.
        rounds: how often to go through the items.
        warm_up: items that are run first and not counted.
    """
    for item in items[:warm_up]:
        for call in contenders.values():
            call(item)
    shape = (rounds, len(items))
    seconds = {name: np.empty(shape) for name in contenders}
    results: dict[str, list[Any]] = {name: [None] * len(items) for name in contenders}
    order = list(contenders)
    rng = random.Random(SEED)
    progress = Progress("timing", rounds * len(items))
    for r in range(rounds):
        for i, item in enumerate(items):
            rng.shuffle(order)
            for name in order:
                began = time.perf_counter()
                result = contenders[name](item)
                seconds[name][r, i] = time.perf_counter() - began
                results[name][i] = result
            progress.step()
    return Timings(seconds, results)


class Progress:
    """One line on stderr: rewritten on a terminal, printed at every tenth elsewhere."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.began = time.monotonic()

    def step(self, number: int = 1) -> None:
        """``number`` more are done."""
        tenth = self.done * 10 // max(1, self.total)
        self.done += number
        left = (time.monotonic() - self.began) / self.done * (self.total - self.done)
        line = f"{self.what}: {self.done:,} of {self.total:,}, {left:.0f} s left"
        if sys.stderr.isatty():
            end = "\n" if self.done >= self.total else ""
            print(f"\r{line:<79}", end=end, file=sys.stderr, flush=True)
        elif self.done * 10 // max(1, self.total) > tenth:
            print(line, file=sys.stderr, flush=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns apart by two blanks; the first to the left, the others, which hold figures, to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells).rstrip())
    print(flush=True)


def print_ratio(what: str, ratio: Mapping[str, float]) -> None:
    """One line for a ratio of ``Timings``."""
    print(f"{what}: {ratio['ratio']:.2f}x as fast (call by call p10 {ratio['p10']:.2f}, p90 {ratio['p90']:.2f})")


def write_json(args: argparse.Namespace, figures: Mapping[str, Any]) -> None:
    """Write the figures to ``--json``, with the arguments and facts about the machine; nothing without it."""
    if args.json is None:
        return
    record = {
        "benchmark": Path(sys.argv[0]).stem,
        "arguments": {name: value for name, value in vars(args).items() if name != "json"},
        "machine": machine_facts(),
        "figures": figures,
    }
    if "model" in args:
        record["model"] = model_facts(bundle_path(args))
    args.json.write_text(json.dumps(record, ensure_ascii=False, indent=2, default=str) + "\n", encoding="utf-8")
    print(f"figures written to {args.json}")


def machine_facts() -> dict[str, Any]:
    """CPU, cores, system, library versions, date and git revision."""
    installed = {found.metadata["Name"]: found.version for found in metadata.distributions()}
    versions = {name: installed[name] for name in LIBRARIES if name in installed}
    revision = _git("rev-parse", "--short=12", "HEAD")
    return {
        "cpu": probe().name or "unknown",
        "cores": probe().cores,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **versions},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "git_revision": f"{revision}, changed" if revision and _git("status", "--porcelain") else revision,
    }


def model_facts(path: Path) -> dict[str, Any]:
    """Name, version and weight hashes of a bundle."""
    manifest = Bundle.open(path, verify=False).manifest
    hashes = {entry.path: entry.sha256 for entry in manifest.all_files()}
    return {"name": manifest.name, "version": manifest.version, "sha256": hashes}


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
