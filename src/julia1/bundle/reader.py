"""Opens a bundle, a folder or a zip, and checks that its files are the ones its manifest describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from julia1.bundle.files import check_contents, inside, present
from julia1.bundle.manifest import FileEntry, Manifest, Variant, read_manifest
from julia1.bundle.places import find_bundle
from julia1.bundle.zip import unzip_bundle
from julia1.errors import BundleError


@dataclass(frozen=True)
class FileCheck:
    """What a check found out about one file.

    Attributes:
        entry: the file as the manifest describes it.
        status: ``ok``; ``left out`` for a checkpoint file that is not there, which is no fault; or ``wrong``.
        problem: what is wrong and what to do, else empty.
    """

    entry: FileEntry
    status: Literal["ok", "left out", "wrong"]
    problem: str = ""


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk.

    Attributes:
        folder: absolute folder of its files.
        manifest: what ``bundle.json`` says.
        source: what was opened: the folder itself, or the zip that was unpacked into it.
    """

    folder: Path
    manifest: Manifest
    source: Path

    @classmethod
    def open(cls, path: str | Path, verify: bool = True) -> Bundle:
        """Open a folder or a zip.

        Every file named must be there in its size, but for the checkpoint, which may be left out. Variants are hashed
        when one is chosen, by ``check_variant``.

        Args:
            path: a bundle's folder, or one zip of it, which is unpacked into the cache once; or, where no bundle is
                there, NAME@VERSION or NAME@ALIAS of the registry.
            verify: whether to hash the tokenizer.

        Raises:
            BundleError: it is missing, damaged, unsafe or of a newer format.
            InputError: the registry has nothing of that name, version or alias.
        """
        bundle = cls._found(Path(path))
        for entry in bundle.manifest.all_files():
            if not bundle._left_out(entry):
                bundle.check_file(entry, contents=False)
        if verify:
            bundle.check_file(bundle.manifest.tokenizer)
        return bundle

    def path(self, entry: FileEntry) -> Path:
        """Absolute path of a file; raises ``BundleError`` when it leads out of the bundle."""
        return inside(self.folder, entry.path)

    def variant(self, name: str) -> Variant:
        """The variant of that name; raises ``BundleError`` naming those there are."""
        for variant in self.manifest.variants:
            if variant.name == name:
                return variant
        known = ", ".join(variant.name for variant in self.manifest.variants) or "none"
        raise BundleError(f"{self.source} has no variant {name!r}; it has: {known}")

    def check_file(self, entry: FileEntry, contents: bool = True) -> None:
        """Check one file: its place, that it is a file and no git-LFS pointer, its size and, if asked, its SHA-256.

        Raises:
            BundleError: saying which of these is wrong and what to do.
        """
        sha256 = entry.sha256 if contents else None
        check_contents(self.path(entry), entry.bytes, sha256, self._remedy)

    def check_variant(self, variant: Variant) -> None:
        """Check every file of a variant, hashes included; raises ``BundleError`` for the first that is wrong."""
        for entry in variant.files:
            self.check_file(entry)

    def check_checkpoint(self) -> tuple[FileEntry, ...]:
        """Check every file of the checkpoint, hashes included, and return them.

        Raises:
            BundleError: the bundle has no checkpoint, it was left out here, or a file of it is wrong.
        """
        if self.manifest.checkpoint is None:
            raise BundleError(f"{self.source} has no checkpoint to train on from")
        for entry in self.manifest.checkpoint:
            if self._left_out(entry):
                raise BundleError(f"{self.source} comes without its checkpoint ({entry.path}): get the whole bundle")
            self.check_file(entry)
        return self.manifest.checkpoint

    def verify(self) -> list[FileCheck]:
        """Check every file, hashes included; one result a file, in the manifest's order."""
        entries = self.manifest.all_files()
        return [FileCheck(entry, "left out") if self._left_out(entry) else self._checked(entry) for entry in entries]

    def _checked(self, entry: FileEntry) -> FileCheck:
        try:
            self.check_file(entry)
        except BundleError as error:
            return FileCheck(entry, "wrong", str(error))
        return FileCheck(entry, "ok")

    def _left_out(self, entry: FileEntry) -> bool:
        return entry not in self.manifest.required_files() and not present(self.folder, entry.path)

    @property
    def _remedy(self) -> str:
        if self.source != self.folder:
            return f"delete the folder {self.folder} and open {self.source} again"
        return "copy or download the bundle again"

    @classmethod
    def _found(cls, path: Path) -> Bundle:
        """The bundle at ``path``, no file of it checked yet."""
        path = find_bundle(path)
        try:
            source = path.resolve()
            is_folder, is_file = source.is_dir(), source.is_file()
        except (OSError, RuntimeError, ValueError) as error:
            raise BundleError(f"cannot open the bundle {str(path)!r}: {error}") from None
        if not is_folder and not is_file:
            raise BundleError(f"there is no bundle at {path}: give the folder or zip of one")
        folder = source if is_folder else unzip_bundle(source).resolve()
        return cls(folder, read_manifest(folder), source)


def verify_bundle(path: str | Path) -> list[FileCheck]:
    """Check every file of the bundle at ``path``, hashes included, and report on all of them, wrong ones too.

    Raises:
        BundleError: there is no bundle, or its ``bundle.json`` or zip cannot be read.
    """
    return Bundle._found(Path(path)).verify()
