"""What a training run gave: ``metrics.json``, and the same as one page that needs nothing else, ``report.html``."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from julia1.train.curves import CURVES, read_log
from julia1.train.page import MOST_ITEMS, html_list, html_table, page, write_whole

if TYPE_CHECKING:
    from julia1.train.package import Fitted, Tuned
    from julia1.train.parts import Parts

REPORT, METRICS = "report.html", "metrics.json"
MOST_CONFUSIONS = 20
SIDE = 260
"""Width and height of a diagram, in pixels."""
_TITLES = {"test": "Test rows", "validation": "Validation rows"}
_NOTES = {
    "test": "Measured once, with the variant that serves here. Nothing was fitted on them.",
    "validation": "Training was stopped on these rows, temperatures and thresholds were fitted on them: they flatter.",
}


def metrics_of(fitted: Fitted, parts: Parts, tuned: Tuned) -> dict[str, Any]:
    """All that is known of a run, as plain JSON data."""
    manifest = fitted.bundle.manifest
    facts = manifest.provenance
    languages = Counter(row.language for row in parts.train if row.language)
    return {
        "bundle": {"name": manifest.name, "version": manifest.version, "path": str(fitted.bundle.folder)},
        "base_model": facts["base_model"],
        "teacher": tuned.teacher,
        "rows": facts["rows"],
        "languages": dict(languages.most_common()),
        "heads": [head.to_dict() for head in manifest.heads],
        "hyper_parameters": facts["hyper_parameters"],
        "data_sha256": facts["data_sha256"],
        "run": facts["run"],
        "epochs": read_log(tuned.folder)[1] if tuned.folder else [],
        "score": tuned.score,
        "parity": asdict(fitted.parity),
        "variants": [
            {"name": one.name, "precision": one.precision, "bytes": one.bytes, "measured": dict(one.measured)}
            for one in manifest.variants
        ],
        "guarantees": [one.to_dict() for one in fitted.guarantees],
        "warnings": [one.warning for one in fitted.guarantees if one.warning],
        "parts": {
            part: {name: one.to_dict() for name, one in heads.items()} for part, heads in fitted.evaluation.items()
        },
    }


def write_report(metrics: Mapping[str, Any], path: Path, run: Path | None) -> None:
    """Write the page to ``path`` and ``METRICS`` beside it.

    Args:
        metrics: as ``metrics_of`` gives them.
        path: of the page.
        run: folder of the run, whose curves go into the page.
    """
    curves = run / CURVES if run is not None else None
    picture = curves.read_bytes() if curves is not None and curves.is_file() else None
    plain = json.dumps(metrics, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    # a lone surrogate may stand in a label, and UTF-8 has none
    write_whole(path.with_name(METRICS), plain.encode("utf-8", "backslashreplace"))
    write_whole(path, report_html(metrics, picture).encode("utf-8", "replace"))


def report_html(metrics: Mapping[str, Any], curves: bytes | None = None) -> str:
    """The page.

    Args:
        metrics: as ``metrics_of`` gives them.
        curves: a PNG file.
    """
    bundle = metrics["bundle"]
    parts = [_summary(metrics), _guarantees(metrics)]
    if curves is not None:
        image = base64.b64encode(curves).decode("ascii")
        parts.append(f'<h2>Curves</h2><img alt="curves of the run" src="data:image/png;base64,{image}">')
    for part in _TITLES:
        if part in metrics["parts"]:
            parts.append(f"<h2>{_TITLES[part]}</h2><p class=small>{_NOTES[part]}</p>")
            parts += [_head(name, head) for name, head in metrics["parts"][part].items()]
    parts.append(_made(metrics))
    return page(f"Training report: {bundle['name']} {bundle['version']}", parts)


def _summary(metrics: Mapping[str, Any]) -> str:
    facts: list[list[object]] = [["base model", metrics["base_model"]]]
    facts += [["teacher", metrics["teacher"]]] if metrics["teacher"] else []
    facts += [[f"rows: {name}", number] for name, number in metrics["rows"].items()]
    facts += [[f"training rows in {name}", number] for name, number in metrics["languages"].items()]
    if metrics["epochs"]:
        last = metrics["epochs"][-1]
        facts.append(["epochs", f"{last['epoch']}, the best was {last['best_epoch']}"])
    facts.append(["score on the validation rows", metrics["score"]])
    heads = [[head["name"], head["kind"], len(head["labels"]) or None] for head in metrics["heads"]]
    return "<h2>What was trained</h2>" + html_table(["", ""], facts) + html_table(["question", "kind", "labels"], heads)


def _guarantees(metrics: Mapping[str, Any]) -> str:
    found = metrics["guarantees"]
    if not found:
        return ""
    header = ["question", "error at most", "with confidence", "abstain below", "answered", "rows"]
    keys = ("head", "max_error", "confidence", "threshold", "answered", "rows", "test_answered", "test_error")
    note = (
        "Of the inputs that are answered, at most so many are wrong, for inputs like the rows that this was tested on, "
        "each question by itself. The threshold is what the bundle abstains by unless the caller names another."
    )
    warnings = f"<div class=bad>{html_list(metrics['warnings'])}</div>" if metrics["warnings"] else ""
    table = html_table([*header, "test: answered", "test: error"], [[one[key] for key in keys] for one in found])
    return f"<h2>Guaranteed error</h2>{warnings}<p class=small>{note}</p>{table}"


def _head(name: str, head: Mapping[str, Any]) -> str:
    parts = [f"<h3>{escape(name)} ({head['kind']}, {head['rows']:,} rows)</h3>"]
    parts.append(html_table(["figure", "value"], [[key, value] for key, value in head["figures"].items()]))
    before, after = head["before"], head["after"]
    if before and after:
        keys = {"ece": "ECE (15 bins)", "brier": "Brier score", "nll": "negative log-likelihood"}
        rows = [[title, before[key], after[key]] for key, title in keys.items()]
        parts.append("<h4>Calibration</h4>" + html_table(["", "before", "after"], rows))
        parts.append(reliability_svg(before["bins"], after["bins"]))
    if head["coverage"]:
        parts.append("<h4>Answered from a confidence on</h4>" + _coverage(head))
    if head["retrieval"]:
        rows = [[key, value] for key, value in head["retrieval"].items()]
        parts.append("<h4>The right text among all candidates</h4>" + html_table(["figure", "value"], rows))
    if head["languages"]:
        keys_of = list(dict.fromkeys(key for one in head["languages"].values() for key in one))
        rows = [
            [language or "(none)", *(one.get(key) for key in keys_of)] for language, one in head["languages"].items()
        ]
        parts.append("<h4>Languages</h4>" + html_table(["language", *keys_of], rows))
    if head["classes"]:
        parts.append(_classes(head["classes"]))
    if head["confusions"]:
        rows = [[one["wanted"], one["given"], one["rows"]] for one in head["confusions"][:MOST_CONFUSIONS]]
        parts.append("<h4>Most frequent confusions</h4>" + html_table(["wanted", "given", "rows"], rows))
    return "\n".join(parts)


def _coverage(head: Mapping[str, Any]) -> str:
    best = "; ".join(
        f"at {float(accuracy):.0%} accuracy {share:.1%}" for accuracy, share in head["coverage_at"].items()
    )
    rows = [
        [f"{one['threshold']:g}", f"{one['answered']:.1%}", None if one["accuracy"] is None else one["accuracy"]]
        for one in head["coverage"]
    ]
    return f"<p>Can be answered {best}.</p>" + html_table(["confidence", "answered", "accuracy"], rows)


def _classes(classes: Sequence[Mapping[str, Any]]) -> str:
    keys = ["label", "precision", "recall", "f1", "support"]
    keys += ["ece"] if classes[0]["ece"] is not None else []
    worst = sorted(classes, key=lambda one: (one["f1"], -one["support"]))
    more = f"<p>and {len(worst) - MOST_ITEMS:,} more</p>" if len(worst) > MOST_ITEMS else ""
    table = html_table(keys, [[one[key] for key in keys] for one in worst[:MOST_ITEMS]])
    return f"<details open><summary>Labels, worst first</summary>{table}{more}</details>"


def _made(metrics: Mapping[str, Any]) -> str:
    parity = metrics["parity"]
    variants = [[one["name"], one["precision"], one["bytes"]] for one in metrics["variants"]]
    settings = [[key, str(value)] for key, value in metrics["hyper_parameters"].items()]
    environment = {**metrics["run"]["environment"], **metrics["run"]["environment"]["packages"]}
    versions = [[key, str(value)] for key, value in environment.items() if key != "packages"]
    return (
        "<h2>Export</h2>"
        f"<p>The fp32 graph departs from PyTorch by {parity['largest']:.1e} at most, {parity['mean']:.1e} in the mean, "
        f"over {parity['options']:,} outputs.</p>"
        + html_table(["variant", "precision", "bytes"], variants)
        + "<h2>Settings</h2><details><summary>Hyper-parameters and environment</summary>"
        + html_table(["setting", "value"], settings + versions)
        + "</details>"
    )


def reliability_svg(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> str:
    """How often what was said with a probability came true, before and after calibration; the diagonal is perfect."""
    low, high = 34, SIDE - 8
    room = high - low

    def place(one: Mapping[str, Any]) -> tuple[float, float]:
        return low + room * one["confidence"], high - room * one["accuracy"] - (low - 8)

    top = high - room - (low - 8)
    bottom = high - (low - 8)
    parts = [
        f'<svg viewBox="0 0 {2 * SIDE} {SIDE}" width="{2 * SIDE}" height="{SIDE}" role="img" font-size="11" '
        'font-family="system-ui, sans-serif"><title>reliability diagram</title>',
        f'<rect x="{low}" y="{top}" width="{room}" height="{room}" fill="none" stroke="#ccc"/>',
        f'<line x1="{low}" y1="{bottom}" x2="{high}" y2="{top}" stroke="#999" stroke-dasharray="4 4"/>',
    ]
    for share in (0, 0.5, 1):
        x, y = low + room * share, bottom - room * share
        parts.append(f'<text x="{x}" y="{bottom + 13}" text-anchor="middle">{share:g}</text>')
        parts.append(f'<text x="{low - 4}" y="{y + 4}" text-anchor="end">{share:g}</text>')
    parts.append(f'<text x="{low + room / 2}" y="{bottom + 25}" text-anchor="middle">probability</text>')
    parts.append(
        f'<text x="10" y="{top + room / 2}" text-anchor="middle" '
        f'transform="rotate(-90 10 {top + room / 2})">came true</text>'
    )
    for number, (name, colour, bins) in enumerate((("before", "#b9b9b9", before), ("after", "#3b6fb6", after))):
        points = [place(one) for one in bins]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        most = max((one["rows"] for one in bins), default=1)
        for (x, y), one in zip(points, bins, strict=True):
            size = 2 + 4 * (one["rows"] / most) ** 0.5
            told = f"{one['rows']:,} at {one['confidence']:.3f}, {one['accuracy']:.3f} came true"
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{colour}"><title>{told}</title></circle>'
            )
        y = top + 14 + 18 * number
        parts.append(f'<rect x="{SIDE + 10}" y="{y - 9}" width="12" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{SIDE + 28}" y="{y}">{name} calibration</text>')
    return "".join(parts) + "</svg>"
