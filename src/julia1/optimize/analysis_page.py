"""An analysis as a page that needs nothing but itself."""

from __future__ import annotations

from collections import Counter

from julia1.optimize.analysis import Analysis
from julia1.optimize.blocks import picture
from julia1.train.page import html_list, html_table, page


def analysis_page(label: str, analysis: Analysis) -> str:
    """The page.

    Args:
        label: what the model is called.
        analysis: what was found.
    """
    work = analysis.multiplications or 1
    stored = analysis.stored_bytes or 1
    shares = [
        [
            share.kind,
            share.count,
            f"{share.stored_bytes / 1e6:.2f}",
            f"{share.stored_bytes / stored:.0%}",
            f"{share.multiplications / 1e6:.1f}",
            f"{share.multiplications / work:.0%}",
        ]
        for share in analysis.kinds
    ]
    groups = Counter((group.pattern, group.blocked) for group in analysis.groups)
    axes = [[name, described] for name, described in (*analysis.inputs.items(), *analysis.outputs.items())]
    return page(
        f"Analysis of {label}",
        [
            "<h2>What stands in the way</h2>",
            html_list(analysis.problems or ["nothing was found"]),
            "<h2>Blocks</h2><p class=small>Brown: share of the stored bytes. Blue: share of the multiply-adds of one "
            "run.</p>",
            picture(analysis.blocks),
            "<h2>Operators</h2>",
            html_table(["operator", "count", "stored MB", "share", "M multiply-adds", "share"], shares),
            "<h2>What can run as one</h2>",
            html_table(["kind", "groups", "kept apart by"], [[kind, n, why] for (kind, why), n in groups.items()]),
            "<h2>Inputs and outputs of the run</h2>",
            html_table(["name", "type and shape"], axes),
        ],
    )
