"""A data report as terminal lines and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from julia1.train.data.checks import Balance, DataReport

SHOWN = 20
"""Rows of a list that are printed; JSON and HTML have more."""
SHOWN_HTML = 200
BAR = 30

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; width: 100% }
td, th { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #e3e3e3; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.bar { background: #3b6fb6; height: .8rem; border-radius: 2px }
.bad { color: #a32020 } .good { color: #20702f }
"""


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
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>{report.rows:,} rows, {report.augmented:,} augmented.</p>",
    ]
    if report.problems:
        parts.append("<h2 class=bad>To mend before training</h2>" + _html_list(report.problems))
    else:
        parts.append("<p class=good>Nothing stands in the way of training.</p>")
    if report.warnings:
        parts.append("<h2>To look at</h2>" + _html_list(report.warnings))
    parts.append(
        _html_table("Languages", ["language", "rows"], [[k or "(none)", v] for k, v in report.languages.items()])
    )
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
        parts.append(_html_table("Tokens of a text", ["percentile", "tokens"], rows))
    for name, items in _lists(report)[1:]:
        if items:
            parts.append(f"<h2>{escape(name)} ({len(items):,})</h2>" + _html_list(items))
    return "\n".join(parts) + "</html>\n"


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


def _html_list(items: Sequence[str]) -> str:
    more = f"<li>and {len(items) - SHOWN_HTML:,} more" if len(items) > SHOWN_HTML else ""
    return "<ul>" + "".join(f"<li>{escape(item)}" for item in items[:SHOWN_HTML]) + more + "</ul>"


def _html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td class=n>{c:,}" if isinstance(c, int) else f"<td>{escape(str(c))}" for c in row)
        for row in rows
    )
    return f"<h2>{escape(title)}</h2><table><tr>{head}{body}</table>"
