"""``julia1 tune``: find the fastest safe way to run a model on this machine, and keep it for ``load``."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from julia1 import settings
from julia1.cli.flags import Commands, add_bundle, add_json, positive
from julia1.cli.printing import columns, print_json, size
from julia1.cli.questions import add_question_flags, questions_for
from julia1.errors import InputError

if TYPE_CHECKING:
    from julia1.bench.trial import Load
    from julia1.bench.tuning import Measured, Wanted
    from julia1.bundle import Manifest

MOST_TEXTS = 256
"""Of a file, drawn at random; a round of more takes long and tells no more."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tune",
        help="find the fastest way to run a model here",
        description="Measure a model on this machine with each variant, engine, number of threads, size of batches and "
        "padding, and keep the best in the cache, where every later load finds it. A way whose answers are not those "
        "of fp32 is never chosen.",
    )
    parser.set_defaults(run=run, parser=parser)
    add_bundle(parser)
    parser.add_argument("--data", metavar="JSONL", help="your texts, as for decide --input; made-up ones without it")
    parser.add_argument("--field", metavar="NAME", help="field with the text or state; 'text' or 'state' without it")
    add_question_flags(parser)
    search = parser.add_argument_group("search")
    search.add_argument(
        "--goal", choices=("latency", "throughput"), default="latency", help="one text soon, or many (default: latency)"
    )
    search.add_argument("--max-memory", type=positive, metavar="MB", help="the process may take no more")
    search.add_argument("--engines", metavar="A,B", help="try these; all that are installed without it")
    search.add_argument("--threads", metavar="1,2", help="try these; 1, 2, 4 ... up to the cores without it")
    search.add_argument("--rounds", type=positive, default=5, metavar="N", help="of the last comparison (default: 5)")
    search.add_argument("--exhaustive", action="store_true", help="measure every combination in every round")
    search.add_argument("--dry-run", action="store_true", help="measure, but keep nothing")
    search.add_argument("--forget", action="store_true", help="measure nothing and forget what was kept")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search, print the table, keep the best."""
    from julia1.bench.tuning import front, search, tuned
    from julia1.bundle import Bundle
    from julia1.runtime.cpu import probe
    from julia1.runtime.tuned import tuned_file, write_tuned

    opened, cpu = Bundle.open(arguments.bundle or settings.model_path()), probe()
    if arguments.forget:
        place = tuned_file(opened, cpu)
        known = place.exists()
        place.unlink(missing_ok=True)
        told = {"forgot": str(place) if known else None}
        print_json(told) if arguments.json else print(f"forgot {place}" if known else "nothing was kept for this model")
        return 0
    wanted = _wanted(arguments)
    if not arguments.dry_run:
        settings.cache_folder()  # an error now, not after minutes
    work = _load(arguments, opened.manifest)
    found = search(opened, cpu, work, wanted, lambda line: print(f"  {line}", file=sys.stderr, flush=True))
    best = tuned(found[0], wanted.goal)
    kept = None if arguments.dry_run else write_tuned(opened, cpu, best)
    on_front = front(found)
    if arguments.json:
        rows = [{**one.to_dict(), "front": one.setting in on_front} for one in found]
        print_json({"chosen": found[0].to_dict(), "kept": str(kept) if kept else None, "measured": rows})
        return 0
    print(*columns(_table(found, on_front), indent=""), sep="\n")
    way = found[0].setting.way
    print(f"\nbest for {wanted.goal}: {way.variant} on {way.engine}, threads: {way.threads}")
    print("kept nothing (--dry-run)" if kept is None else f"kept in {kept}; load and every command now take it")
    return 0


def _wanted(arguments: argparse.Namespace) -> Wanted:
    from julia1.bench.tuning import Wanted
    from julia1.runtime.engines import missing_engine

    engines = [name.strip() for name in (arguments.engines or "").split(",") if name.strip()]
    for name in engines:
        problem = missing_engine(name)
        if problem:
            raise InputError(f"--engines {name}: {problem}")
    try:
        threads = [int(text) for text in (arguments.threads or "").split(",") if text.strip()]
        if min(threads, default=1) < 1:
            raise ValueError
    except ValueError:
        raise InputError(f"--threads {arguments.threads!r}: whole numbers of at least 1, between commas") from None
    memory = arguments.max_memory * 1_000_000 if arguments.max_memory else None
    return Wanted(arguments.goal, memory, engines, threads, arguments.exhaustive, arguments.rounds)


def _load(arguments: argparse.Namespace, manifest: Manifest) -> Load:
    """The user's texts and questions, or made-up ones."""
    from julia1.bench.trial import Load, typical_load
    from julia1.cli.rows import given_of

    typical = typical_load(manifest)
    questions = questions_for(manifest, arguments) or typical.questions
    if arguments.data is None:
        if arguments.field is not None:
            raise InputError("--field needs --data")
        return Load(typical.given, questions)
    given = [given_of(row, manifest) for row in _rows(arguments.data, arguments.field, manifest.features.names)]
    return Load(random.Random(1).sample(given, min(MOST_TEXTS, len(given))), questions)


def _rows(path: str, field: str | None, features: Sequence[str]) -> list[Any]:
    from julia1.cli.rows import RowReader

    reader = RowReader(path, field, "", features)
    try:
        rows = list(reader)
    finally:
        reader.close()
    for row in rows:
        if row.problem:
            raise InputError(f"{path}:{row.line}: {row.problem}")
    if not rows:
        raise InputError(f"{path} has no rows: give at least one")
    return rows


def _table(found: Sequence[Measured], on_front: set[Any]) -> list[list[str]]:
    head = ["", "variant", "engine", "threads", "batch", "pad to", "ms", "p95", "texts/s", "memory", "as fp32", ""]
    rows = [head]
    for place, one in enumerate(found):
        way, data = one.setting.way, one.to_dict()
        mark = ">" if place == 0 else "*" if one.setting in on_front else ""
        rows.append(
            [
                mark,
                way.variant,
                way.engine,
                str(way.threads),
                str(one.setting.batch_tokens),
                str(one.setting.length_step),
                _figure(data["latency_ms"], ".2f"),
                _figure(data["p95_ms"], ".2f"),
                _figure(data["texts_per_second"], ".0f"),
                size(one.memory) if one.memory else "-",
                _figure(data["agreement"], ".1%"),
                one.problem,
            ]
        )
    return rows


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
