"""Everything that runs a model works without a network, and does not try to reach one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from julia1.runtime.engines import ENGINES, missing_engine

SOURCE = Path(__file__).resolve().parents[2] / "src"

GUARD = """
import os, socket, sys

def watch(event, arguments):
    if event == "socket.getaddrinfo" or (
        event in ("socket.connect", "socket.sendto") and getattr(arguments[0], "family", 0) != socket.AF_UNIX
    ):
        with open(os.environ["ATTEMPTS"], "a") as file:
            file.write(f"{event} {arguments[1:]} {sys.argv}\\n")

sys.addaudithook(watch)
"""

ROWS = [
    {"text": "I was charged twice for one order", "answers": {"team": "billing"}},
    {"text": "where is my parcel", "answers": {"team": "shipping"}},
]
QUESTION = ("--choice", "Which team?", "billing", "shipping")


@lru_cache(maxsize=1)
def alone() -> list[str]:
    """A command before others that leaves them a network without interfaces; empty where that is not allowed."""
    if shutil.which("unshare") is None:
        return []
    before = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    return before if subprocess.run([*before, "true"], capture_output=True).returncode == 0 else []


@pytest.mark.slow
def test_every_command_that_runs_a_model_works_without_a_network(tmp_path: Path) -> None:
    if not alone():
        pytest.skip("this system allows no network namespace")
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard/sitecustomize.py").write_text(GUARD)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "team.json").write_text('{"team": {"type": "choice", "options": ["billing", "shipping"]}}')
    attempts = tmp_path / "attempts"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("JULIA1_")},
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "guard"), str(SOURCE)]),
        "JULIA1_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "ATTEMPTS": str(attempts),
    }

    def julia1(*arguments: object) -> str:
        command = [*alone(), sys.executable, "-m", "julia1.cli", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    assert "billing" in julia1("decide", "I was charged twice", *QUESTION)
    for engine in (name for name in ENGINES if not missing_engine(name)):
        assert "billing" in julia1("decide", "I was charged twice", *QUESTION, "--engine", engine)
    assert "runs" in julia1("doctor")
    assert "best for latency" in julia1("tune", "--engines", "onnxruntime", "--threads", 1, "--rounds", 1)
    assert "tuned on this machine" in julia1("models", "show")
    julia1("golden", "make", "-o", tmp_path / "golden.json.gz")
    julia1("golden", "check", tmp_path / "golden.json.gz")
    julia1("soak", "--minutes", 0.05)
    julia1("accept", "--data", tmp_path / "rows.jsonl", "-q", tmp_path / "team.json", "--soak-minutes", 0)
    julia1("verify")
    assert not attempts.exists(), attempts.read_text()


def test_the_guard_sees_an_attempt(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(GUARD)
    code = "import socket\ntry: socket.create_connection(('127.0.0.1', 9), 0.2)\nexcept OSError: pass"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ATTEMPTS": str(tmp_path / "attempts")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    assert "socket.connect" in (tmp_path / "attempts").read_text()
