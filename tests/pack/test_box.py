"""One zip with model, packages, julia1 and start scripts: what is in it, always the same, and nothing unsafe."""

from __future__ import annotations

import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pack_samples import MEMBERS, PLATFORM, toy_wheel, unpack

from julia1.bundle import zip as bundle_zip
from julia1.bundle import zip_bundle
from julia1.bundle.reader import verify_bundle
from julia1.errors import BundleError, InputError, PackError, VerificationError
from julia1.pack import Box, archive, pack

NUMPY = next(name for name in MEMBERS if name.startswith("numpy"))


@pytest.fixture
def packed(bundle: Path, wheels: Path, tmp_path: Path) -> Box:
    return pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)


def contents(box: Box) -> dict[str, bytes]:
    with zipfile.ZipFile(box.path) as file:
        assert file.testzip() is None
        assert {name.split("/")[0] for name in file.namelist()} == {box.folder}
        return {name.removeprefix(f"{box.folder}/"): file.read(name) for name in file.namelist()}


def test_box_holds_model_packages_julia1_and_scripts(packed: Box, bundle: Path, tmp_path: Path) -> None:
    found = contents(packed)
    assert {"box.json", "README.md", "julia1", "julia1.cmd", "LICENSE", "NOTICE"} <= found.keys()
    assert found["lib/numpy/__init__.py"] == MEMBERS[NUMPY]["numpy/__init__.py"]
    assert found["lib/julia1/cli/app.py"] == (Path(bundle_zip.__file__).parents[1] / "cli/app.py").read_bytes()
    assert found["model/bundle.json"] == (bundle / "bundle.json").read_bytes()
    assert not [name for name in found if "assets" in name or "__pycache__" in name or "@" in name]
    assert b"@" not in found["julia1"].replace(b'"$@"', b"") and b"@PYTHON@" not in found["README.md"]
    unpack(packed.path, tmp_path / "out")
    checks = verify_bundle(tmp_path / "out" / packed.folder / "model")
    assert {check.entry.path: check.status for check in checks}["checkpoint/model.safetensors"] == "left out"
    assert {check.status for check in checks} == {"ok", "left out"}


def test_box_leaves_out_what_does_not_run(packed: Box) -> None:
    found = {name.removeprefix("lib/") for name in contents(packed) if not name.startswith("lib/julia1/")}
    assert {"numpy/late.py", "numpy.libs/libblas.so", "numpy-2.0.dist-info/METADATA"} <= found
    assert "numpy-2.0.dist-info/licenses/tests/LICENSE" in found  # a licence is kept wherever it stands
    assert "onnxruntime/capi/onnxruntime_pybind11_state.so" in found
    assert "onnxruntime/capi/libonnxruntime_providers_shared.so" in found  # without it every start warns
    for gone in ("numpy/__init__.pyi", "numpy/tests/test_all.py", "onnxruntime/transformers/optimizer.py"):
        assert gone not in found
    assert not {name for name in found if name.endswith(("RECORD", "f2py", "libonnxruntime.so.1.0"))}


def test_box_json_names_every_wheel(packed: Box) -> None:
    said = json.loads(contents(packed)["box.json"])
    assert (said["name"], said["version"], said["platform"], said["python"]) == (
        "julia1-small",
        "2026.11.30",
        PLATFORM,
        "3.11",
    )
    assert said["needs"] == {"glibc": "2.27"}
    assert [(w["name"], w["version"]) for w in said["wheels"]] == [
        ("numpy", "2.0"),
        ("onnxruntime", "1.0"),
        ("rich", "3.0"),
    ]
    assert all(len(wheel["sha256"]) == 64 and wheel["file"] in MEMBERS for wheel in said["wheels"])


def test_same_input_gives_the_same_bytes(packed: Box, bundle: Path, wheels: Path, tmp_path: Path) -> None:
    again = pack(
        zip_bundle(bundle, tmp_path / "small.zip"),
        tmp_path / "deep" / "again.zip",
        platform=PLATFORM,
        python="3.11",
        wheels=wheels,
    )
    assert again.path.read_bytes() == packed.path.read_bytes()


def test_members_of_wheels_are_not_deflated_anew(packed: Box, wheels: Path) -> None:
    with zipfile.ZipFile(packed.path) as box, zipfile.ZipFile(wheels / NUMPY) as wheel:
        for name in ("numpy/__init__.py", "numpy.libs/libblas.so"):
            copy, own = box.getinfo(f"{packed.folder}/lib/{name}"), wheel.getinfo(name)
            assert copy.compress_type == zipfile.ZIP_DEFLATED
            assert (copy.compress_size, copy.CRC) == (own.compress_size, own.CRC)


def test_only_the_start_script_is_executable(packed: Box) -> None:
    with zipfile.ZipFile(packed.path) as box:
        modes = {member.filename: member.external_attr >> 16 for member in box.infolist()}
    assert all(stat.S_ISREG(mode) for mode in modes.values())
    assert [name for name, mode in modes.items() if mode & 0o111] == [f"{packed.folder}/julia1"]
    lines = contents(packed)["julia1.cmd"].split(b"\n")[:-1]
    assert all(line.endswith(b"\r") for line in lines)  # cmd.exe loses its labels otherwise


def test_parts_add_up(packed: Box) -> None:
    assert packed.bytes == packed.path.stat().st_size
    assert [part.name for part in packed.parts] == ["julia1-small", "numpy", "onnxruntime", "rich", "julia1"]
    assert 0 < packed.bytes - sum(part.bytes for part in packed.parts) < 60_000  # scripts, licences, the directory


def test_variants_can_be_left_out(bundle: Path, wheels: Path, tmp_path: Path) -> None:
    box = pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels, variants=["int8", "int8"])
    found = contents(box)
    assert [variant["name"] for variant in json.loads(found["model/bundle.json"])["variants"]] == ["int8"]
    assert "model/model-int8.onnx" in found and "model/model.onnx" not in found
    assert json.loads(found["box.json"])["variants"] == ["int8"]


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"platform": "linux-x86-64"}, InputError, "unknown platform 'linux-x86-64': did you mean linux-x86_64"),
        ({"platform": "solaris"}, InputError, "there are: linux-aarch64, linux-x86_64, macos-arm64, win-amd64"),
        ({"python": "3.7"}, InputError, r"no wheels of Python '3\.7' for linux-x86_64: name one of"),
        ({"python": "3.11.7"}, InputError, r"no wheels of Python '3\.11\.7'"),
        ({"variants": ["int4"]}, InputError, "has no variant 'int4'; it has: fp32, int8"),
        ({"wheels": "nowhere"}, PackError, "there is no folder of wheels at nowhere"),
    ],
)
def test_wrong_input_is_one_error(
    bundle: Path, wheels: Path, tmp_path: Path, wrong: dict[str, str], error: type[Exception], says: str
) -> None:
    settings = {"platform": PLATFORM, "python": "3.11", "wheels": wheels, **wrong}
    with pytest.raises(error, match=says):
        pack(bundle, tmp_path / "box.zip", **settings)  # type: ignore[arg-type]
    assert not (tmp_path / "box.zip").exists()


def test_existing_target_is_kept(bundle: Path, wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "box.zip").write_text("mine")
    with pytest.raises(PackError, match=r"box\.zip exists: choose another place"):
        pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)
    assert (tmp_path / "box.zip").read_text() == "mine"


def test_changed_wheel_is_refused(bundle: Path, wheels: Path, tmp_path: Path) -> None:
    with (wheels / NUMPY).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(VerificationError, match=rf"{NUMPY} is not the wheel that julia1 pins: its SHA-256 is"):
        pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)
    assert not (tmp_path / "box.zip").exists()


def test_missing_wheel_is_named(bundle: Path, wheels: Path, tmp_path: Path) -> None:
    (wheels / NUMPY).unlink()
    with pytest.raises(PackError, match=f"lacks {NUMPY}: put just these files there"):
        pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)


def test_changed_model_is_refused(bundle: Path, wheels: Path, tmp_path: Path) -> None:
    (bundle / "weights.bin").write_text("v" * 4096)
    with pytest.raises(BundleError, match="is changed"):
        pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob(".box*"))


@pytest.mark.parametrize("member", ["../evil.py", "/evil.py", "a\\evil.py", "C:evil.py", "numpy/__INIT__.py", "aux.py"])
def test_unsafe_member_of_a_wheel_is_refused(
    bundle: Path, wheels: Path, tmp_path: Path, relock: Callable[[Path], None], member: str
) -> None:
    toy_wheel(wheels / NUMPY, {**MEMBERS[NUMPY], member: b""})
    relock(wheels)
    with pytest.raises(PackError, match="cannot pack 'lib/"):
        pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob(".box*"))


def test_file_that_is_no_wheel_is_refused(
    bundle: Path, wheels: Path, tmp_path: Path, relock: Callable[[Path], None]
) -> None:
    (wheels / NUMPY).write_bytes(b"<html>not found</html>")
    relock(wheels)
    with pytest.raises(PackError, match=rf"{NUMPY} is no wheel, or is damaged"):
        pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)


def test_full_disk_leaves_nothing(bundle: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "write_member", full)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(PackError, match=r"cannot write .*box\.zip: No space left on device"):
        pack(bundle, tmp_path / "box.zip", platform=PLATFORM, python="3.11", wheels=wheels)
    assert sorted(tmp_path.iterdir()) == before
