"""``julia1 train`` on labelled rows: its flags, its file, and what it prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from julia1 import settings
from julia1.cli.data import Extra, names
from julia1.cli.evaluation_text import evaluation_lines, warn_of_guarantees
from julia1.cli.flags import fraction, positive
from julia1.cli.printing import columns, one_line, print_json
from julia1.cli.progress import TrainingProgress
from julia1.cli.registry import add_registry, for_training, keep, stored_fields, told
from julia1.errors import BundleError, InputError, VerificationError

if TYPE_CHECKING:
    from julia1.bundle.registry import Stored
    from julia1.export.operator_check import Finding
    from julia1.train.config import RowTraining
    from julia1.train.package import Fitted
    from julia1.train.parts import Parts
    from julia1.train.pseudo import Round
    from julia1.train.recipe import FineTuning
    from julia1.train.trials import Run

SETTINGS = ("epochs", "max_tokens", "windows", "seed", "max_error")
"""Flags that set the hyper-parameter of their name; ``--set`` sets any."""
_PATHS = ("validation", "test", "unlabelled")
_PSEUDO = ("threshold", "quota", "rounds")
_SAME_NAME = ("base", "name", "text", "answers", "features", "teacher", "trials")
FLAGS = (
    *SETTINGS,
    *_PATHS,
    *(f"pseudo_{name}" for name in _PSEUDO),
    *_SAME_NAME,
    "set",
    "search",
    "registry",
    "no_register",
)
"""Flags that are for labelled rows alone."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what is said of labelled rows."""
    rows = parser.add_argument_group("labelled rows")
    rows.add_argument("--validation", metavar="FILE", type=Path, help="to stop and calibrate by (default: a tenth)")
    rows.add_argument("--test", metavar="FILE", type=Path, help="to measure once at the end (default: a tenth)")
    rows.add_argument(
        "--base",
        metavar="MODEL",
        help="whose encoder to start from: a bundle, a Hugging Face folder, or owner/model on the hub (default: the "
        "bundled model)",
    )
    rows.add_argument("--name", metavar="NAME", help="of the bundle (default: that of the output folder)")
    rows.add_argument("--text", metavar="FIELD", help="field with the text (default: text or state)")
    rows.add_argument("--answers", metavar="A,B", type=names, help="fields with answers (default: all known)")
    rows.add_argument("--features", metavar="A,B", type=names, help="fields with structured features")
    rows.add_argument("--epochs", type=positive, metavar="N", help="at most (default: by the number of rows)")
    rows.add_argument("--max-tokens", type=positive, metavar="N", help="tokens that are read of a text (default: 256)")
    rows.add_argument("--windows", type=positive, metavar="N", help="read a longer text in up to N parts (default: 1)")
    rows.add_argument("--seed", type=positive, metavar="N", help="of split and training (default: 1)")
    rows.add_argument(
        "--max-error",
        metavar="X",
        type=fraction,
        help="abstain so that at most this share of the answers is wrong (takes half of the validation rows)",
    )
    rows.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="any hyper-parameter; may be repeated (--print-config shows all)",
    )
    rows.add_argument(
        "--teacher",
        metavar="MODEL",
        help="learn from its probabilities too: a bundle, or a Hugging Face classifier (folder or hub)",
    )
    rows.add_argument(
        "--unlabelled", metavar="FILE", type=Path, help="rows for the model to label and learn from (pseudo-labels)"
    )
    rows.add_argument("--pseudo-threshold", type=fraction, metavar="X", help="how sure it must be (0.95)")
    rows.add_argument(
        "--pseudo-quota", type=positive, metavar="N", help="rows of a label at most (as many as labelled)"
    )
    rows.add_argument("--pseudo-rounds", type=positive, metavar="N", help="how often it labels and learns (1)")
    rows.add_argument(
        "--search",
        metavar="NAME=A,B",
        action="append",
        default=[],
        help="train with each value of a hyper-parameter and keep the best; several make a grid; NAME=LOW..HIGH is a "
        "range for an optimiser",
    )
    rows.add_argument(
        "--trials", type=positive, metavar="N", help="combinations that an optimiser tries (20 where there is a range)"
    )
    add_registry(rows)
    rows.add_argument("--no-register", action="store_true", help="do not keep the bundle in the registry")


def configuration(arguments: argparse.Namespace, data: Mapping[str, Any] | None) -> RowTraining:
    """What the file says, if there is one, with the flags over it.

    Args:
        arguments: the flags.
        data: keys and values of the file.

    Raises:
        InputError: naming the key or flag that cannot be used.
    """
    from julia1.train.config import RowTraining, check_config, read_config

    defaults = machine_settings()
    if data is None:
        config = RowTraining([str(path) for path in arguments.sources], settings=defaults)
    else:
        path = arguments.sources[0]
        config = read_config(data, str(path), path.parent, defaults)
    given = {name: getattr(arguments, name) for name in (*_PATHS, *_SAME_NAME)}
    changes = {name: value for name, value in given.items() if value is not None}
    changes.update({name: str(changes[name]) for name in _PATHS if name in changes})
    changes.update({name: list(changes[name]) for name in ("answers", "features") if name in changes})
    if arguments.bundle_version is not None:
        changes["version"] = arguments.bundle_version
    pseudo = {name: getattr(arguments, f"pseudo_{name}") for name in _PSEUDO}
    changes["pseudo"] = replace(config.pseudo, **{name: value for name, value in pseudo.items() if value is not None})
    changes["settings"] = replace(config.settings, **_hyper_parameters(arguments))
    if config.unlabelled is None and arguments.unlabelled is None and any(v is not None for v in pseudo.values()):
        raise InputError("--pseudo-threshold, --pseudo-quota and --pseudo-rounds need --unlabelled FILE")
    if arguments.search:
        from julia1.train.space import parse_space

        changes["search"] = parse_space(arguments.search)
    config = replace(config, **changes)
    check_config(config)
    return config


def machine_settings() -> FineTuning:
    """The hyper-parameters that nobody names, as they suit this machine."""
    from julia1.runtime.cpu import probe
    from julia1.train.recipe import FineTuning

    cpu = probe()
    # bfloat16 that the CPU has to imitate is several times slower than fp32
    return FineTuning(threads=cpu.cores, bf16=bool(cpu.features & {"avx512_bf16", "amx_bf16", "bf16"}))


def _hyper_parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """Of the flags of their name, and of ``--set``."""
    from julia1.train.recipe import FineTuning, fill
    from julia1.train.space import plain_value

    found = {name: getattr(arguments, name) for name in SETTINGS if getattr(arguments, name) is not None}
    for text in arguments.set:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--set {text!r}: write NAME=VALUE")
        if name in found:
            raise InputError(f"--set {text!r}: {name} is given twice")
        found[name] = getattr(fill(FineTuning, {name: plain_value(value.strip())}, f"--set {text!r}"), name)
    return found


def warn_of_operators(findings: Iterable[Finding]) -> None:
    """A line on standard error for each that stops nothing; the others are errors when training begins."""
    for finding in findings:
        if not finding.stops:
            print(f"julia1: warning: {one_line(str(finding))}", file=sys.stderr)


def run_rows(arguments: argparse.Namespace, config: RowTraining, version: str) -> int:
    """Train, and print the figures."""
    from julia1.train.data.files import Columns
    from julia1.train.data.rows import read_rows

    chosen = Columns(text=config.text, answers=tuple(config.answers), features=tuple(config.features))
    data = read_rows([Path(path) for path in config.rows], chosen)
    if data.features_alone:
        print(f"julia1: warning: {one_line(data.features_alone)}", file=sys.stderr)
    others = [read_rows([Path(path)], chosen) if path else None for path in (config.validation, config.test)]
    runs: list[Run] = []
    rounds: list[Round] = []
    with Extra():
        from julia1.export.operator_check import check_operators
        from julia1.train.fit import fit
        from julia1.train.parts import make_parts
        from julia1.train.pseudo import self_train
        from julia1.train.search import search
        from julia1.train.space import read_space
        from julia1.train.start import find_start
        from julia1.train.teaching import find_teacher

        start = find_start(config.base or settings.model_path(), arguments.registry)
        warn_of_operators(check_operators(start.config, config.settings.max_tokens))
        teacher = find_teacher(config.teacher, arguments.registry) if config.teacher else None
        parts = make_parts(data, others[0], others[1], config.settings.seed)
        name = config.name or arguments.output.resolve().name
        registry = for_training(arguments, name, version)
        common: dict[str, Any] = {"name": name, "version": version, "teacher": teacher}
        where = (start, arguments.output, config.settings)
        with TrainingProgress() as progress:
            if config.unlabelled is not None:
                rows = read_rows([Path(config.unlabelled)], chosen, answered=False).rows
                fitted, rounds = self_train(parts, rows, *where, config.pseudo, report=progress, **common)
            elif config.search:
                space = read_space(config.search)
                fitted, runs = search(
                    parts, *where, space, trials=config.trials, report=_report_run, notice=progress, **common
                )
            else:
                fitted = fit(parts, *where, report=progress, **common)
    # the bundle is there, but does not do what was asked of it
    code = 3 if warn_of_guarantees(fitted) else 0
    if not arguments.json:
        print(f"{fitted.bundle.folder}: {name} {version}")
        _print(fitted, parts, rounds, runs)
        sys.stdout.flush()
    stored = None
    try:
        if registry:
            stored = keep(registry, fitted.bundle.folder, once=config.version is None)
    except BundleError as error:
        if code:
            raise VerificationError(str(error)) from None
        raise
    finally:  # whatever happens to the registry, the figures are told
        if arguments.json:
            _print_json(fitted, rounds, runs, stored)
    if stored and not arguments.json:
        print(told(stored))
    return code


def _print_json(fitted: Fitted, rounds: Sequence[Round], runs: Sequence[Run], stored: Stored | None) -> None:
    found: dict[str, Any] = {"validation": fitted.validation, "test": fitted.test, "parity": fitted.parity.largest}
    found.update({"rounds": [asdict(one) for one in rounds]} if rounds else {})
    found.update({"runs": [run.to_dict() for run in runs]} if runs else {})
    found["registry"] = stored_fields(stored) if stored else None
    found["guarantees"] = [one.to_dict() for one in fitted.guarantees]
    found["rows"] = fitted.bundle.manifest.provenance["rows"]
    print_json({"bundle": str(fitted.bundle.folder), "report": str(fitted.report), **found})


def _print(fitted: Fitted, parts: Parts, rounds: Sequence[Round], runs: Sequence[Run]) -> None:
    if parts.left_out:
        print(f"{parts.left_out:,} training rows left out: they stand in the validation or test rows too")
    for one in rounds:
        print(f"round {one.number}: {one.added:,} rows labelled by the model, validation {one.score:.4f}")
    if runs:
        print("runs, best first", *columns(_table_of(runs)), sep="\n")
    for part, figures in (("validation", fitted.validation), ("test", fitted.test)):
        lines = [[head, ", ".join(f"{key} {value:.3f}" for key, value in own.items())] for head, own in figures.items()]
        print(f"{part} rows", *columns(lines), sep="\n")
    print(*evaluation_lines(fitted), sep="\n")


def _table_of(runs: Sequence[Run]) -> list[list[str]]:
    """Runs as a table, the best first."""
    tried = list(runs[0].chosen)
    ordered = sorted(runs, key=lambda run: -1.0 if run.score is None else run.score, reverse=True)
    cells = [
        [str(run.number), *(_plain(run.chosen[name]) for name in tried), _score(run), f"{run.seconds:.0f}"]
        for run in ordered
    ]
    return [["run", *tried, "validation", "seconds"], *cells]


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _score(run: Run) -> str:
    return run.problem if run.score is None else f"{run.score:.4f}"


def _report_run(run: Run) -> None:
    chosen = "  ".join(f"{name} {_plain(value)}" for name, value in run.chosen.items())
    print(f"run {run.number}  {chosen}  validation {_score(run)}", file=sys.stderr, flush=True)
