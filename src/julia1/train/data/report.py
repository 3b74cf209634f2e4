"""A data report as terminal lines and as one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape

from julia1.train.data.checks import Balance, DataReport
from julia1.train.page import html_list, html_table, page

SHOWN = 20
"""Rows of a list that are printed; JSON and HTML have more."""
BAR = 30


def report_lines(report: DataReport) -> list[str]:
    """The report for a terminal."""
    lines = [f"{report.rows:,} rows" + (f", {report.augmented:,} of them augmented" if report.augmented else "")]
    if set(report.languages) != {""}:
        lines.append("languages: " + ", ".join(f"{name or '(none)'} {n:,}" for name, n in report.languages.items()))
    for balance in report.balance:
        lines += ["", _title(balance), *_bars(balance)]
    if report.lengths:
        percentiles = ", ".join(f"{p} % {n:,}" for p, n in report.lengths.items())
        lines += ["", f"tokens: {percentiles}; {report.over_limit:,} rows over the {report.limit} that training reads"]
    lines += ["", f"duplicates: {report.exact_duplicates:,} rows exactly, {report.near_duplicates:,} pairs nearly"]
    for title, items in _lists(report):
        if items:
            lines += ["", f"{title} ({len(items):,})", *(f"  {item}" for item in items[:SHOWN])]
            if len(items) > SHOWN:
                lines.append(f"  and {len(items) - SHOWN:,} more: --json or --html show them")
    lines = [_printable(line) for line in lines]
    lines += ["", "nothing stands in the way of training" if not report.problems else "mend these before training"]
    return lines


def report_html(report: DataReport, title: str) -> str:
    """The report as a page."""
    parts = [f"<p>{report.rows:,} rows, {report.augmented:,} augmented.</p>"]
    if report.problems:
        parts.append("<h2 class=bad>To mend before training</h2>" + html_list(report.problems))
    else:
        parts.append("<p class=good>Nothing stands in the way of training.</p>")
    if report.warnings:
        parts.append("<h2>To look at</h2>" + html_list(report.warnings))
    languages = [[k or "(none)", v] for k, v in report.languages.items()]
    parts += ["<h2>Languages</h2>", html_table(["language", "rows"], languages)]
    for balance in report.balance:
        most = max(balance.counts.values(), default=1)
        parts.append(f"<h2>{escape(_title(balance))}</h2><table>")
        parts += [
            f"<tr><td>{escape(name)}<td class=n>{number:,}<td style='width:50%'>"
            f"<div class=bar style='width:{100 * number / most:.1f}%'></div>"
            for name, number in balance.counts.items()
        ]
        parts.append("</table>")
    if report.lengths:
        rows: list[list[object]] = [[f"{p} %", n] for p, n in report.lengths.items()]
        rows.append([f"rows over {report.limit}", report.over_limit])
        parts += ["<h2>Tokens of a text</h2>", html_table(["percentile", "tokens"], rows)]
    for name, items in _lists(report)[1:]:
        if items:
            parts.append(f"<h2>{escape(name)} ({len(items):,})</h2>" + html_list(items))
    return page(title, parts)


def _printable(line: str) -> str:
    """The line without what would move the cursor or end it: texts come from anywhere."""
    return "".join(c if c.isprintable() else " " for c in line)


def _lists(report: DataReport) -> list[tuple[str, list[str]]]:
    return [
        ("to mend", report.problems),
        (
            "same text, different answers",
            [
                f"{conflict.question}: "
                + "; ".join(f"{answer} at {', '.join(places[:3])}" for answer, places in conflict.answers.items())
                + f": {conflict.text[:80]}"
                for conflict in report.conflicts
            ],
        ),
        ("rows to evaluate on that stand in training", [f"{there} is {here}" for there, here in report.leaks]),
        (
            "labels that look wrong",
            [
                f"{s.place}: {s.label} ({s.probability:.2f}), perhaps {s.suggestion} ({s.suggested_probability:.2f}): "
                f"{s.text[:80]}"
                for s in report.suspicious
            ],
        ),
    ]


def _title(balance: Balance) -> str:
    missing = f", {balance.missing:,} rows without" if balance.missing else ""
    return f"{balance.question}: {balance.kind}, {len(balance.counts)} answers{missing}"


def _bars(balance: Balance) -> list[str]:
    most = max(balance.counts.values(), default=1)
    width = min(32, max((len(name) for name in balance.counts), default=0))
    shown = list(balance.counts.items())[:SHOWN]
    lines = [f"  {name[:width]:{width}}  {n:>8,}  {'█' * max(1, round(BAR * n / most))}" for name, n in shown]
    if len(balance.counts) > SHOWN:
        rest = list(balance.counts.values())[SHOWN:]
        lines.append(f"  and {len(rest):,} more with {min(rest):,} to {max(rest):,} rows each")
    return lines
