"""``julia1 models``: what a bundle is, and which bundles ship with julia1."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from julia1 import settings
from julia1.cli.flags import Commands, add_bundle, add_json
from julia1.cli.printing import columns, one_line, print_json, size
from julia1.errors import BundleError, EngineError, MissingExtraError

if TYPE_CHECKING:
    from julia1.bundle import Bundle, Manifest, Variant


def add_to(commands: Commands) -> None:
    """Add the command and its two subcommands."""
    parser = commands.add_parser(
        "models", help="show models", description="Show what a bundle is, or list those that ship with julia1."
    )
    parser.set_defaults(parser=parser)
    nested = parser.add_subparsers(metavar="COMMAND", dest="models_command", required=True)
    show = nested.add_parser(
        "show",
        help="show one model",
        description="Name, variants and which one runs here, limits, calibration, licences and figures of a bundle.",
    )
    show.set_defaults(run=run_show, parser=show)
    add_bundle(show)
    add_json(show)
    every = nested.add_parser(
        "list", help="list the models that ship with julia1", description="List the models that ship with julia1."
    )
    every.set_defaults(run=run_list, parser=every)
    add_json(every)


def run_list(arguments: argparse.Namespace) -> int:
    """Print one line a bundle; one that cannot be read says why."""
    from julia1.bundle import read_manifest

    default = settings.model_path().absolute()
    found: list[dict[str, Any]] = []
    for place in sorted(settings.bundled_models().glob("*/bundle.json")):
        folder = place.parent
        item: dict[str, Any] = {"path": str(folder), "default": folder.absolute() == default}
        try:
            manifest = read_manifest(folder)
            item |= {"name": manifest.name, "version": manifest.version, "bytes": _size(manifest), "problem": ""}
        except BundleError as error:
            item |= {"name": folder.name, "version": "", "bytes": 0, "problem": str(error)}
        found.append(item)
    if arguments.json:
        print_json(found)
    elif found:
        rows = [
            [
                "*" if i["default"] else " ",
                i["name"],
                i["version"],
                size(i["bytes"]),
                one_line(i["problem"] or i["path"]),
            ]
            for i in found
        ]
        print(*columns(rows, indent=""), sep="\n")
    else:
        print(f"there are no models in {settings.bundled_models()}")
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print what the manifest says and what this machine makes of it."""
    from julia1.bundle import Bundle
    from julia1.runtime.cpu import probe
    from julia1.runtime.plan import make_plan
    from julia1.runtime.variants import missing_needs

    opened = Bundle.open(arguments.bundle or settings.model_path())
    cpu = probe()
    try:
        plan = make_plan(opened, cpu)
        chosen: dict[str, Any] = {"variant": plan.variant.name, "engine": plan.engine, "threads": plan.threads}
        chosen["reason"] = plan.reason
    except (EngineError, MissingExtraError) as error:
        chosen = {"variant": None, "engine": None, "threads": None, "reason": str(error)}
    missing = {variant.name: missing_needs(variant, cpu) for variant in opened.manifest.variants}
    if arguments.json:
        files = {"path": str(opened.source), "bytes": _size(opened.manifest)}
        print_json({**opened.manifest.to_dict(), **files, "here": {**chosen, "missing": missing}})
    else:
        print(*_lines(opened, chosen, missing), sep="\n")
    return 0


def _lines(bundle: Bundle, chosen: Mapping[str, Any], missing: Mapping[str, str]) -> list[str]:
    manifest = bundle.manifest
    provenance = manifest.provenance
    budgets = {key: value for key, value in manifest.encoding.to_dict().items() if key != "type"}
    facts = [
        ["path", str(bundle.source)],
        ["size", f"{size(_size(manifest))} in {len(manifest.all_files())} files"],
        ["licence", _cell(provenance.get("license") or "not stated")],
        ["encoding", manifest.encoding.type + "".join(f", {k.replace('_', ' ')} {v}" for k, v in budgets.items())],
        ["checkpoint", "none" if manifest.checkpoint is None else "can be trained further"],
    ]
    for key, label in (("base_model", "base model"), ("languages", "languages"), ("description", "about")):
        if provenance.get(key):
            facts.append([label, _cell(provenance[key])])
    lines = [f"{manifest.name} {one_line(manifest.version)} ({manifest.kind})", *columns(facts)]
    lines += ["", "variants", *_variants(manifest.variants, chosen["variant"], missing)]
    here = "{variant} on {engine}, threads: {threads}" if chosen["variant"] else "none"
    lines.append(f"  here: {here.format(**chosen)}: {one_line(chosen['reason'])}")
    temperatures = [
        [k, f"{c.temperature:.3g} + {c.per_log_options:.3g} ln(n), at least {c.least:.3g}"]
        for k, c in manifest.calibration.items()
    ]
    lines += ["", "calibration", *(columns([["type", "temperature"], *temperatures]) if temperatures else ["  none"])]
    for title in ("datasets", "figures", "limits"):
        if provenance.get(title):
            lines += ["", title, *_lay_out(provenance[title], "  ")]
    return lines


def _variants(variants: Sequence[Variant], chosen: str | None, missing: Mapping[str, str]) -> list[str]:
    rows = [["", "name", "engine", "precision", "size", "needs", "measured"]]
    for variant in variants:
        needs = [f"{name} {' '.join(features)}".strip() for name, features in variant.requires.items()]
        measured = ", ".join(f"{key} {_cell(value)}" for key, value in variant.measured.items())
        wanted = one_line(" or ".join(needs)) or "any CPU"
        here = f"{wanted} (not here: {missing[variant.name]})" if missing[variant.name] else wanted
        mark = "*" if variant.name == chosen else ""
        rows.append(
            [mark, variant.name, variant.engine, variant.precision, size(variant.bytes), here, one_line(measured)]
        )
    return columns(rows)


def _lay_out(value: Any, indent: str) -> list[str]:
    """Any JSON form as lines: rows of objects as a table, an object as a list of its keys."""
    if isinstance(value, Mapping):
        lines = []
        for key, item in value.items():
            if isinstance(item, (Mapping, list)) and item:
                lines += [f"{indent}{one_line(str(key))}", *_lay_out(item, f"{indent}  ")]
            else:
                lines.append(f"{indent}{one_line(str(key))}: {_cell(item)}")
        return lines
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        keys = list(dict.fromkeys(key for row in value for key in row))
        return columns([[one_line(k) for k in keys], *([_cell(row.get(k, "")) for k in keys] for row in value)], indent)
    return [f"{indent}{_cell(item)}" for item in (value if isinstance(value, list) else [value])]


def _cell(value: Any) -> str:
    """A value in a few characters."""
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float) else one_line(str(value))


def _size(manifest: Manifest) -> int:
    return sum(entry.bytes for entry in manifest.all_files())
