"""Writes a bundle: in a hidden folder beside its place, renamed when it is whole."""

from __future__ import annotations

import shutil
from dataclasses import replace as changed
from pathlib import Path
from types import TracebackType

from julia1.bundle.card import render_card
from julia1.bundle.files import hash_file, inside, is_lfs_pointer, partial_name, path_problem, reason, sync
from julia1.bundle.manifest import CARD_FILE, MANIFEST_FILE, FileEntry, Manifest, read_manifest
from julia1.bundle.reader import Bundle
from julia1.errors import BundleError


class BundleWriter:
    """Writes one bundle; on any error nothing is left, and what stood there before still stands.

    Example::

        with BundleWriter(Path("julia1-small")) as writer:
            tokenizer = writer.add(run / "tokenizer.json", "tokenizer.json")
            export(model, writer.folder / "model.onnx")
            graph = writer.add(writer.folder / "model.onnx", "model.onnx")
            bundle = writer.finish(Manifest(..., tokenizer=tokenizer, variants=(Variant(..., files=(graph,)),)))

    Args:
        target: the bundle's folder.
        replace: whether a bundle that stands at ``target`` may be replaced. Anything else there is kept, and so is a
            bundle's folder that holds files which are not the bundle's.

    Attributes:
        target: absolute folder of the finished bundle.
        folder: where the files are until then; a file may be written here straight away, and then added.

    Raises:
        BundleError: ``target`` is in the way, or cannot be written.
    """

    def __init__(self, target: str | Path, *, replace: bool = False) -> None:
        self.target = Path(target).resolve()
        self.folder = self.target.with_name(partial_name(self.target.name))
        self._replace = replace
        self._added: dict[str, FileEntry] = {}
        self._finished = False

    def __enter__(self) -> BundleWriter:
        self._check_target()
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise BundleError(f"cannot write in {self.folder.parent}: {reason(error)}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is None and not self._finished:
            raise BundleError(f"{self.target} was not written: finish() was not called")

    def add(self, source: str | Path, path: str) -> FileEntry:
        """Copy a file into the bundle as ``path``, or take it as it is when it stands there already; and hash it.

        Raises:
            BundleError: the path is unsafe or taken, or the source is missing, a git-LFS pointer or unreadable.
        """
        source, place = Path(source), self._place(path)
        try:
            if is_lfs_pointer(source):
                raise BundleError(f"{source} is a git-LFS pointer, not the file itself: run  git lfs pull  first")
            if not (place.exists() and place.samefile(source)):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)
        except (OSError, shutil.Error) as error:
            said = reason(error) if isinstance(error, OSError) else str(error)
            raise BundleError(f"cannot take {source} into the bundle: {said}") from None
        return self._entry(place, path)

    def add_text(self, content: str, path: str) -> FileEntry:
        """Write a UTF-8 text file into the bundle as ``path``; raises as ``add`` does."""
        place = self._place(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode("utf-8"))  # bytes: no other line ends on Windows
        except (OSError, UnicodeEncodeError) as error:
            raise BundleError(f"cannot write {path!r} into the bundle: {error}") from None
        return self._entry(place, path)

    def finish(self, manifest: Manifest) -> Bundle:
        """Write the manifest, and a card when it names none, and put the bundle in its place.

        Raises:
            BundleError: the manifest is wrong, names a required file that was not added, or leaves an added one out;
                or ``target`` came in the way meanwhile.
        """
        if manifest.card is None:
            manifest = changed(manifest, card=self.add_text(render_card(manifest), CARD_FILE))
        content = manifest.to_json()
        self._check_files(manifest)
        self._check_target()
        try:
            # Written last: a folder without it is no bundle.
            (self.folder / MANIFEST_FILE).write_bytes(content.encode("utf-8"))
            for place in sorted(self.folder.rglob("*"), reverse=True):
                sync(place)
            sync(self.folder)
            self._put_in_place()
        except OSError as error:
            raise BundleError(f"cannot write {self.target}: {reason(error)}") from None
        self._finished = True
        return Bundle.open(self.target)

    def _place(self, path: str) -> Path:
        problem = path_problem(path)
        if problem is None and path.casefold() in (MANIFEST_FILE, *(taken.casefold() for taken in self._added)):
            problem = "is taken"
        if problem is not None:
            raise BundleError(f"cannot add a file to the bundle: the path {path!r} {problem}")
        return inside(self.folder, path)

    def _entry(self, place: Path, path: str) -> FileEntry:
        place.chmod(0o644)  # some libraries write for the owner alone; an installed bundle is read by others
        entry = FileEntry(path, hash_file(place), place.stat().st_size)
        self._added[path] = entry
        return entry

    def _check_files(self, manifest: Manifest) -> None:
        named = {entry.path: entry for entry in manifest.all_files()}
        for entry in manifest.required_files():
            if entry.path not in self._added:
                raise BundleError(f"the manifest names {entry.path!r}, which was not added to the bundle")
        for path, entry in self._added.items():
            if path not in named:
                raise BundleError(f"{path!r} was added to the bundle and the manifest does not name it")
            if named[path] != entry or (self.folder / path).stat().st_size != entry.bytes:
                raise BundleError(f"{path!r} in the manifest is not the file that was added to the bundle")
        strays = _strays(self.folder, self._added)
        if strays:
            raise BundleError(f"{strays[0]!r} was written into the bundle and not added to it")

    def _check_target(self) -> None:
        if not self.target.exists():
            return
        if not self._replace:
            raise BundleError(f"{self.target} exists: choose another place, or ask to replace it")
        if not (self.target / MANIFEST_FILE).is_file():
            raise BundleError(f"{self.target} exists and is not a bundle, so it is not replaced: choose another place")
        manifest = read_manifest(self.target)
        strays = _strays(self.target, {MANIFEST_FILE, *(entry.path for entry in manifest.all_files())})
        if strays:
            raise BundleError(
                f"{self.target} holds {strays[0]!r}, which is not of the bundle and would be lost: move it away first"
            )

    def _put_in_place(self) -> None:
        """Rename the finished folder. A folder cannot be swapped in one step everywhere: for a moment there is none."""
        if not self.target.exists():
            self.folder.rename(self.target)
        else:
            old = self.target.with_name(partial_name(self.target.name))
            self.target.rename(old)
            try:
                self.folder.rename(self.target)
            except BaseException:
                old.rename(self.target)
                raise
            shutil.rmtree(old, ignore_errors=True)
        sync(self.target.parent)


def _strays(folder: Path, known: set[str] | dict[str, FileEntry]) -> list[str]:
    """Paths of the files in a folder that are not known, sorted."""
    found = (place for place in folder.rglob("*") if place.is_symlink() or not place.is_dir())
    return sorted(path for path in (place.relative_to(folder).as_posix() for place in found) if path not in known)
