"""``julia1 data``: check, split, clean and balance labelled rows. Needs the extra ``train``."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from julia1 import settings
from julia1.cli.flags import Commands, add_json, fraction, positive
from julia1.cli.printing import columns as lined_up
from julia1.cli.printing import count, one_line, print_json
from julia1.errors import InputError, MissingExtraError, VerificationError

FRAME = 2
"""Tokens around a text, of those that a model reads."""
SHOWN = 20
"""Classes that are printed."""


def add_to(commands: Commands) -> None:
    """Add the command and its parts."""
    parser = commands.add_parser(
        "data",
        help="check, split, clean and balance labelled rows",
        description="Check, split, clean and balance rows (JSON lines, CSV or Parquet). Needs the extra train.",
    )
    parser.set_defaults(parser=parser)
    parts = parser.add_subparsers(metavar="PART", dest="part", required=True)
    check = _part(parts, "check", run_check, "report on labels, balance, lengths, duplicates and leaks")
    check.add_argument(
        "--validation", metavar="FILE", type=Path, help="validation rows: looked at for leaks and labels"
    )
    check.add_argument("--test", metavar="FILE", type=Path, help="test rows: the same")
    check.add_argument("--html", metavar="FILE", type=Path, help="write the report as a page too")
    check.add_argument(
        "--bundle", metavar="BUNDLE", type=Path, help="whose tokenizer counts (default: the bundled model's)"
    )
    check.add_argument(
        "--max-tokens", metavar="N", type=_tokens, help="what training will be told to read of a text (default: 256)"
    )
    check.add_argument("--fast", action="store_true", help="no near duplicates, no doubtful labels")
    split = _part(parts, "split", run_split, "cut rows into train.jsonl, val.jsonl and test.jsonl")
    split.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="where the three files go")
    split.add_argument(
        "--shares", metavar="A:B:C", type=_shares, default=(8.0, 1.0, 1.0), help="train:val:test (default: 8:1:1)"
    )
    split.add_argument("--seed", type=positive, default=1, metavar="N", help="another seed gives another split")
    split.add_argument(
        "--near",
        type=fraction,
        default=None,
        metavar="X",
        help="likeness of near duplicates (default: 0.8; 1 for equal texts only)",
    )
    split.add_argument("--force", action="store_true", help="write over parts that are there")
    clean = _part(parts, "clean", run_clean, "take markup, invisible characters, repeated blanks and repeated rows out")
    clean.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="a .jsonl file")
    clean.add_argument(
        "--keep-duplicates", action="store_true", help="keep rows that stand twice with the same answers"
    )
    even = _part(parts, "balance", run_balance, "leave out rows of frequent classes, repeat those of rare ones")
    even.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="a .jsonl file")
    for part in (clean, even):
        part.add_argument("--force", action="store_true", help="write over a file that is there")
    even.add_argument(
        "--by", choices=("label", "language", "both"), default="label", help="what a class is (default: label)"
    )
    even.add_argument("--question", metavar="NAME", help="whose labels count, where rows answer several")
    even.add_argument("--most", type=positive, metavar="N", help="leave out rows of a class that has more")
    even.add_argument("--least", type=positive, metavar="N", help="repeat rows of a class that has fewer")
    even.add_argument(
        "--power",
        type=fraction,
        metavar="X",
        help="rows of a class go with their number to this power: 1 changes nothing, 0 makes all even",
    )
    even.add_argument("--seed", type=positive, default=1, metavar="N", help="another seed leaves other rows out")


def run_check(arguments: argparse.Namespace) -> int:
    """Print the report; raises ``VerificationError`` when something must be mended."""
    with Extra():
        from julia1.train.data.checks import check_data
        from julia1.train.data.duplicates import NEAR
        from julia1.train.data.files import write_files
        from julia1.train.data.report import report_html, report_lines
        from julia1.train.data.rows import read_rows

        columns = _columns(arguments)
        named = {"validation": arguments.validation, "test": arguments.test}
        others = {name: read_rows([path], columns) for name, path in named.items() if path is not None}
        from julia1.train.recipe import FineTuning

        limit = (arguments.max_tokens or FineTuning().max_tokens) - FRAME
        count_tokens = _tokenizer(arguments.bundle)
        report = check_data(
            read_rows(arguments.files, columns),
            others,
            count_tokens=count_tokens,
            limit=limit,
            near=None if arguments.fast else NEAR,
            suspicious=not arguments.fast,
        )
    if arguments.html is not None:
        page = report_html(report, f"Data report: {', '.join(p.name for p in arguments.files)}")
        write_files({arguments.html: [page]})
    if arguments.json:
        print_json(report.to_dict())
    else:
        print(*report_lines(report), sep="\n")
    if report.problems:
        raise VerificationError(f"{count(len(report.problems), 'problem')} to mend; the first: {report.problems[0]}")
    return 0


def run_split(arguments: argparse.Namespace) -> int:
    """Write the three files; those with no share are not written."""
    from julia1.train.data.files import write_files
    from julia1.train.data.rows import json_lines, read_rows

    data = read_rows(arguments.files, _columns(arguments))
    if arguments.output.exists() and not arguments.output.is_dir():
        raise InputError(f"--output {arguments.output} is not a folder")
    with Extra():
        from julia1.train.data.duplicates import NEAR
        from julia1.train.data.splitting import SPLITS, split_rows

        near = NEAR if arguments.near is None else None if arguments.near == 1 else arguments.near
        split = split_rows(data.rows, arguments.shares, arguments.seed, near)
    targets = {name: arguments.output / f"{name}.jsonl" for name in SPLITS}
    present = [path for path in targets.values() if path.exists()]
    if any(path.samefile(source) for path in present for source in arguments.files):
        raise InputError(f"--output {arguments.output}: the parts would overwrite what they are made of")
    if present and not arguments.force:
        raise InputError(f"{present[0]} is there already: name another folder, or write over it with --force")
    arguments.output.mkdir(parents=True, exist_ok=True)
    chosen = {name: getattr(split, name) for name in SPLITS}
    write_files({targets[name]: json_lines(data.rows[i].data for i in own) for name, own in chosen.items() if own})
    for name, own in chosen.items():
        if not own:  # a part that is no longer made would hold rows of the others
            targets[name].unlink(missing_ok=True)
    sizes = {name: len(own) for name, own in chosen.items()}
    if arguments.json:
        print_json({"folder": str(arguments.output), **sizes, "left_out": len(split.left_out)})
    else:
        print(f"{arguments.output}: " + ", ".join(f"{name} {number:,}" for name, number in sizes.items()))
        if split.left_out:
            print(f"{count(len(split.left_out), 'augmented row')} left out: what they were made from is evaluated on")
    return 0


def run_clean(arguments: argparse.Namespace) -> int:
    """Write the cleaned rows."""
    from julia1.train.data.cleaning import clean_text
    from julia1.train.data.duplicates import content_key, content_of
    from julia1.train.data.rows import kind_of, read_rows, write_rows

    if arguments.output.suffix.lower() != ".jsonl":
        raise InputError(f"--output {arguments.output}: cleaned rows are JSON lines, name the file .jsonl")
    columns = _columns(arguments)
    data = read_rows(arguments.files, columns, allow_empty=True)
    _require_free(arguments)
    done: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    kept: list[dict[str, Any]] = []
    for row in data.rows:
        # spans count the characters of the text as it is
        pointed_at = any(kind_of(answer) == "tags" for answer in row.answers.values())
        cleaned = {
            name: clean_text(value)
            if not pointed_at and name in ("text", "state", "text_b", columns.text) and isinstance(value, str)
            else value
            for name, value in row.data.items()
        }
        done["changed"] += cleaned != row.data
        found = next((cleaned[n] for n in (columns.text, "text", "state") if n in cleaned), "")
        text = found if isinstance(found, str) else row.text
        if not text.strip() and all(value is None for value in row.features.values()):
            done["emptied"] += 1
            continue
        answers = repr(sorted(row.answers.items(), key=lambda item: item[0]))
        # of rows without a text the model sees features, but who cleans them may have named the wrong field
        fields = sorted((name, value) for name, value in cleaned.items() if value not in ("", None))
        said = content_key(content_of(replace(row, text=text))) if text.strip() else repr(fields)
        key = (said, answers)
        if key in seen and not arguments.keep_duplicates:
            done["repeated"] += 1
            continue
        seen.add(key)
        kept.append(cleaned)
    if not kept:
        raise InputError("nothing is left after cleaning: every text was markup or blank")
    write_rows(arguments.output, kept)
    figures = {"rows": len(kept), **{name: done[name] for name in ("changed", "emptied", "repeated")}}
    if arguments.json:
        print_json({"file": str(arguments.output), **figures})
    else:
        print(
            f"{arguments.output}: {count(len(kept), 'row')}; {done['changed']:,} texts changed, "
            f"{done['emptied']:,} rows without text and {done['repeated']:,} repeated rows left out"
        )
    return 0


def run_balance(arguments: argparse.Namespace) -> int:
    """Write the rows, and print how many each class had and has."""
    from julia1.train.data.balancing import MOST_REPEATS, Target, balance
    from julia1.train.data.rows import read_rows, write_rows

    if arguments.output.suffix.lower() != ".jsonl":
        raise InputError(f"--output {arguments.output}: balanced rows are JSON lines, name the file .jsonl")
    columns = _columns(arguments)
    data = read_rows(arguments.files, columns)
    _require_free(arguments)
    target = Target(arguments.most, arguments.least, arguments.power)
    found = balance(data, target, by=arguments.by, question=arguments.question, seed=arguments.seed, columns=columns)
    write_rows(arguments.output, found.rows)
    classes = [{"class": name, "before": number, "after": found.after[name]} for name, number in found.before.items()]
    figures = {"rows": len(found.rows), "left_out": found.left_out, "repeated": found.repeated}
    if arguments.json:
        print_json({"file": str(arguments.output), **figures, "classes": classes, "short": found.short})
        return 0
    print(
        f"{arguments.output}: {count(len(found.rows), 'row')} of {len(data.rows):,}; {found.left_out:,} left out, "
        f"{found.repeated:,} repetitions"
    )
    cells = [[one_line(str(one["class"])), f"{one['before']:,}", f"{one['after']:,}"] for one in classes[:SHOWN]]
    print(*lined_up([["class", "before", "after"], *cells]), sep="\n")
    if len(classes) > SHOWN:
        print(f"  and {len(classes) - SHOWN:,} more: --json shows them")
    if found.short:
        print(
            f"{len(found.short):,} of the classes stay smaller than wanted, since a row stands {MOST_REPEATS} times at "
            f"most: {one_line(', '.join(found.short[:8]))}"
        )
    return 0


def _require_free(arguments: argparse.Namespace) -> None:
    """Raise when rows would be written over others."""
    if not arguments.output.exists():
        return
    if any(arguments.output.samefile(source) for source in arguments.files):
        raise InputError(f"--output {arguments.output}: rows that are left out would be lost: name another file")
    if not arguments.force:
        raise InputError(f"{arguments.output} is there already: name another file, or write over it with --force")


class Extra:
    """Answers a missing library with the line that installs it."""

    def __init__(self, name: str = "train") -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModuleNotFoundError):
            package = (error.name or "").partition(".")[0]
            if package != "julia1":
                raise MissingExtraError(package, self._name) from None


def _part(parts: Any, name: str, run: Callable[[argparse.Namespace], int], help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parts.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help=".jsonl, .csv, .tsv or .parquet")
    parser.add_argument("--text", metavar="FIELD", help="field with the text (default: text or state)")
    parser.add_argument(
        "--answers",
        metavar="A,B",
        type=names,
        default=(),
        help="fields with answers (default: label, labels, score, targets, answers)",
    )
    parser.add_argument("--features", metavar="A,B", type=names, default=(), help="fields with structured features")
    add_json(parser)
    return parser


def names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _shares(text: str) -> tuple[float, float, float]:
    try:
        first, second, third = (float(part) for part in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers such as 8:1:1") from None
    if min(first, second, third) < 0 or not first or not math.isfinite(first + second + third):
        raise argparse.ArgumentTypeError(f"{text!r}: shares are numbers of at least 0, and train needs one")
    return first, second, third


def _columns(arguments: argparse.Namespace) -> Any:
    from julia1.train.data.files import Columns

    return Columns(text=arguments.text, answers=arguments.answers, features=arguments.features)


def _tokens(text: str) -> int:
    number = positive(text)
    if number <= FRAME:
        raise argparse.ArgumentTypeError(f"{text!r}: at least {FRAME + 1}, for a text with a token before and after")
    return number


def _tokenizer(path: Path | None) -> Callable[[Sequence[str]], list[int]]:
    """Counts tokens as a bundle does."""
    from julia1.bundle import Bundle
    from julia1.text.tokenizer import TextTokenizer

    opened = Bundle.open(path or settings.model_path())
    tokenizer = TextTokenizer.from_file(opened.path(opened.manifest.tokenizer))
    return lambda texts: [len(ids) for ids in tokenizer.ids(texts)]
