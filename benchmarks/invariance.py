"""What must not change an answer: the order of options and questions, the batch, threads, and the split into passes.

  order     real questions of every type, several a request; options and questions in drawn orders (levels of a scale
            are ordered: only the questions around it move)
  batch     texts of mixed length alone, and in batches of several sizes, orders and subsets
  threads   16 threads share one decider for a while; every answer must equal the serial one to the last bit
  passes    1,000 options over several passes, and in a single pass

Each for every variant of the bundle. Exit code 1 when an answer changed or a probability moved too far: 1e-5 (order and
passes, fp32), 1e-4 (batch, fp32), 1e-3 (batch and passes, int8). How far order moves int8 is printed and not judged.
"""

from __future__ import annotations

import random
import threading
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import julia1
from _common import SEED, Progress, bundle_path, parser, print_table, run, sample, write_json
from _compare import Comparison
from _questions import draw_requests
from julia1 import Answer, Choice, Decider, InputError, Question, Score, YesNo
from julia1.bundle import Bundle
from julia1.runtime.engines import open_engine
from julia1.text import TextTokenizer
from julia1.train.sources import read_set

LIMITS: dict[str, dict[str, float]] = {
    "order": {"fp32": 1e-5},
    "batch": {"fp32": 1e-4, "int8": 1e-3},
    "threads": {"fp32": 0.0, "int8": 0.0},
    "passes": {"fp32": 1e-5, "int8": 1e-3},
}
"""How far a probability may move, by check and precision; no limit where none is given."""
LENGTHS = (
    "movie_reviews_long",
    "asap_sample",
    "sib200",
    "xed",
    "banking77",
    "pros_cons",
    "it_tickets",
    "openai_moderation",
)
OPTION_SETS = (
    *("clinc150", "banking77", "hwu64", "massive", "nlupp", "bitext_support", "snips_slots", "xsid", "crosswoz"),
    *("fmc_mwo2kg", "sib200", "xed", "openai_moderation", "it_tickets"),
)
BATCH_TOKENS = (256, 1024, 4096)
SUBSETS = (3, 17, 64)
THREADS = 16
QUESTIONS: dict[str, Question] = {
    "topic": Choice(
        "What is the text about?", ["money", "health", "sports", "travel", "politics", "food", "technology"]
    ),
    "kind": Choice(
        "What is it?", {"a complaint": "something went wrong", "praise": None, "a question": None, "news": None}
    ),
    "negative": YesNo("Is the writer unhappy with something?"),
    "upset": Score("How upset is the writer?", ["calm", "annoyed", "furious"]),
}


def main() -> int:
    args = arguments()
    bundle = Bundle.open(bundle_path(args))
    names = args.variants or [variant.name for variant in bundle.manifest.variants]
    checks = {"order": order, "batch": batch, "threads": threads, "passes": passes}
    lines: list[dict[str, Any]] = []
    for name in names:
        decider = julia1.load(bundle.source, variant=name, threads=args.threads)
        for check in args.checks:
            for what, comparison in checks[check](decider, bundle, args).items():
                limit = LIMITS[check].get(decider.plan.variant.precision)
                figures = comparison.figures()
                held = not figures["changed"] and (limit is None or figures["largest_movement"] <= limit)
                lines.append({"variant": name, "check": check, "what": what, "limit": limit, "held": held, **figures})
    table = [
        [
            f"{line['variant']} {line['check']}: {line['what']}",
            f"{line['answers']:,}",
            f"{line['changed']:,}",
            f"{line['widest_margin_changed']:.1e}",
            f"{line['largest_movement']:.1e}",
            "-" if line["limit"] is None else f"{line['limit']:.0e}",
            "held" if line["held"] else "BROKEN",
        ]
        for line in lines
    ]
    header = ["variant and check", "answers", "changed", "widest margin changed", "largest movement", "limit", ""]
    print_table(header, table)
    write_json(args, {"lines": lines})
    return 0 if all(line["held"] for line in lines) else 1


def arguments() -> Namespace:
    made = parser(__doc__)
    made.add_argument("--quick", action="store_true", help="small sizes: a look, not a proof")
    made.add_argument("--checks", type=lambda s: s.split(","), default=list(LIMITS), help="such as order,batch")
    made.add_argument("--variants", type=lambda s: s.split(","), help="such as int8 (default: all of the bundle)")
    made.add_argument("--threads", type=int, help="threads of the engine (default: the physical cores)")
    made.add_argument("--rows", type=int, help="order: questions (default: 1000)")
    made.add_argument("--permutations", type=int, help="order: of each request (default: 5)")
    made.add_argument("--texts", type=int, help="batch: texts (default: 200)")
    made.add_argument("--seconds", type=float, help="threads: how long (default: 30)")
    made.add_argument("--options", type=int, help="passes: options of the question (default: 1000)")
    args = made.parse_args()
    full = {"rows": 1000, "permutations": 5, "texts": 200, "seconds": 30.0, "options": 1000}
    quick = {"rows": 30, "permutations": 2, "texts": 16, "seconds": 3.0, "options": 400}
    for name, value in (quick if args.quick else full).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    unknown = [name for name in args.checks if name not in LIMITS]
    if unknown:
        made.error(f"--checks: there is no {', '.join(unknown)}; known: {', '.join(LIMITS)}")
    return args


def order(decider: Decider, bundle: Bundle, args: Namespace) -> dict[str, Comparison]:
    """Each request alone, asked again in other orders."""
    rng = random.Random(SEED)
    comparison = Comparison()
    requests = draw_requests(args.data, args.rows)
    progress = Progress(f"{decider.plan.variant.name} order", len(requests))
    for state, questions in requests:
        before = decider.decide(state, questions)
        for _ in range(args.permutations):
            comparison.add(before, decider.decide(state, shuffled(questions, rng)))
        progress.step()
    return {f"{args.permutations} orders of {args.rows:,} questions": comparison}


def shuffled(questions: Mapping[str, Question], rng: random.Random) -> dict[str, Question]:
    """The same questions, they and their options in an order drawn anew."""
    moved = {}
    for name, question in rng.sample(list(questions.items()), len(questions)):
        if isinstance(question, Choice):
            options = rng.sample(list(question.options.items()), len(question.options))
            question = Choice(question.instructions, dict(options))
        moved[name] = question
    return moved


def batch(decider: Decider, bundle: Bundle, args: Namespace) -> dict[str, Comparison]:
    """Each text alone, then among others."""
    texts = mixed_texts(args.data, args.texts)
    rng = random.Random(SEED)
    alone = []
    progress = Progress(f"{decider.plan.variant.name} batch", len(texts))
    for text in texts:
        alone.append(decider.decide(text, QUESTIONS))
        progress.step()
    found = {}
    for tokens in BATCH_TOKENS:
        comparison = found[f"batches of {tokens:,} tokens"] = Comparison()
        comparison.add_all(alone, decider.decide_many(texts, QUESTIONS, batch_tokens=tokens))
        comparison = found[f"batches of {tokens:,} tokens, shuffled"] = Comparison()
        moved = rng.sample(range(len(texts)), len(texts))
        answers = decider.decide_many([texts[i] for i in moved], QUESTIONS, batch_tokens=tokens)
        comparison.add_all([alone[i] for i in moved], answers)
    for size in SUBSETS:
        comparison = found[f"subsets of {size}"] = Comparison()
        moved = rng.sample(range(len(texts)), len(texts))
        for subset in (moved[start : start + size] for start in range(0, len(moved), size)):
            comparison.add_all([alone[i] for i in subset], decider.decide_many([texts[i] for i in subset], QUESTIONS))
    requests = draw_requests(args.data, args.rows)
    comparison = found[f"{len(requests):,} requests of their own, together"] = Comparison()
    comparison.add_all([decider.decide(*request) for request in requests], decider.decide_requests(requests))
    return found


def mixed_texts(data: Path, number: int) -> list[str]:
    """Texts of a few words to whole reviews, from several sets."""
    share = -(-number // len(LENGTHS))
    drawn = [sample(read_set(data / name, ["test"]).rows, share) for name in LENGTHS]
    texts = [row["text"] for rows in zip(*drawn, strict=False) for row in rows]
    return [text for text in texts if text.strip()][:number]


def threads(decider: Decider, bundle: Bundle, args: Namespace) -> dict[str, Comparison]:
    """Requests drawn at random by many threads at once, against serial answers."""
    requests = draw_requests(args.data, 60)
    serial = [decider.decide(*request) for request in requests]
    end = time.monotonic() + args.seconds
    found: list[tuple[int, Mapping[str, Answer]]] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        try:
            while time.monotonic() < end:
                index = rng.randrange(len(requests))
                found.append((index, decider.decide(*requests[index])))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    comparison = Comparison()
    for index, answers in found:
        comparison.add(serial[index], answers)
    return {f"{THREADS} threads for {args.seconds:g} s, {len(found):,} requests": comparison}


def passes(decider: Decider, bundle: Bundle, args: Namespace) -> dict[str, Comparison]:
    """One question with very many options, over several passes and in one."""
    options = many_options(args.data, args.options)
    question = {"q": Choice("What does the user want?", options)}
    texts = [row["text"] for row in sample(read_set(args.data / "banking77", ["test"]).rows, 3)]
    split = [decider.decide(text, question) for text in texts]
    whole = with_pass_tokens(decider, bundle, 64 * len(options) + 1024)
    comparison = Comparison()
    comparison.add_all(split, [whole.decide(text, question) for text in texts])
    return {f"{len(options):,} options": comparison}


def many_options(data: Path, number: int) -> Sequence[str]:
    """Distinct labels, and after them descriptions and Chinese names, of many sets."""
    sets = [read_set(data / name, []) for name in OPTION_SETS]
    texts = [label for labelled in sets for label in labelled.labels]
    texts += [text for labelled in sets for text in (*labelled.labels.values(), *labelled.labels_zh.values())]
    options = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    if len(options) < number:
        raise InputError(
            f"--options: the sets have {len(options):,} labels and descriptions, {number:,} were asked for"
        )
    return options[:number]


def with_pass_tokens(decider: Decider, bundle: Bundle, tokens: int) -> Decider:
    """A decider with the same variant, whose passes hold so many tokens."""
    manifest = replace(bundle.manifest, encoding=replace(bundle.manifest.encoding, pass_tokens=tokens))
    tokenizer = TextTokenizer.from_file(bundle.path(manifest.tokenizer))
    variant = decider.plan.variant
    engine = open_engine(variant.engine, bundle.path(variant.files[0]), decider.plan.threads)
    return Decider(manifest, tokenizer, engine, decider.plan)


if __name__ == "__main__":
    run(main)
