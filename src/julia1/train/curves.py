"""Curves of a training run as a picture: losses, the figures on the validation rows, the learning rate."""

from __future__ import annotations

import contextlib
import io
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from julia1.errors import TrainingError
from julia1.train.page import write_whole

LOG, CURVES = "log.jsonl", "curves.png"
MOST_SHARE = 0.05
"""Share of a run's time that drawing may take."""


class CurveDrawer:
    """Draws the curves of a run after its epochs, unless drawing would take much of the time that they do.

    Args:
        folder: of the run, with its log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._not_before = 0.0

    def draw(self, *, last: bool = False) -> None:
        """Draw what the log has; ``last`` always. A picture that cannot be written stops no training."""
        began = time.monotonic()
        if last or began >= self._not_before:
            with contextlib.suppress(TrainingError):
                draw_curves(self._folder)
            ended = time.monotonic()
            self._not_before = ended + (ended - began) / MOST_SHARE


def read_log(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of steps and of epochs in their order; a run that was taken up tells some twice, and the later counts.

    A last line that was torn is left out.
    """
    steps: dict[int, dict[str, Any]] = {}
    epochs: dict[int, dict[str, Any]] = {}
    path = folder / LOG
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("kind") == "step":
            steps[record["step"]] = record
        elif record.get("kind") == "epoch":
            epochs[record["epoch"]] = record
    return [steps[key] for key in sorted(steps)], [epochs[key] for key in sorted(epochs)]


def draw_curves(folder: Path) -> bool:
    """Write ``curves.png`` from the log of a run, whole or not at all; False when there is nothing to draw yet."""
    steps, epochs = read_log(folder)
    if not steps and not epochs:
        return False
    # a head may be called anything, also what would be read as a formula or as a hidden label
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 9}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names in a script that the font has not
        figure = Figure(figsize=(11, 3.4), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        losses, figures, rates = figure.subplots(1, 3)
        _draw_losses(losses, steps, epochs)
        _draw_figures(figures, epochs)
        _draw(rates, [record["step"] for record in steps], [record["learning_rate"] for record in steps], "")
        rates.set_title("largest learning rate")
        for axes in (losses, figures, rates):
            axes.set_xlabel("step")
            axes.grid(alpha=0.3)
        content = io.BytesIO()
        figure.savefig(content, format="png")
    write_whole(folder / CURVES, content.getvalue())
    return True


def _draw_losses(axes: Axes, steps: Sequence[dict[str, Any]], epochs: Sequence[dict[str, Any]]) -> None:
    axes.set_title("training loss of a row")
    _draw(axes, [record["step"] for record in steps], [record["loss"] for record in steps], "steps", alpha=0.4)
    _draw(axes, [record["step"] for record in epochs], [record["loss"] for record in epochs], "epochs", marker="o")
    axes.legend(loc="upper right")


def _draw_figures(axes: Axes, epochs: Sequence[dict[str, Any]]) -> None:
    axes.set_title("validation rows")
    epochs = [record for record in epochs if record["figures"]]
    names = list(epochs[-1]["figures"]) if epochs else []
    for name in names:
        _draw(axes, [r["step"] for r in epochs], [r["figures"][name] for r in epochs], name, marker="o")
    best = epochs[-1]["best_epoch"] if epochs else 0
    for record in epochs:
        if record["epoch"] == best:
            axes.axvline(record["step"], color="grey", linestyle=":", label=f"best, epoch {best}")
    if 0 < len(names) <= 12:
        axes.legend(loc="lower right")


def _draw(axes: Axes, x: Sequence[float], y: Sequence[float], name: str, **style: Any) -> None:
    """One line, with a blank before a name that would be hidden."""
    axes.plot(x, y, label=f" {name}" if name.startswith("_") else name, linewidth=1.2, markersize=3, **style)
