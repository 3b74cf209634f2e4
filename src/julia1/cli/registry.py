"""``julia1 registry``: the versions of trained models, kept with all that made them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from julia1 import settings
from julia1.cli.flags import Commands, add_json, bundle_path, positive
from julia1.cli.printing import columns, count, one_line, print_json, size, to_json
from julia1.errors import BundleError, InputError, Julia1Error

if TYPE_CHECKING:
    from julia1.bundle.places import Located
    from julia1.bundle.registry import Entry, Registry, Stored
    from julia1.bundle.runs import Comparison, Difference, Run

_EXAMPLES = """examples:
  julia1 registry list tickets
  julia1 registry compare tickets@production tickets@2026.11.30
  julia1 registry promote tickets@2026.11.30
  julia1 decide "I was charged twice" --model tickets@production
"""


def add_to(commands: Commands) -> None:
    """Add the command and its subcommands."""
    parser = commands.add_parser(
        "registry",
        help="keep, compare and promote versions of models",
        description="The versions of trained models, each with its weights, tokenizer, config, data hash, "
        "hyper-parameters and metrics.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(parser=parser)
    nested = parser.add_subparsers(metavar="COMMAND", dest="registry_command", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        own: argparse.ArgumentParser = nested.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=_EXAMPLES
        )
        own.set_defaults(run=run, parser=own)
        add_registry(own)
        add_json(own)
        return own

    every = command("list", run_list, "list versions, with their aliases, data and score on the validation rows")
    every.add_argument("name", nargs="?", metavar="NAME", help="of one model; all without it")
    show = command("show", run_show, "show what is known of a version")
    show.add_argument("version", metavar="NAME[@VERSION]", help="or NAME@ALIAS; the production version of a name alone")
    compare = command("compare", run_compare, "show how two versions differ in parameters, data and metrics")
    compare.add_argument("first", metavar="NAME@VERSION", help="one version, or NAME@ALIAS")
    compare.add_argument("second", metavar="NAME@VERSION", help="the other")
    promote = command("promote", run_promote, "have an alias point to a version whose files verify")
    promote.add_argument("version", metavar="NAME@VERSION", help="the version, or NAME@ALIAS")
    promote.add_argument("alias", nargs="?", metavar="ALIAS", help="production without it")
    unalias = command("unalias", run_unalias, "take an alias away; the version stays")
    unalias.add_argument("name", metavar="NAME", help="of the model")
    unalias.add_argument("alias", metavar="ALIAS", help="such as production")
    delete = command("delete", run_delete, "delete a version that no alias points to")
    delete.add_argument("version", metavar="NAME@VERSION", help="the version")
    delete.add_argument("--force", action="store_true", help="delete it, and the aliases that point to it")
    prune = command("prune", run_prune, "delete all but the last versions and those that an alias points to")
    prune.add_argument("name", metavar="NAME", help="of the model")
    prune.add_argument("--keep", type=positive, metavar="N", required=True, help="how many of the last to keep")
    add = command("add", run_add, "keep a bundle that was made elsewhere")
    add.add_argument("bundle", metavar="BUNDLE", help="folder, zip or NAME@VERSION")
    add.add_argument("--version", metavar="VERSION", help="to store it as (default: the bundle's own)")


def add_registry(parser: argparse._ActionsContainer) -> None:
    """``--registry``, which training takes too."""
    parser.add_argument(
        "--registry",
        metavar="DIR",
        type=Path,
        help="folder of the registry (or JULIA1_REGISTRY; the user's without it)",
    )


def run_list(arguments: argparse.Namespace) -> int:
    """Print one line a version; what is broken says why."""
    registry = _registry(arguments)
    names = registry.names() if arguments.name is None else [arguments.name]
    entries = [entry for name in names for entry in registry.entries(name)]
    if arguments.json:
        print_json([_entry_fields(entry) for entry in entries])
    elif entries:
        print(
            *columns([["version", "aliases", "added", "data", "score", ""], *map(_line, entries)], indent=""), sep="\n"
        )
    else:
        print(f"the registry {registry.folder} is empty")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print what is known of a version."""
    registry = _registry(arguments)
    place = registry.find(arguments.version)
    run, aliases = registry.run(place), registry.aliases(place)
    if arguments.json:
        print_json({**run.to_dict(), "folder": str(place.folder), "aliases": aliases})
    else:
        print(*_description(place, run, aliases), sep="\n")
    return 0


def run_compare(arguments: argparse.Namespace) -> int:
    """Print two versions side by side."""
    from julia1.bundle.runs import compare

    registry = _registry(arguments)
    first, second = registry.find(arguments.first), registry.find(arguments.second)
    found = compare(registry.run(first), registry.run(second))
    if arguments.json:
        print_json({"first": str(first), "second": str(second), **found.to_dict()})
    else:
        print(*_side_by_side(first, second, found), sep="\n")
    return 0


def run_promote(arguments: argparse.Namespace) -> int:
    """Set an alias and say what it replaces."""
    from julia1.bundle.places import PRODUCTION

    alias = arguments.alias or PRODUCTION
    place, replaced = _registry(arguments).promote(arguments.version, alias)
    if arguments.json:
        print_json({"name": place.name, "version": place.version, "alias": alias, "replaced": replaced})
        return 0
    still, before = "", f", in place of {place.name}@{replaced}" if replaced else ", for the first time"
    if replaced == place.version:
        still, before = "still ", ""
    print(f"{place.name}@{alias} is {still}{place}{before}")
    return 0


def run_unalias(arguments: argparse.Namespace) -> int:
    """Take an alias away and say which version it pointed to."""
    name, alias = arguments.name, arguments.alias
    version = _registry(arguments).unalias(name, alias)
    if arguments.json:
        print_json({"name": name, "alias": alias, "version": version})
    else:
        print(f"{name}@{alias} is gone; it was {name}@{version}")
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete a version and say which aliases went with it."""
    gone = _registry(arguments).delete(arguments.version, force=arguments.force)
    if arguments.json:
        print_json({"deleted": arguments.version, "aliases": gone})
    else:
        print(f"{arguments.version} is deleted" + (f", and its aliases: {', '.join(gone)}" if gone else ""))
    return 0


def run_prune(arguments: argparse.Namespace) -> int:
    """Delete old versions and say which."""
    registry = _registry(arguments)
    gone = [str(place) for place in registry.prune(arguments.name, arguments.keep)]
    left = [str(entry.place) for entry in registry.entries(arguments.name)]
    if arguments.json:
        print_json({"deleted": gone, "left": left})
    else:
        print(*(f"{version} is deleted" for version in gone), f"left: {', '.join(left)}", sep="\n")
    return 0


def run_add(arguments: argparse.Namespace) -> int:
    """Keep a bundle and say as what."""
    registry = _registry(arguments)
    stored = registry.add(bundle_path(arguments.bundle, registry.folder), arguments.version)
    if arguments.json:
        print_json(stored_fields(stored))
    else:
        print(told(stored))
    return 0


def for_training(arguments: argparse.Namespace, name: str, version: str) -> Registry | None:
    """The registry that a trained bundle will be kept in, found fit to take it.

    ``None`` with ``--no-register``, and where nobody named a registry and the default one cannot be written, which is
    told on standard error.

    Raises:
        InputError: a name or version that cannot stand in a registry.
        BundleError: a registry that was named cannot take it.
    """
    if arguments.no_register:
        return None
    _require_name("name", name, "--name")
    _require_name("version", version, "--bundle-version")
    problem: Julia1Error
    try:
        registry = _registry(arguments)
    except InputError as error:  # there is no home folder
        problem = error
    else:
        try:
            registry.require_room(name, version)
        except BundleError as error:
            problem = error
        else:
            return registry
    if arguments.registry is not None or settings.names_registry():
        raise BundleError(f"{problem}; --no-register trains without it")
    line = one_line(f"julia1: warning: this model will not be kept as a version: {problem}")
    print(line, file=sys.stderr, flush=True)
    return None


def keep(registry: Registry, folder: Path, *, once: bool = False) -> Stored:
    """Store a bundle that was just trained; an error says that the bundle itself is whole, and how to keep it.

    Args:
        registry: to keep it in.
        folder: of the bundle.
        once: as ``Registry.add`` takes it.

    Raises:
        BundleError: whatever the reason.
    """
    try:
        return registry.add(folder, once=once)
    except (Julia1Error, OSError) as error:
        command = shlex.join(["julia1", "registry", "add", str(folder), "--registry", str(registry.folder)])
        raise BundleError(f"{error}; the bundle is whole: to keep it, run  {command}") from None


def _require_name(what: str, value: str, flag: str) -> None:
    from julia1.bundle.places import require_name

    try:
        require_name(what, value)
    except InputError as error:
        raise InputError(f"{error}; {flag} gives another") from None


def stored_fields(stored: Stored) -> dict[str, Any]:
    """What was stored, as JSON."""
    place = stored.place
    return {"name": place.name, "version": place.version, "folder": str(place.folder), "new": stored.new}


def told(stored: Stored) -> str:
    """What was stored, in a line."""
    folder = stored.place.folder.parents[1]
    if not stored.new:
        return f"the registry {folder} has it already, as {stored.place}"
    taken = f" ({stored.place.name}@{stored.wanted} is another model)" * (stored.wanted != stored.place.version)
    return f"in the registry {folder} as {stored.place}{taken}"


def _registry(arguments: argparse.Namespace) -> Registry:
    from julia1.bundle.registry import Registry

    return Registry(arguments.registry)


def _entry_fields(entry: Entry) -> dict[str, Any]:
    place = entry.place
    known = {"name": place.name, "version": place.version, "folder": str(place.folder), "aliases": entry.aliases}
    return {**known, "problem": entry.problem, "run": entry.run.to_dict() if entry.run else None}


def _line(entry: Entry) -> list[str]:
    run = entry.run
    known = ["", "", ""]
    if run is not None:
        known = [_moment(run.added), str(run.data_sha256.get("all", ""))[:12], _cell(run.score)]
    return [str(entry.place), ", ".join(entry.aliases), *known, one_line(entry.problem)]


def _description(place: Located, run: Run, aliases: tuple[str, ...]) -> list[str]:
    files = [file.stat() for file in place.folder.rglob("*") if file.is_file()]
    facts = [
        ["path", str(place.folder)],
        ["aliases", ", ".join(aliases) or "none"],
        ["size", f"{size(sum(file.st_size for file in files))} in {count(len(files), 'file')}"],
        ["added", _moment(run.added)],
        ["kind", one_line(run.kind)],
    ]
    known = {"base model": run.base_model, "parent": run.parent, "teacher": run.teacher, "seed": run.seed}
    known |= {"score": run.score, "finished": run.run.get("finished"), "seconds of training": run.run.get("seconds")}
    facts += [[label, _cell(value)] for label, value in known.items() if value is not None]
    lines = [str(place), *columns(facts)]
    kinds = dict.fromkeys((*run.rows, *run.data_sha256))
    data = [[one_line(kind), _cell(run.rows.get(kind)), _cell(run.data_sha256.get(kind))] for kind in kinds]
    lines += ["", "data", *columns([["rows", "number", "SHA-256"], *data])] if data else []
    if run.hyper_parameters:
        lines += ["", "hyper-parameters", *columns([[one_line(k), _exact(v)] for k, v in run.hyper_parameters.items()])]
    for part, heads in run.metrics.items():
        figures = [[one_line(head), name, _cell(value)] for head, own in heads.items() for name, value in own.items()]
        lines += ["", one_line(part), *columns(figures)]
    environment = run.run.get("environment")
    if isinstance(environment, Mapping) and environment:
        lines += ["", "environment", *columns([[one_line(k), _cell(v)] for k, v in environment.items()])]
    return lines


def _side_by_side(first: Located, second: Located, found: Comparison) -> list[str]:
    heads = ["", str(first), str(second)]
    same = {True: "the same", False: "different", None: "not known of both"}
    lines = ["data", *columns([[one_line(part), same[known]] for part, known in found.data.items()] or [["not known"]])]
    for title, pairs in (("parameters", found.parameters), ("environment", found.environment)):
        rows = [[one_line(key), _exact(pair.first), _exact(pair.second)] for key, pair in pairs.items()]
        lines += ["", title, *(columns([heads, *rows]) if rows else ["  no difference"])]
    for part, of_part in found.metrics.items():
        rows = [
            [one_line(f"{head} {name}"), _cell(pair.first), _cell(pair.second), _difference(pair)]
            for head, figures in of_part.items()
            for name, pair in figures.items()
        ]
        lines += ["", one_line(part), *columns([[*heads, "difference"], *rows])]
    return lines


def _difference(pair: Difference) -> str:
    if pair.first is None or pair.second is None:
        return ""
    return f"{pair.second - pair.first:+.4f}"


def _moment(text: str) -> str:
    """A moment to the minute."""
    return one_line(text)[:16].replace("T", " ")


def _exact(value: Any) -> str:
    """A setting, never rounded: two that differ must look different."""
    return "-" if value is None else one_line(value if isinstance(value, str) else to_json(value))


def _cell(value: Any) -> str:
    """A value in a few characters."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{one_line(str(key))} {_cell(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float) else one_line(str(value))
