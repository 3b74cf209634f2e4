"""``julia1 pack``: what it prints and how it ends."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_samples import write_small
from cli_samples import Ran
from pack_samples import MEMBERS, PLATFORM, toy_wheel, write_lock

from julia1.pack import box, lock

Run = Callable[..., Ran]


@pytest.fixture
def ask(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs ``julia1 pack`` on a small bundle and toy wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, members in MEMBERS.items():
        toy_wheel(folder / name, members)
    write_lock(tmp_path / "lock.json", folder)
    monkeypatch.setattr(lock, "LOCK_FILE", tmp_path / "lock.json")
    bundle = write_small(tmp_path / "small").folder
    flags = ("-o", tmp_path / "box.zip", "--wheels", folder, "--platform", PLATFORM, "--python", "3.11")
    return lambda *more: run("pack", bundle, *flags, *more)


def test_pack_prints_what_takes_how_much(ask: Callable[..., Ran], tmp_path: Path) -> None:
    done = ask()
    assert done.code == 0 and done.error == ""
    first, *parts = done.out.splitlines()
    assert first.startswith(f"{tmp_path / 'box.zip'}: ")
    assert first.endswith("for linux-x86_64, Python 3.11, glibc 2.27; variants: fp32, int8")
    assert [line.split()[0] for line in parts] == ["julia1-small", "numpy", "onnxruntime", "rich", "julia1"]


def test_pack_prints_json(ask: Callable[..., Ran], tmp_path: Path) -> None:
    done = ask("--json", "--variant", "int8")
    assert done.code == 0
    assert done.data["bytes"] == (tmp_path / "box.zip").stat().st_size
    assert done.data["folder"] == "julia1-small-2026.11.30" and done.data["variants"] == ["int8"]
    assert len(done.data["wheels"]) == len(MEMBERS) == len(done.data["parts"]) - 2


def test_large_box_is_packed_with_a_warning(ask: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "MOST_BYTES", 100_000)
    done = ask()
    assert done.code == 0
    assert done.error.startswith("julia1: warning: ") and "more than 0.1 MB" in done.error


def test_pack_exits_3_when_a_wheel_is_another(ask: Callable[..., Ran], tmp_path: Path) -> None:
    name = sorted(MEMBERS)[0]
    toy_wheel(tmp_path / "wheels" / name, {"other.py": b""})
    done = ask()
    assert done.code == 3 and "is not the wheel that julia1 pins" in done.error
    assert len(done.error.splitlines()) == 1 and not (tmp_path / "box.zip").exists()


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (("--platform", "linux-arm"), 2, "unknown platform 'linux-arm'"),
        (("--python", "2.7"), 2, "no wheels of Python '2.7' for linux-x86_64"),
        (("--variant", "int4"), 2, "no variant 'int4'"),
        (("--wheels", "nowhere"), 1, "no folder of wheels at nowhere"),
        (("--wheel", "x"), 2, "did you mean --wheels?"),
    ],
)
def test_errors_are_one_line(ask: Callable[..., Ran], more: tuple[str, ...], code: int, says: str) -> None:
    done = ask(*more)
    assert done.code == code and says in done.error and len(done.error.splitlines()) == 1


def test_existing_zip_is_kept(ask: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "box.zip").write_text("mine")
    done = ask()
    assert done.code == 1 and "exists: choose another place" in done.error
    assert (tmp_path / "box.zip").read_text() == "mine"


def test_box_json_is_what_json_prints(ask: Callable[..., Ran], tmp_path: Path) -> None:
    printed = ask("--json").data
    with zipfile.ZipFile(tmp_path / "box.zip") as archive:
        said = json.loads(archive.read(f"{printed['folder']}/box.json"))
    assert said == {key: printed[key] for key in said}
