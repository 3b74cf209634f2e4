"""How far a long run is: a bar on a terminal, now and then a line elsewhere, on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from julia1.cli.printing import count

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_BETWEEN_LINES = 10.0


class RowProgress:
    """Shows rows done, and the share of the input read where its size is known.

    Args:
        bytes_total: size of the input, 0 when it is not known.
        lines: whether to print lines where there is no terminal.
    """

    def __init__(self, bytes_total: int, lines: bool) -> None:
        self._total = bytes_total
        self._lines = lines
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._next = time.monotonic() + SECONDS_BETWEEN_LINES

    def __enter__(self) -> RowProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar, self._task = _bar(self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, rows: int, bytes_done: int) -> None:
        """Show that ``rows`` rows, ``bytes_done`` bytes of the input, are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=bytes_done, rows=count(rows, "row"))
        elif self._lines and time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_BETWEEN_LINES
            share = f", {bytes_done / self._total:.0%}" if self._total else ""
            print(f"julia1: {count(rows, 'row')}{share}", file=sys.stderr, flush=True)


def _bar(total: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.fields[rows]}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    return bar, bar.add_task("rows", total=total or None, rows="0 rows")
