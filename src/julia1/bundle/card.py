"""Renders ``card.md``, the page that tells people what a bundle is.

All of it comes from the manifest. Of ``provenance`` the card shows these keys, none of them needed:

    description   a text: what the model is and what it was trained for
    license       an SPDX identifier, such as Apache-2.0
    languages     a list of language codes
    base_model    a Hugging Face name, or a list of them
    datasets      a list of names, or of objects with ``name`` and, say, ``license`` and ``use``
    figures       title to a list of rows (objects), or to an object of figure and value
    limits        a list of texts: what the model cannot do

and what ``julia1.bundle.runs`` lists, in the section on training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from julia1.bundle.encoding import EncodingSettings
from julia1.bundle.manifest import Manifest, Variant

_TASKS = {"open": "zero-shot-classification"}
_START = {"base_model": "base model", "parent": "parent", "teacher": "teacher", "seed": "seed"}
_KINDS = {
    "open": "It answers any question whose options are given with it: one of several options, yes or no, a score.",
    "fixed": "It answers the questions that it was trained to answer, all in one pass.",
}


def render_card(manifest: Manifest) -> str:
    """The card as Markdown with the YAML header of the Hugging Face Hub. The same manifest gives the same text."""
    provenance = manifest.provenance
    sections = [
        f"# {manifest.name}",
        _what(manifest),
        "## Use",
        _use(manifest),
        "## Figures" if provenance.get("figures") else "",
        _figures(provenance.get("figures")),
        "## Variants" if manifest.variants else "",
        _variants(manifest.variants),
        "## Encoding",
        _encoding(manifest.encoding),
        "## Calibration",
        _calibration(manifest),
        "## Data and licences",
        _data(provenance),
        "## Training" if _training(provenance) else "",
        _training(provenance),
        "## Limits",
        _limits(manifest),
    ]
    return _header(manifest) + "\n\n".join(section for section in sections if section) + "\n"


def version_sentence(version: str) -> str:
    """The one sentence of a card that names the model's version."""
    return f"A decision model for CPUs, version {version}."


def _header(manifest: Manifest) -> str:
    provenance = manifest.provenance
    fields = {
        "license": str(provenance.get("license") or "other").lower(),
        "language": _list(provenance.get("languages")),
        "library_name": "julia1",
        "pipeline_tag": _TASKS.get(manifest.kind, "text-classification"),
        "base_model": _list(provenance.get("base_model")),
        "datasets": [_dataset(item).get("name") for item in _list(provenance.get("datasets"))],
    }
    # Each value is JSON, which is YAML too: nothing in it can be misread as a key.
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value]
    return "\n".join(["---", *lines, "---", "", ""])


def _what(manifest: Manifest) -> str:
    description = manifest.provenance.get("description")
    lead = f"{description}\n\n" if description else ""
    return f"{lead}{version_sentence(manifest.version)} {_KINDS.get(manifest.kind, '')}".rstrip()


def _use(manifest: Manifest) -> str:
    ask = 'decider.decide("The card was charged twice.")  # every head, by its name'
    if manifest.kind == "open":
        question = 'julia1.Choice("What is it about?", ["billing", "delivery"])'
        ask = f'decider.decide("The card was charged twice.", {{"topic": {question}}})'
    return f"""```python
import julia1

decider = julia1.load("{manifest.name}")  # this folder, or a zip of it
{ask}
```"""


def _figures(figures: Any) -> str:
    if not isinstance(figures, Mapping):
        return _cell(figures) if figures else ""
    parts = []
    for title, value in figures.items():
        if isinstance(value, Mapping):
            table = _table(["figure", "value"], [[key, item] for key, item in value.items()])
        elif isinstance(value, Sequence) and value and all(isinstance(row, Mapping) for row in value):
            table = _records(value)
        else:
            table = _cell(value)
        parts.append(f"### {_cell(title)}\n\n{table}")
    return "\n\n".join(parts)


def _variants(variants: Sequence[Variant]) -> str:
    if not variants:
        return ""
    rows = [
        [variant.name, variant.engine, variant.precision, _size(variant.bytes), _needs(variant)] for variant in variants
    ]
    tables = [_table(["variant", "engine", "precision", "size", "needs"], rows)]
    measured = list(dict.fromkeys(key for variant in variants for key in variant.measured))
    if measured:
        figures = [[key, *(variant.measured.get(key, "") for variant in variants)] for key in measured]
        tables.append(_table(["measured", *(variant.name for variant in variants)], figures))
    shared = sum(variant.bytes for variant in variants)
    whole = sum(entry.bytes for entry in dict.fromkeys(entry for variant in variants for entry in variant.files))
    if whole < shared:
        tables.append(f"Variants share files: together they take {_size(whole)}.")
    return "\n\n".join(tables)


def _needs(variant: Variant) -> str:
    needs = [f"{architecture} {' '.join(features)}".strip() for architecture, features in variant.requires.items()]
    return " or ".join(needs) or "any CPU"


def _encoding(encoding: EncodingSettings) -> str:
    budgets = {key: value for key, value in encoding.to_dict().items() if key != "type"}
    rows = [[key.replace("_", " "), value] for key, value in budgets.items()]
    return f"The encoding is `{encoding.type}`.\n\n" + _table(["budget", "at most"], rows)


def _calibration(manifest: Manifest) -> str:
    if not manifest.calibration:
        return "Probabilities are not calibrated."
    rows = [
        [name, value.temperature, value.per_log_options, value.least] for name, value in manifest.calibration.items()
    ]
    return _table(["question type", "temperature", "per log of options", "least"], rows)


def _data(provenance: Mapping[str, Any]) -> str:
    parts = [f"The model's licence: {_cell(provenance.get('license') or 'not stated')}."]
    datasets = [_dataset(item) for item in _list(provenance.get("datasets"))]
    if datasets:
        parts.append(_records(datasets))
    parts.append("All that is known of how it was made stands in `bundle.json` under `provenance`.")
    return "\n\n".join(parts)


def _training(provenance: Mapping[str, Any]) -> str:
    """What training started from, its rows, hyper-parameters, and where and how long it ran."""
    start = [[label, _exact(provenance[key])] for key, label in _START.items() if provenance.get(key) is not None]
    parts = [_table(["start", ""], start)] if start else []
    rows, hashes = (_object(provenance.get(key)) for key in ("rows", "data_sha256"))
    if rows or hashes:
        kinds = dict.fromkeys((*rows, *hashes))
        parts.append(_table(["rows", "number", "SHA-256"], [[k, rows.get(k, ""), hashes.get(k, "")] for k in kinds]))
    chosen = _object(provenance.get("hyper_parameters"))
    if chosen:
        parts.append(_table(["hyper-parameter", "value"], [[name, _exact(value)] for name, value in chosen.items()]))
    run = _object(provenance.get("run"))
    if run:
        where = _object(run.get("environment"))
        packages = _object(where.get("packages"))
        facts = [["finished", run.get("finished", "")], ["seconds of training", run.get("seconds", "")]]
        facts += [[key, value] for key, value in where.items() if key != "packages"]
        facts.append(["packages", ", ".join(f"{name} {version}" for name, version in packages.items())])
        parts.append(_table(["run", ""], facts))
    return "\n\n".join(parts)


def _limits(manifest: Manifest) -> str:
    limits = [
        f"A state is read up to {manifest.encoding.state_tokens:,} tokens; what is cut is reported with the answer.",
        *_list(manifest.provenance.get("limits")),
    ]
    return "\n".join(f"- {_line(limit)}" for limit in limits)


def _records(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return _table(columns, [[row.get(column, "") for column in columns] for row in rows])


def _table(columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    """A value in one table cell."""
    return _line(value).replace("|", "\\|")


def _line(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return " ".join(plain.split())


def _exact(value: Any) -> str:
    """A setting, never rounded: it would be another one."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _dataset(item: Any) -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else {"name": str(item)}


def _list(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _size(size: int) -> str:
    """A number of bytes in decimal units."""
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"
