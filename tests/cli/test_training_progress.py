"""What is shown while a model is trained: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from julia1.cli import progress
from julia1.cli.progress import TrainingProgress


def step(number: int, epoch: int = 1) -> dict[str, Any]:
    record = {"kind": "step", "step": number, "steps": 100, "epoch": epoch, "epochs": 4, "loss": 0.5, "rows": 8}
    return {**record, "learning_rate": 1e-4}


def epoch(number: int, name: str = "topic") -> dict[str, Any]:
    record = {"kind": "epoch", "step": 25 * number, "epoch": number, "loss": 0.25, "figures": {name: 0.75}}
    return {**record, "best_epoch": number, "rows_per_second": 1234.5}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_now_and_then_and_after_each_epoch(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress() as shown:
        for number in range(1, 26):  # four seconds a step
            clock[0] += 4
            shown(step(number))
        shown(epoch(1))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 100 // 32 + 1
    assert lines[0] == "epoch 1/4  step 9/100  loss 0.500  2 rows/s  6 min left"
    assert lines[-1] == "epoch 1  loss 0.2500  topic 0.7500  best epoch 1  1,234 rows/s  5 min left"


def test_a_run_that_is_taken_up_counts_its_own_steps(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress() as shown:
        shown(step(90))
        clock[0] += 2
        shown(step(91))
        shown(epoch(4))
    assert capsys.readouterr().err.rstrip().endswith("18 s left")


def test_another_run_starts_anew(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress() as shown:
        for number in (98, 99, 100, 1, 2):
            clock[0] += 1
            shown(step(number))
        shown(epoch(1))
    assert capsys.readouterr().err.rstrip().endswith("2 min left"), "98 steps of a second"


def test_an_epoch_alone_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress() as shown:
        shown(epoch(2, name="a\x1b[31m"))
    assert capsys.readouterr().err == "epoch 2  loss 0.2500  a [31m 0.7500  best epoch 2  1,234 rows/s\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_with_the_time_that_is_left(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with TrainingProgress() as shown:
        for number in range(1, 11):
            clock[0] += 1
            shown(step(number))
        assert shown._bar is not None
        shown._bar.refresh()
        shown(epoch(1, name="[bold]"))
    written = terminal.getvalue()
    assert "epoch 1/4  step 10/100  loss 0.500  8 rows/s" in written
    assert re.search(r"\d:\d\d:\d\d", written), "the time that is left, at the pace of a real clock"
    assert "[bold] 0.7500" in written, "a head's name is no markup"


def test_what_takes_time_after_the_last_epoch_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress() as progress:
        progress({"kind": "package"})
    assert capsys.readouterr().err.endswith("writing the bundle: rounding, graphs, parity, figures\n")
