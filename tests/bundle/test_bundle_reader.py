"""Opening a bundle: what is wrong with a file is found and told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_samples import LFS_POINTER

from julia1.bundle import Bundle, verify_bundle
from julia1.errors import BundleError


def flip_a_byte(place: Path) -> None:
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)


def truncate(place: Path) -> None:
    os.truncate(place, place.stat().st_size - 1)


def grow(place: Path) -> None:
    place.write_bytes(place.read_bytes() + b"x")


def make_pointer(place: Path) -> None:
    place.write_text(LFS_POINTER)


def make_folder(place: Path) -> None:
    place.unlink()
    place.mkdir()


def link_outside(place: Path) -> None:
    outside = place.parents[1] / "outside"
    place.rename(outside)
    place.symlink_to(outside)


def loop(place: Path) -> None:
    place.unlink()
    place.symlink_to(place.name)


FAULTS_SEEN_AT_ONCE = [
    (Path.unlink, "is missing"),
    (truncate, "is truncated: it has 4,095 bytes instead of 4,096"),
    (grow, "is changed: it has 4,097 bytes"),
    (make_pointer, "is a git-LFS pointer.*git lfs pull"),
    (make_folder, "is not a file"),
    (link_outside, "a symbolic link to a file outside the bundle"),
    (loop, "weights.bin"),
]


def test_a_folder_opens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    bundle = Bundle.open("small")
    monkeypatch.chdir("/")
    assert bundle.folder == bundle.source == folder.resolve()
    assert bundle.manifest.name == "julia1-small"
    int8 = bundle.variant("int8")
    bundle.check_variant(int8)
    assert bundle.path(int8.files[0]).read_text() == "small graph"


def test_an_unknown_variant_is_answered_with_the_known_ones(folder: Path) -> None:
    with pytest.raises(BundleError, match="no variant 'int4'; it has: fp32, int8"):
        Bundle.open(folder).variant("int4")


@pytest.mark.parametrize(("fault", "message"), FAULTS_SEEN_AT_ONCE)
def test_a_wrong_file_is_found_on_opening(folder: Path, fault: Callable[[Path], None], message: str) -> None:
    fault(folder / "weights.bin")
    with pytest.raises(BundleError, match=message):
        Bundle.open(folder, verify=False)


def test_a_changed_byte_in_the_tokenizer_is_found_on_opening(folder: Path) -> None:
    flip_a_byte(folder / "tokenizer.json")
    with pytest.raises(BundleError, match=r"tokenizer\.json is changed: its SHA-256 is not"):
        Bundle.open(folder)
    Bundle.open(folder, verify=False)


def test_a_changed_byte_in_the_weights_is_found_before_they_are_loaded(folder: Path) -> None:
    flip_a_byte(folder / "weights.bin")
    bundle = Bundle.open(folder)
    with pytest.raises(BundleError, match=r"weights\.bin is changed: its SHA-256"):
        bundle.check_variant(bundle.variant("int8"))


def test_a_link_within_the_bundle_is_followed(folder: Path) -> None:
    (folder / "weights.bin").rename(folder / "real.bin")
    (folder / "weights.bin").symlink_to("real.bin")
    bundle = Bundle.open(folder)
    bundle.check_variant(bundle.variant("int8"))


def test_a_folder_behind_a_link_opens(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert Bundle.open(link).folder == folder.resolve()


def test_the_checkpoint_may_be_left_out(folder: Path) -> None:
    bundle = Bundle.open(folder)
    assert [bundle.path(entry).read_text() for entry in bundle.check_checkpoint()] == ["tensors"]
    (folder / "checkpoint" / "model.safetensors").unlink()
    bundle = Bundle.open(folder)
    assert {check.entry.path: check.status for check in bundle.verify()}["checkpoint/model.safetensors"] == "left out"
    with pytest.raises(BundleError, match="comes without its checkpoint"):
        bundle.check_checkpoint()


def test_a_checkpoint_that_is_there_must_be_right(folder: Path) -> None:
    truncate(folder / "checkpoint" / "model.safetensors")
    with pytest.raises(BundleError, match="truncated"):
        Bundle.open(folder)


def test_verify_reports_every_file(folder: Path) -> None:
    assert {check.status for check in verify_bundle(folder)} == {"ok"}
    flip_a_byte(folder / "weights.bin")
    (folder / "card.md").unlink()
    link_outside(folder / "model.onnx")
    wrong = {check.entry.path: check.problem for check in verify_bundle(folder) if check.status == "wrong"}
    assert set(wrong) == {"weights.bin", "card.md", "model.onnx"}
    assert "is missing" in wrong["card.md"]


def test_a_place_without_a_bundle_is_told(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no bundle at"):
        Bundle.open(tmp_path / "nowhere")
    with pytest.raises(BundleError, match=r"is not a bundle: it has no bundle\.json"):
        Bundle.open(tmp_path)
    with pytest.raises(BundleError, match="cannot open the bundle"):
        Bundle.open("a\x00b")


@pytest.mark.parametrize(
    ("fault", "message"),
    [(truncate, "is not JSON, or is truncated"), (make_pointer, "git-LFS"), (link_outside, "outside the bundle")],
)
def test_a_damaged_manifest_is_told(folder: Path, fault: Callable[[Path], None], message: str) -> None:
    place = folder / "bundle.json"
    place.write_text(place.read_text().rstrip())
    fault(place)
    with pytest.raises(BundleError, match=message):
        Bundle.open(folder)


@pytest.mark.parametrize("path", ["../x", "/etc/hostname", "a\\b"])
def test_a_manifest_that_points_outside_is_refused(folder: Path, path: str) -> None:
    data = json.loads((folder / "bundle.json").read_text())
    data["tokenizer"]["path"] = path
    (folder / "bundle.json").write_text(json.dumps(data))
    with pytest.raises(BundleError, match=r"tokenizer\.path: the path"):
        Bundle.open(folder)
