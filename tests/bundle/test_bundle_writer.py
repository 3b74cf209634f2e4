"""Writing a bundle: whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bundle_samples import LFS_POINTER, small_manifest, write_small

from julia1.bundle import Bundle, BundleWriter
from julia1.errors import BundleError


def names(folder: Path) -> list[str]:
    return sorted(place.name for place in folder.iterdir())


def test_a_written_bundle_opens_and_verifies(tmp_path: Path) -> None:
    bundle = write_small(tmp_path / "deep" / "small")
    assert bundle.folder == tmp_path / "deep" / "small"
    assert {check.status for check in bundle.verify()} == {"ok"}
    assert bundle.manifest.card is not None
    assert "# julia1-small" in bundle.path(bundle.manifest.card).read_text(encoding="utf-8")
    assert names(tmp_path / "deep") == ["small"]


def test_files_are_copied_or_taken_in_place(tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(b"far")
    with BundleWriter(tmp_path / "small") as writer:
        manifest = small_manifest(writer)
        (writer.folder / "near.bin").write_bytes(b"near")
        extra = (writer.add(source, "far/far.bin"), writer.add(writer.folder / "near.bin", "near.bin"))
        variant = replace(manifest.variants[0], files=manifest.variants[0].files + extra)
        bundle = writer.finish(replace(manifest, variants=(variant, manifest.variants[1])))
    assert [bundle.path(entry).read_bytes() for entry in extra] == [b"far", b"near"]
    assert source.exists()


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), BundleWriter(tmp_path / "small") as writer:
            small_manifest(writer)
            raise error
    assert names(tmp_path) == []


def test_a_disk_error_at_the_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(BundleError, match="No space left on device"):
        write_small(tmp_path / "small")
    assert names(tmp_path) == []


def test_forgetting_to_finish_is_told(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"finish\(\) was not called"), BundleWriter(tmp_path / "small") as writer:
        small_manifest(writer)
    assert names(tmp_path) == []


def test_a_bundle_is_replaced_only_when_asked(tmp_path: Path) -> None:
    write_small(tmp_path / "small", "1")
    with pytest.raises(BundleError, match="exists: choose another place, or ask to replace it"):
        write_small(tmp_path / "small", "2")
    assert Bundle.open(tmp_path / "small").manifest.version == "1"
    write_small(tmp_path / "small", "2", replace=True)
    assert Bundle.open(tmp_path / "small").manifest.version == "2"
    assert names(tmp_path) == ["small"]


def test_a_failed_replacement_keeps_the_old_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small(tmp_path / "small", "1")
    rename = Path.rename
    calls = []

    def fail_second(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_second)
    with pytest.raises(BundleError, match="Input/output error"):
        write_small(tmp_path / "small", "2", replace=True)
    assert Bundle.open(tmp_path / "small").manifest.version == "1"
    assert names(tmp_path) == ["small"]


def test_what_is_no_bundle_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("kept")
    for name in ("work", "file"):
        with pytest.raises(BundleError, match="is not a bundle, so it is not replaced"):
            write_small(tmp_path / name, replace=True)
    write_small(tmp_path / "small")
    (tmp_path / "small" / "notes").mkdir()
    (tmp_path / "small" / "notes" / "mine.txt").write_text("kept")
    with pytest.raises(BundleError, match=r"'notes/mine\.txt', which is not of the bundle and would be lost"):
        write_small(tmp_path / "small", replace=True)
    assert names(tmp_path) == ["file", "small", "work"]


def test_a_link_to_a_bundle_keeps_pointing_to_the_new_one(tmp_path: Path) -> None:
    write_small(tmp_path / "small", "1")
    (tmp_path / "latest").symlink_to("small")
    write_small(tmp_path / "latest", "2", replace=True)
    assert (tmp_path / "latest").is_symlink()
    assert Bundle.open(tmp_path / "small").manifest.version == "2"


@pytest.mark.parametrize("path", ["../x", "/x", "bundle.json", "weights.bin", "Weights.bin", ""])
def test_an_unsafe_or_taken_path_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(BundleError, match="cannot add a file"), BundleWriter(tmp_path / "small") as writer:
        small_manifest(writer)
        writer.add_text("x", path)


def test_a_bad_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pointer.bin").write_text(LFS_POINTER)
    for name, message in (("pointer.bin", "git-LFS pointer"), ("none.bin", "No such file"), (".", "director")):
        with pytest.raises(BundleError, match=message), BundleWriter(tmp_path / "small") as writer:
            writer.add(tmp_path / name, "weights.bin")


def test_manifest_and_files_must_agree(tmp_path: Path) -> None:
    def written(change: str) -> None:
        with BundleWriter(tmp_path / "small") as writer:
            manifest = small_manifest(writer)
            if change == "extra":
                writer.add_text("x", "extra.txt")
            elif change == "stray":
                (writer.folder / "stray.txt").write_text("x")
            elif change == "missing":
                manifest = replace(manifest, tokenizer=replace(manifest.tokenizer, path="other.json"))
            elif change == "other":
                manifest = replace(manifest, tokenizer=replace(manifest.tokenizer, sha256="0" * 64))
            elif change == "later":
                (writer.folder / "tokenizer.json").write_text("longer than it was before")
            else:
                manifest = replace(manifest, kind="closed")
            writer.finish(manifest)

    for change, message in {
        "extra": "was added to the bundle and the manifest does not name it",
        "stray": "'stray.txt' was written into the bundle and not added",
        "missing": "names 'other.json', which was not added",
        "other": "is not the file that was added",
        "later": "is not the file that was added",
        "wrong": "kind: expected one of open",
    }.items():
        with pytest.raises(BundleError, match=message):
            written(change)
    assert names(tmp_path) == []


def test_a_bundle_can_be_copied_without_its_checkpoint(folder: Path, tmp_path: Path) -> None:
    source = Bundle.open(folder)
    with BundleWriter(tmp_path / "copy") as writer:
        for entry in source.manifest.required_files():
            assert writer.add(source.path(entry), entry.path) == entry
        copy = writer.finish(source.manifest)
    assert copy.manifest == source.manifest
    assert json.loads((folder / "bundle.json").read_text()) == json.loads((copy.folder / "bundle.json").read_text())
