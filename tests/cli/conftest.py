"""A decider that needs no model, put in the place of the real one, and a way to run the command."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import FakeDecider, Ran

from julia1.cli import main
from julia1.runtime import decider as decider_module


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine, no cache of the user."""
    for name in ("MODEL", "VARIANT", "ENGINE", "THREADS"):
        monkeypatch.delenv(f"JULIA1_{name}", raising=False)
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def decider(monkeypatch: pytest.MonkeyPatch) -> FakeDecider:
    """What ``load`` gives instead of a model; it keeps what it was loaded with and every state it was asked about."""
    fake = FakeDecider()
    monkeypatch.setattr(decider_module, "load", fake.load)
    return fake


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs ``julia1`` with arguments and, if given, bytes on standard input."""

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        out, error = capsys.readouterr()
        return Ran(code, out, error)

    return run
