"""A training process that is killed in the middle of an epoch, and the one that takes its run up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from julia1.train.curves import read_log  # noqa: E402

WORDS = ("order", "late", "team", "good", "great", "please", "today", "want")
SOURCE = Path(__file__).resolve().parents[2] / "src"


def command(rows: Path, output: Path, base: Path) -> list[str]:
    """Batches of one row: more steps in an epoch than between two checkpoints."""
    flags = ["--base", str(base), "--no-register", "--max-tokens", "24", "--epochs", "3", "--name", "killed", "--json"]
    settings = ["batch_rows=1", "threads=1", "bf16=false", "learning_rate=5e-4", "patience=9"]
    return [
        *(sys.executable, "-m", "julia1.cli", "train", str(rows), "-o", str(output), *flags),
        *(part for setting in settings for part in ("--set", setting)),
    ]


def start(rows: Path, output: Path, base: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        command(rows, output, base), env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def finished(process: subprocess.Popen[bytes]) -> dict[str, object]:
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    found: dict[str, object] = json.loads(printed)
    return found


def losses(output: Path) -> dict[int, float]:
    return {record["step"]: record["loss"] for record in read_log(output)[0]}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill so")
def test_a_killed_run_goes_on_in_the_same_order_to_the_same_figures(tiny_bundle: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = [
        {"text": " ".join([*map(str, random.choice(WORDS, 5)), topic, str(i)]), "label": topic}
        for i in range(150)
        for topic in ("food", "music")
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = start(tmp_path / "rows.jsonl", killed, tiny_bundle)
    try:
        until = time.monotonic() + 200
        while not any(step > 203 for step in losses(killed)):
            assert process.poll() is None
            assert time.monotonic() < until, "no step was told"
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    saved = torch.load(killed / "training.pt", weights_only=True)
    assert (saved["epoch"], saved["step"]) == (0, 200), "killed in the middle of the first epoch"
    before = losses(killed)
    resumed = finished(start(tmp_path / "rows.jsonl", killed, tiny_bundle))
    unbroken = finished(start(tmp_path / "rows.jsonl", whole, tiny_bundle))
    assert losses(killed) == losses(whole)
    assert before.items() <= losses(whole).items()
    assert (resumed["validation"], resumed["test"]) == (unbroken["validation"], unbroken["test"])
    weights = "bundle/weights.safetensors"
    assert (killed / weights).read_bytes() == (whole / weights).read_bytes()
    assert not list(killed.rglob("*.tmp"))
