"""Toy wheels, wheels made again of what is installed here, and a box unzipped as ``unzip`` does it."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from julia1.pack import this_platform, this_python

PLATFORM = "linux-x86_64"
_TAGS = "cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64"
MEMBERS = {
    f"numpy-2.0-{_TAGS}.whl": {
        "numpy/__init__.py": b"VALUE = 1\n" * 50,
        "numpy/__init__.pyi": b"VALUE: int\n",
        "numpy/tests/test_all.py": b"",
        "numpy.libs/libblas.so": b"\x7fELF" + b"blas" * 1000,
        "numpy-2.0.data/purelib/numpy/late.py": b"",
        "numpy-2.0.data/scripts/f2py": b"#!python",
        "numpy-2.0.dist-info/METADATA": b"Name: numpy\nVersion: 2.0\n",
        "numpy-2.0.dist-info/RECORD": b"numpy/__init__.py,,\n",
        "numpy-2.0.dist-info/licenses/tests/LICENSE": b"BSD",
    },
    "onnxruntime-1.0-cp311-cp311-manylinux2014_x86_64.whl": {
        "onnxruntime/__init__.py": b"",
        "onnxruntime/capi/onnxruntime_pybind11_state.so": b"\x7fELF",
        "onnxruntime/capi/libonnxruntime.so.1.0": b"\x7fELF",
        "onnxruntime/capi/libonnxruntime_providers_shared.so": b"\x7fELF",
        "onnxruntime/transformers/optimizer.py": b"",
    },
    "rich-3.0-py3-none-any.whl": {"rich/__init__.py": b""},
}
"""Wheels as the index has them, in small."""


def toy_wheel(place: Path, members: Mapping[str, bytes]) -> Path:
    """Write a zip with these members, deflated."""
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return place


def installed_wheel(package: str, folder: Path) -> Path:
    """Make a wheel again of a package as it is installed here."""
    place = folder / f"{package}-{metadata.version(package)}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for file in metadata.files(package) or ():
            if ".." not in file.parts and not file.name.endswith(".pyc"):
                archive.write(str(file.locate()), file.as_posix())
    return place


def write_lock(place: Path, folder: Path) -> None:
    """Pin every wheel in a folder, for this machine, and for ``PLATFORM`` and Python 3.11."""
    pinned = {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in folder.glob("*.whl")}
    everywhere = {this_python(): pinned, "3.11": pinned}
    place.write_text(json.dumps({PLATFORM: everywhere, this_platform() or PLATFORM: everywhere}))


def unpack(box: Path, folder: Path) -> None:
    """Unzip, with the permissions that the zip says."""
    with zipfile.ZipFile(box) as archive:
        archive.extractall(folder)
        for member in archive.infolist():
            (folder / member.filename).chmod(member.external_attr >> 16 & 0o777)
