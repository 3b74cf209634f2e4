"""How far a long run is: a bar on a terminal, now and then a line elsewhere, on standard error."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

from julia1.cli.printing import count, one_line

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from julia1.bench.soaking import Moment

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_STEPS = 30.0
PACE_STEPS = 50
"""Steps over which the rows a second are taken."""


class _WithBar:
    """Takes its bar off the terminal at the end."""

    _bar: Progress | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class RowProgress(_WithBar):
    """Shows rows done, and the share of the input read where its size is known.

    Args:
        bytes_total: size of the input, 0 when it is not known.
        lines: whether to print lines where there is no terminal.
    """

    def __init__(self, bytes_total: int, lines: bool) -> None:
        self._total = bytes_total
        self._lines = lines
        self._task: TaskID | None = None
        self._next = time.monotonic() + SECONDS_BETWEEN_LINES

    def __enter__(self) -> RowProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.progress import TaskProgressColumn, TimeElapsedColumn

            self._bar = _bar("rows", TaskProgressColumn(), TimeElapsedColumn())
            self._task = self._bar.add_task("rows", total=self._total or None, rows="0 rows")
            self._bar.start()
        return self

    def update(self, rows: int, bytes_done: int) -> None:
        """Show that ``rows`` rows, ``bytes_done`` bytes of the input, are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=bytes_done, rows=count(rows, "row"))
        elif self._lines and time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_BETWEEN_LINES
            share = f", {bytes_done / self._total:.0%}" if self._total else ""
            print(f"julia1: {count(rows, 'row')}{share}", file=sys.stderr, flush=True)


class TrainingProgress(_WithBar):
    """Shows a training run from its records, see ``julia1.train.finetune.Report``: epoch, step, loss, rows a second and
    the time that is left until the last epoch, before which training may stop.
    """

    def __init__(self) -> None:
        self._task: TaskID | None = None
        self._step = self._steps = 0
        self._began = self._next = 0.0
        self._first = 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=PACE_STEPS)

    def __enter__(self) -> TrainingProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = _bar("line")
            self._bar.start()
        return self

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record."""
        if record["kind"] == "step":
            self._show_step(record)
        elif record["kind"] == "epoch":
            self._show_epoch(record)
        elif record["kind"] == "package":
            self._print("writing the bundle: rounding, graphs, parity, figures")
        else:
            self._print(
                f"{record['cut']:,} of {record['rows']:,} rows are cut: they have more tokens than are read "
                f"(--max-tokens {record['max_tokens']}; --windows reads more)"
            )

    def _show_step(self, record: dict[str, Any]) -> None:
        now = time.monotonic()
        if not self._recent or record["step"] <= self._step:  # the first record, or another run begins
            self._start(record, now)
        self._step = record["step"]
        self._recent.append((now, record["rows"]))
        line = f"epoch {record['epoch']}/{record['epochs']}  step {record['step']:,}/{record['steps']:,}"
        line += f"  loss {record['loss']:.3f}{self._pace()}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=record["step"], line=line)
        elif now >= self._next:
            self._next = now + SECONDS_BETWEEN_STEPS
            self._print(f"{line}{self._left(record['steps'])}")

    def _start(self, record: dict[str, Any], now: float) -> None:
        self._began, self._first, self._next = now, record["step"], now + SECONDS_BETWEEN_STEPS
        self._steps = record["steps"]
        self._recent.clear()
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task("steps", total=record["steps"], completed=record["step"], line="")

    def _show_epoch(self, record: dict[str, Any]) -> None:
        figures = "".join(f"  {name} {value:.4f}" for name, value in record["figures"].items())
        left = self._left(self._steps) if self._recent else ""
        best = f"  best epoch {record['best_epoch']}" if record["best_epoch"] else ""
        self._print(
            f"epoch {record['epoch']}  loss {record['loss']:.4f}{figures}{best}"
            f"  {record['rows_per_second']:,.0f} rows/s{left}"
        )

    def _pace(self) -> str:
        if len(self._recent) < 2:
            return ""
        seconds = self._recent[-1][0] - self._recent[0][0]
        return f"  {sum(rows for _, rows in list(self._recent)[1:]) / max(1e-9, seconds):,.0f} rows/s"

    def _left(self, steps: int) -> str:
        """Time until the last epoch, at the pace since this process took the run up."""
        if self._step <= self._first:
            return ""
        seconds = (time.monotonic() - self._began) / (self._step - self._first) * (steps - self._step)
        return f"  {seconds / 60:.0f} min left" if seconds >= 90 else f"  {seconds:.0f} s left"

    def _print(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(one_line(line), markup=False, highlight=False, soft_wrap=True)
        else:
            print(one_line(line), file=sys.stderr, flush=True)


class SoakProgress(_WithBar):
    """Shows a soak from its moments."""

    def __init__(self) -> None:
        self._task: TaskID | None = None
        self._next = 0.0

    def __enter__(self) -> SoakProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = _bar("line")
            self._bar.start()
        return self

    def __call__(self, moment: Moment) -> None:
        """Show a moment."""
        held = f"  {moment.resident / 1e6:,.0f} MB" if moment.resident == moment.resident else ""
        line = f"{moment.seconds / 60:.1f} of {moment.of / 60:g} min  {count(moment.requests, 'request')}{held}"
        line += f"  probe {moment.probe:.1f} ms"
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("soak", total=moment.of, line=line)
            self._bar.update(self._task, completed=moment.seconds, line=line)
        elif moment.seconds >= self._next:
            self._next = moment.seconds + SECONDS_BETWEEN_STEPS
            print(f"julia1: {line}", file=sys.stderr, flush=True)


def _bar(field: str, *more: ProgressColumn) -> Progress:
    """A bar on standard error after the text of a field; columns of one's own before the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn(f"{{task.fields[{field}]}}", markup=False)
    return Progress(text, BarColumn(), *more, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
