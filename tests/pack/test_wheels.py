"""Wheels from the package index: what pip is asked, and what its failures mean."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pack_samples import toy_wheel

from julia1.errors import PackError, VerificationError
from julia1.pack import wheels
from julia1.pack.lock import Pin

FILE = "toy_julia1-1.0-cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64.whl"


class Pip:
    """Stands in for pip: keeps what it was asked, and prints or writes what it is told."""

    def __init__(self, said: str = "", wheel: bytes | None = None) -> None:
        self.said, self.wheel = said, wheel
        self.asked: list[str] = []
        self.requirements = ""

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.asked = command
        self.requirements = Path(command[command.index("--requirement") + 1]).read_text()
        if self.wheel is not None:
            (Path(command[command.index("--dest") + 1]) / FILE).write_bytes(self.wheel)
        return subprocess.CompletedProcess(command, int(self.wheel is None), "", self.said)


def fetch(pip: Pip, folder: Path, monkeypatch: pytest.MonkeyPatch, pinned: bytes = b"wheel") -> list[Path]:
    monkeypatch.setattr(subprocess, "run", pip)
    return wheels.from_index([Pin(FILE, hashlib.sha256(pinned).hexdigest())], "3.11", folder)


def test_pip_is_asked_for_the_target_and_for_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(wheel=b"wheel")
    assert fetch(pip, tmp_path, monkeypatch) == [tmp_path / FILE]
    assert pip.requirements == f"toy_julia1==1.0 --hash=sha256:{hashlib.sha256(b'wheel').hexdigest()}\n"
    asked = " ".join(pip.asked)
    for words in (
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--python-version 3.11",
        "--implementation cp",
        "--platform manylinux_2_17_aarch64",
        "--platform manylinux2014_aarch64",
    ):
        assert words in asked


def test_wheel_of_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VerificationError, match="is not the wheel that julia1 pins"):
        fetch(Pip(wheel=b"other"), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("said", "error", "means"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
            "ERROR: Could not find a version that satisfies the requirement toy\n"
            "ERROR: No matching distribution found for toy==1.0\n",
            PackError,
            r"the package index cannot be reached, so pip fetched none of toy_julia1==1\.0 \(No matching distribution "
            r"found for toy==1\.0\): check the network .*--wheels FOLDER",
        ),
        (
            "ERROR: No matching distribution found for toy==1.0\n",
            PackError,
            r"the package index does not have them, so pip fetched none of toy_julia1==1\.0",
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated\n"
            "    toy==1.0 from file:///x.whl (from -r r.txt (line 1)):\n        Expected sha256 00\n",
            VerificationError,
            r"serves toy==1\.0 with another SHA-256 than julia1 pins, so it is not used",
        ),
        (
            "ERROR: Exception:\nTraceback\nOSError: [Errno 28] No space left on device\n",
            PackError,
            "No space left on device; TMPDIR names another folder",
        ),
        ("", PackError, "pip said nothing"),
        ("Segmentation fault\n", PackError, "Segmentation fault"),
    ],
)
def test_failure_of_pip_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, error: type[Exception], means: str
) -> None:
    with pytest.raises(error, match=means):
        fetch(Pip(said), tmp_path, monkeypatch)


def test_python_without_pip_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PackError, match="python -m ensurepip , or fetch them where there is a network"):
        wheels.from_index([Pin(FILE, "0" * 64)], "3.11", tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")
def test_pip_itself_takes_the_pinned_wheel_of_another_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, target = tmp_path / "shelf", tmp_path / "target"
    shelf.mkdir()
    target.mkdir()
    members = {
        "METADATA": b"Metadata-Version: 2.1\nName: toy-julia1\nVersion: 1.0\n",
        "WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux2014_aarch64\n",
        "RECORD": b"",
    }
    wheel = toy_wheel(shelf / FILE, {f"toy_julia1-1.0.dist-info/{name}": text for name, text in members.items()})
    pin = Pin(FILE, hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    assert wheels.from_index([pin], "3.11", target) == [target / FILE]
    with pytest.raises(VerificationError, match=r"serves toy.julia1==1\.0 .*with another SHA-256"):
        wheels.from_index([Pin(FILE, "0" * 64)], "3.11", target)
