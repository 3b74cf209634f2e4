"""The folder of a version in the registry: a whole bundle, and ``run.json``, which is written from its manifest."""

from __future__ import annotations

import shutil
from dataclasses import replace as changed
from datetime import datetime, timezone
from pathlib import Path

from julia1.bundle.card import version_sentence
from julia1.bundle.files import hash_file, sync, write_whole
from julia1.bundle.manifest import MANIFEST_FILE, FileEntry, read_manifest
from julia1.bundle.reader import Bundle, verify_bundle
from julia1.bundle.runs import RUN_FILE, Run, content_hash, read_run
from julia1.errors import BundleError, VerificationError


def require_whole(source: Path) -> None:
    """Raise ``VerificationError`` for the first file that is not what the manifest says."""
    try:
        wrong = [check.problem for check in verify_bundle(source) if check.status == "wrong"]
    except BundleError as error:
        wrong = [str(error)]
    if wrong:
        raise VerificationError(wrong[0])


def has_content(folder: Path, content: str) -> bool:
    """Whether a version has this content; one that is broken is another one."""
    try:
        return content_hash(read_manifest(folder)) == content
    except BundleError:
        return False


def fill(folder: Path, bundle: Bundle, version: str) -> None:
    """Copy a bundle into an empty folder as this version, with its ``run.json``, and have the disk hold it all.

    Raises:
        OSError: the folder cannot be written.
    """
    _copy_files(bundle, folder)
    _finish(bundle, folder, version)


def _copy_files(bundle: Bundle, staged: Path) -> None:
    """Copy every file that is there; a checkpoint may have been left out.

    No links: what is written into the run's folder would change the version too, and onnx reads no weights from a file
    with a second link.
    """
    for entry in bundle.manifest.all_files():
        source, place = bundle.path(entry), staged / entry.path
        if source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)


def _finish(bundle: Bundle, staged: Path, version: str) -> None:
    """Write manifest and run, and have the disk hold it all."""
    manifest = bundle.manifest
    if version == manifest.version:
        shutil.copyfile(bundle.folder / MANIFEST_FILE, staged / MANIFEST_FILE)
    else:
        named = changed(manifest, version=version)
        if manifest.card is not None:
            place = staged / manifest.card.path
            old = place.read_text(encoding="utf-8", errors="surrogateescape")
            new = old.replace(version_sentence(manifest.version), version_sentence(version))
            if new != old:
                write_whole(place, new)
                card = FileEntry(manifest.card.path, hash_file(place), place.stat().st_size)
                named = changed(named, card=card)
        write_whole(staged / MANIFEST_FILE, named.to_json())
    _write_run(staged)
    for place in sorted(staged.rglob("*"), reverse=True):
        sync(place)
    sync(staged)


def require_run(folder: Path) -> None:
    """Write ``run.json`` anew where it is broken."""
    try:
        read_run(folder)
    except BundleError:
        _write_run(folder)


def _write_run(folder: Path) -> None:
    added = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_whole(folder / RUN_FILE, Run.of(read_manifest(folder), hash_file(folder / MANIFEST_FILE), added).to_json())
