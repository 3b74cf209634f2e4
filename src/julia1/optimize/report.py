"""The report of an optimization as a page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from julia1.train.page import html_list, html_table, page

if TYPE_CHECKING:
    from julia1.optimize.running import Result

_MOST_CLASSES = 12


def report_page(source: str, result: Result) -> str:
    """The page.

    Args:
        source: name of the model that was optimized.
        result: what it came to.
    """
    metrics = list(result.baseline)
    tries = [
        [
            one.step + 1,
            one.name,
            *(f"{one.judgement.metrics[name]:.4f}" for name in metrics),
            *(
                f"{drop.value:+.4f} ({drop.low:+.4f} to {drop.high:+.4f})"
                for drop in (one.judgement.drops[name] for name in metrics)
            ),
            f"{one.judgement.agreement:.2%}",
            f"{one.judgement.mcnemar:.3f}",
            "kept" if one.judgement.kept else "not kept",
        ]
        for one in result.tries
    ]
    header = ["step", "way", *metrics, *(f"drop of {name}, 95 %" for name in metrics), "same answers", "McNemar p", ""]
    said = [f"{one.name}: {reason}" for one in result.tries for reason in one.judgement.failures]
    notes = [f"{one.name}: {note}" for one in result.tries for note in one.judgement.notes]
    stages = [
        [
            stage.name,
            f"{stage.bytes / 1e6:.2f}",
            f"{stage.load_seconds:.2f}",
            f"{stage.p50 * 1e3:.2f}",
            f"{stage.p95 * 1e3:.2f}",
            f"{stage.rows_a_second:.1f}",
            f"{stage.faster:.2f}",
        ]
        for stage in result.stages
    ]
    grown = [
        f"{stage.name} is larger than the baseline" for stage in result.stages if stage.bytes > result.stages[0].bytes
    ]
    slower = [f"{stage.name} is slower than the baseline" for stage in result.stages if stage.faster < 1]
    layers = [f"{one.name}: {', '.join(one.kept_layers)}" for one in result.tries if one.kept_layers]
    return page(
        f"Optimization of {source}",
        [
            f"<p>Judged on {result.rows:,} rows, in ONNX Runtime on one thread.</p>",
            "<h2>Stages</h2>",
            html_table(["stage", "MB", "load s", "p50 ms", "p95 ms", "rows/s", "times as fast"], stages),
            _scatter(result),
            "<h2>What was tried</h2>",
            html_table(header, tries),
            *_part("Why something was not kept", said),
            *_part("What these rows cannot tell", notes),
            *_part("Pitfalls", [*grown, *slower]),
            *_part("Layers left in fp32", layers),
            "<h2>Classes that lost recall</h2>",
            html_table(["way", "class", "drop of recall"], _losses(result)),
        ],
    )


def _part(title: str, items: Sequence[str]) -> list[str]:
    return [f"<h2>{title}</h2>", html_list(items)] if items else []


def _losses(result: Result) -> list[list[object]]:
    found: list[list[object]] = []
    for one in result.tries:
        lost = sorted(one.judgement.recalls.items(), key=lambda pair: -pair[1])
        found += [[one.name, name, f"{drop:+.3f}"] for name, drop in lost[:_MOST_CLASSES] if drop > 0]
    return found


def _scatter(result: Result) -> str:
    """The first metric against time, one point a stage: what lies up and to the left is better."""
    name = next(iter(result.baseline))
    values = {one.name: one.judgement.metrics[name] for one in result.tries} | {"baseline": result.baseline[name]}
    width, height, edge = 460, 220, 50
    right = max(stage.p50 for stage in result.stages) * 1.1
    shown = [values[stage.name] for stage in result.stages]
    low, high = min(shown) - 0.01, max(shown) + 0.01
    parts = [
        f'<svg width="{width + 260}" height="{height + edge}" font-family="sans-serif" font-size="12">'
        f'<path d="M{edge} 4 V{height} H{width}" fill="none" stroke="#888"/>'
        f'<text x="{width - 70}" y="{height + 32}">ms a row</text><text x="2" y="14">{escape(name)}</text>'
    ]
    for stage, value in zip(result.stages, shown, strict=True):
        x, y = edge + stage.p50 / right * (width - edge), height - (value - low) / (high - low) * (height - 20)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#3b6fb6"/><text x="{x + 8:.1f}" y="{y + 4:.1f}">'
            f"{escape(stage.name)}: {value:.4f}, {stage.p50 * 1e3:.1f} ms</text>"
        )
    return "".join([*parts, "</svg>"])
