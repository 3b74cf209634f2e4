"""A bundle as one zip: the same bytes each time, unpacked once, and nothing unsafe unpacked."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from bundle_samples import LFS_POINTER, write_small
from hypothesis import given, settings
from hypothesis import strategies as st

from julia1.bundle import Bundle, verify_bundle, zip_bundle
from julia1.bundle import zip as bundle_zip
from julia1.errors import BundleError


@pytest.fixture
def zipped(folder: Path) -> Path:
    return zip_bundle(folder, folder.parent / "small.zip")


def with_member(zipped: Path, member: zipfile.ZipInfo | str, content: bytes = b"x") -> Path:
    with zipfile.ZipFile(zipped, "a") as archive:
        archive.writestr(member, content)
    return zipped


def files(folder: Path) -> set[str]:
    return {place.relative_to(folder).as_posix() for place in folder.rglob("*") if place.is_file()}


def test_a_zip_opens_as_its_folder_does(folder: Path, zipped: Path, cache: Path) -> None:
    bundle = Bundle.open(zipped)
    assert bundle.manifest == Bundle.open(folder).manifest
    assert bundle.source == zipped
    assert cache.resolve() / "bundles" in bundle.folder.parents
    assert {check.status for check in verify_bundle(zipped)} == {"ok"}
    assert files(bundle.folder) == files(folder)


def test_the_same_bundle_gives_the_same_bytes(folder: Path, zipped: Path, tmp_path: Path) -> None:
    again = write_small(tmp_path / "again").folder
    (again / "stray.txt").write_text("left out")
    for place in again.rglob("*"):
        os.utime(place, (1, 1))
    assert zip_bundle(again, tmp_path / "again.zip").read_bytes() == zipped.read_bytes()


def test_a_zip_is_unpacked_once(zipped: Path, cache: Path) -> None:
    first = Bundle.open(zipped).folder
    mark = (first / "bundle.json").stat().st_ino
    assert Bundle.open(zipped.rename(zipped.with_name("other.zip"))).folder == first
    assert (first / "bundle.json").stat().st_ino == mark
    assert [place.name for place in (cache / "bundles").iterdir()] == [first.name]


def test_the_checkpoint_can_be_left_out(folder: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(zip_bundle(folder, tmp_path / "lean.zip", checkpoint=False))
    assert not (bundle.folder / "checkpoint").exists()
    assert "left out" in {check.status for check in bundle.verify()}


def test_a_zip_of_the_folder_itself_opens(folder: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "hand.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for place in [folder, *folder.rglob("*")]:
            archive.write(place, place.relative_to(folder.parent))
        archive.writestr("__MACOSX/._small", b"")
    assert {check.status for check in verify_bundle(tmp_path / "hand.zip")} == {"ok"}


def test_two_threads_may_open_the_same_zip_at_once(zipped: Path, cache: Path) -> None:
    together = Barrier(2)

    def opened(_: int) -> Path:
        together.wait()
        return Bundle.open(zipped).folder

    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(opened, range(2)))) == 1
    assert len(list((cache / "bundles").iterdir())) == 1


def test_the_slower_of_two_takes_what_the_faster_unpacked(
    zipped: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = bundle_zip._checked_members

    def overtaken(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
        monkeypatch.setattr(bundle_zip, "_checked_members", checked)
        Bundle.open(zipped)
        return checked(archive, path)

    monkeypatch.setattr(bundle_zip, "_checked_members", overtaken)
    assert {check.status for check in Bundle.open(zipped).verify()} == {"ok"}
    assert len(list((cache / "bundles").iterdir())) == 1


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/evil", "C:/evil", "a\\evil", "bundle.json", "Weights.bin"]
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_unsafe_member_is_refused(zipped: Path, cache: Path, name: str) -> None:
    with pytest.raises(BundleError, match="is refused: its member"):
        Bundle.open(with_member(zipped, name))
    assert not files(cache)
    assert not list(zipped.parent.rglob("evil"))


def test_a_symbolic_link_is_refused(zipped: Path, cache: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(BundleError, match="'link' is a symbolic link"):
        Bundle.open(with_member(zipped, link, b"/etc/passwd"))
    assert not files(cache)


def test_a_zip_that_declares_too_much_is_refused(zipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_zip, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(BundleError, match=r"unpacks to [\d,]+ bytes: a bundle's zip may hold 1,000"):
        Bundle.open(zipped)
    monkeypatch.setattr(bundle_zip, "MAX_UNPACKED_BYTES", 10**9)
    monkeypatch.setattr(bundle_zip, "MAX_MEMBERS", 3)
    with pytest.raises(BundleError, match="members: a bundle has at most 3"):
        Bundle.open(zipped)


def test_a_member_larger_than_it_declares_is_refused(zipped: Path, cache: Path) -> None:
    bomb = zipfile.ZipInfo("bomb")
    bomb.compress_type = zipfile.ZIP_DEFLATED
    content = bytearray(with_member(zipped, bomb, b"\0" * 5_000_000).read_bytes())
    start = content.rindex(b"PK\x01\x02")
    assert struct.unpack_from("<I", content, start + 24) == (5_000_000,)
    struct.pack_into("<I", content, start + 24, 10)  # the size in the zip's directory
    zipped.write_bytes(content)
    with pytest.raises(BundleError, match="is damaged"):
        Bundle.open(zipped)
    assert not files(cache)


def truncated(zipped: Path) -> None:
    os.truncate(zipped, zipped.stat().st_size - 40)


def no_zip(zipped: Path) -> None:
    zipped.write_bytes(b"not a zip")


def empty(zipped: Path) -> None:
    zipped.write_bytes(b"")


def changed_byte(zipped: Path) -> None:
    content = zipped.read_bytes()
    zipped.write_bytes(content.replace(b"w" * 4096, b"w" * 4095 + b"v"))


def pointer(zipped: Path) -> None:
    zipped.write_text(LFS_POINTER)


def other_zip(zipped: Path) -> None:
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("deep/er/bundle.json", "{}")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (truncated, "is not a zip file, or is damaged"),
        (no_zip, "is not a zip file, or is damaged"),
        (empty, "is not a zip file, or is damaged"),
        (changed_byte, "is damaged.*weights.bin"),
        (pointer, "git-LFS pointer"),
        (other_zip, r"is not a bundle: it has no bundle\.json"),
    ],
)
def test_a_damaged_zip_is_told_and_leaves_nothing(
    zipped: Path, cache: Path, fault: Callable[[Path], None], message: str
) -> None:
    fault(zipped)
    with pytest.raises(BundleError, match=message):
        Bundle.open(zipped)
    assert not list((cache / "bundles").glob("*"))


def test_any_damage_is_told_or_harmless(zipped: Path) -> None:
    whole = zipped.read_bytes()
    manifest = Bundle.open(zipped).manifest
    headers = [at for at in range(len(whole)) if whole[at : at + 2] == b"PK"]

    @settings(max_examples=30, deadline=None)
    @given(st.sampled_from(headers), st.integers(0, 60), st.integers(0, 255))
    def damage(header: int, offset: int, value: int) -> None:
        content = bytearray(whole)
        content[min(header + offset, len(content) - 1)] = value
        with tempfile.NamedTemporaryFile(suffix=".zip", dir=zipped.parent) as file:
            file.write(content)
            file.flush()
            try:
                bundle = Bundle.open(file.name)
            except BundleError:
                return
            assert bundle.manifest == manifest
            assert all(check.status != "wrong" for check in bundle.verify())

    damage()


def test_a_damaged_cache_says_what_to_do(zipped: Path) -> None:
    bundle = Bundle.open(zipped)
    (bundle.folder / "weights.bin").unlink()
    with pytest.raises(BundleError, match=r"is missing: delete the folder .* and open .*small\.zip again"):
        Bundle.open(zipped)
    (bundle.folder / "bundle.json").unlink()
    with pytest.raises(BundleError, match=r"has lost its bundle\.json: delete the folder"):
        Bundle.open(zipped)


def test_a_cache_that_cannot_be_written_is_told(zipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JULIA1_CACHE", str(tmp_path / "file"))
    with pytest.raises(BundleError, match="JULIA1_CACHE names another folder"):
        Bundle.open(zipped)


def test_a_damaged_folder_is_not_zipped(folder: Path, tmp_path: Path) -> None:
    (folder / "weights.bin").write_text("v" * 4096)
    with pytest.raises(BundleError, match="is changed"):
        zip_bundle(folder, tmp_path / "small.zip")
    assert not (tmp_path / "small.zip").exists()


def test_a_zip_is_replaced_only_when_asked(folder: Path, zipped: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="ask to replace it"):
        zip_bundle(folder, zipped)
    zip_bundle(folder, zipped, replace=True)
    (tmp_path / "photos.zip").write_bytes(b"PK")
    with pytest.raises(BundleError, match="no bundle's zip, so it is not replaced"):
        zip_bundle(folder, tmp_path / "photos.zip", replace=True)


def test_an_interrupted_zip_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle_zip, "write_member", full)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BundleError, match="No space left on device"):
        zip_bundle(folder, tmp_path / "small.zip")
    assert sorted(tmp_path.iterdir()) == before
