"""Curves of a run: what the log says, drawn whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from julia1.errors import TrainingError
from julia1.train import curves
from julia1.train.curves import CURVES, LOG, CurveDrawer, draw_curves, read_log

PNG = b"\x89PNG\r\n\x1a\n"


def step(number: int, loss: float = 1.0) -> dict[str, Any]:
    return {"kind": "step", "step": number, "epoch": 1, "learning_rate": 1e-4, "loss": loss}


def epoch(number: int, **figures: float) -> dict[str, Any]:
    record = {"kind": "epoch", "step": 10 * number, "epoch": number, "loss": 1.0, "figures": figures}
    return {**record, "best_epoch": number, "rows_per_second": 3.0}


def write_log(folder: Path, *records: dict[str, Any], end: str = "\n") -> None:
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    (folder / LOG).write_text(lines + end, encoding="utf-8")


def test_a_run_that_was_taken_up_is_told_once(tmp_path: Path) -> None:
    write_log(tmp_path, step(1), step(2), step(3, 9.0), step(3, 2.0), epoch(1, a=0.1), epoch(1, a=0.2), end='\n{"kin')
    steps, epochs = read_log(tmp_path)
    assert [(one["step"], one["loss"]) for one in steps] == [(1, 1.0), (2, 1.0), (3, 2.0)]
    assert [one["figures"] for one in epochs] == [{"a": 0.2}]


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    assert read_log(tmp_path) == ([], [])
    assert not draw_curves(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "records",
    [
        [step(1)],
        [epoch(1, topic=0.5)],
        [step(1), epoch(1, topic=0.5), step(2), epoch(2, topic=0.6)],
        [epoch(1, **{f"head {i}": 0.5 for i in range(30)})],
        [epoch(1, **{"$\\frac{$": 0.5, "_hidden": 0.2, "主题": 0.3, "": 0.1, "loss": 0.3, "<b>": 0.1})],
    ],
)
@pytest.mark.filterwarnings("error")
def test_whatever_heads_are_called_is_drawn(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    write_log(tmp_path, *records)
    assert draw_curves(tmp_path)
    assert (tmp_path / CURVES).read_bytes().startswith(PNG)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CURVES, LOG]


def test_a_picture_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, step(1))
    draw_curves(tmp_path)
    old = (tmp_path / CURVES).read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(Path, "replace", full)
    write_log(tmp_path, step(1), step(2))
    with pytest.raises(TrainingError, match="disk full"):
        draw_curves(tmp_path)
    assert (tmp_path / CURVES).read_bytes() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == [CURVES, LOG]


def test_drawing_takes_a_small_share_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, drawn = [0.0], []

    def draws(folder: Path) -> bool:
        drawn.append(now[0])
        now[0] += 1
        return True

    monkeypatch.setattr(curves, "draw_curves", draws)
    monkeypatch.setattr(curves.time, "monotonic", lambda: now[0])
    drawer = CurveDrawer(tmp_path)
    for _ in range(100):  # epochs of a second
        drawer.draw()
        now[0] += 1
    drawer.draw(last=True)
    assert 5 <= len(drawn) <= 7
    assert drawn[-1] == now[0] - 1
