"""The version registry: a folder that keeps each run's weights, tokenizer, config, data hash and metrics together.

    REGISTRY/NAME/VERSION/      a whole bundle, and run.json, which is written from its manifest
    REGISTRY/NAME/aliases.json  alias to version, such as production

A version is put together under a hidden name and renamed when it is whole; it is never changed after that. What writes
below NAME holds its lock; reading needs none. A hidden folder that a killed process left may be deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import datetime, timezone
from pathlib import Path

from julia1 import settings
from julia1.bundle.card import version_sentence
from julia1.bundle.files import hash_file, locked, partial_name, reason, sync, write_whole
from julia1.bundle.manifest import MANIFEST_FILE, FileEntry, Manifest, read_manifest
from julia1.bundle.places import (
    ALIASES_FILE,
    PRODUCTION,
    Located,
    names_of,
    read_aliases,
    require_name,
    resolve,
    version_key,
    versions_of,
)
from julia1.bundle.reader import Bundle, verify_bundle
from julia1.bundle.runs import RUN_FILE, Run, content_hash, read_run
from julia1.errors import BundleError, InputError, VerificationError


@dataclass(frozen=True)
class Entry:
    """A version as a list shows it.

    Attributes:
        place: name, version and folder.
        aliases: that point to it, sorted.
        run: what is known of it; ``None`` when ``run.json`` is broken.
        problem: why it is broken, else empty.
    """

    place: Located
    aliases: tuple[str, ...]
    run: Run | None
    problem: str = ""


@dataclass(frozen=True)
class Stored:
    """Where a bundle lies after it was added.

    Attributes:
        place: name, version and folder.
        wanted: the version that was asked for, which another model may have had already.
        new: False when the registry had the same content.
    """

    place: Located
    wanted: str
    new: bool


class Registry:
    """The registry in a folder.

    Args:
        folder: that of JULIA1_REGISTRY, or its default, when ``None``; it need not exist.

    Attributes:
        folder: absolute.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = settings.registry_folder() if folder is None else Path(folder).absolute()

    def names(self) -> list[str]:
        """Every name that has a version, sorted."""
        return names_of(self.folder)

    def entries(self, name: str) -> list[Entry]:
        """Every version of a name, in the order in which they were added; broken ones first.

        Raises:
            InputError: there is no such name.
            BundleError: ``aliases.json`` is broken.
        """
        home = self.folder / require_name("name", name)
        versions = versions_of(home)
        if not versions:
            resolve(self.folder, name)  # says which names there are
        found = [self._entry(Located(name, version, home / version)) for version in versions]
        return sorted(found, key=lambda entry: (entry.run.added if entry.run else "", version_key(entry.place.version)))

    def find(self, reference: str) -> Located:
        """What NAME@VERSION, NAME@ALIAS or NAME means; raises as ``resolve`` does."""
        return resolve(self.folder, reference)

    def run(self, place: Located) -> Run:
        """What is known of a version; raises ``BundleError`` when its ``run.json`` is broken."""
        return read_run(place.folder)

    def aliases(self, place: Located) -> tuple[str, ...]:
        """The aliases that point to a version, sorted."""
        aliases = read_aliases(place.folder.parent)
        return tuple(sorted(alias for alias, version in aliases.items() if version == place.version))

    def require_room(self, name: str, version: str) -> None:
        """Raise now for what would keep a bundle of this name and version out of the registry.

        Raises:
            InputError: a name or version that cannot stand in it, or that is an alias.
            BundleError: the folder cannot be written, or ``aliases.json`` is broken.
        """
        self._require_no_alias(self.folder / require_name("name", name), require_name("version", version))
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise self._unwritable("you may not write there")

    def add(self, place: str | Path, version: str | None = None) -> Stored:
        """Keep a bundle: its files are linked to where the file system allows it, else copied.

        A version is never overwritten. When it is taken by another model, VERSION.2 is given, or .3 and so on, and the
        stored ``bundle.json`` and card say so. The same content is not stored twice under one version; two bundles that
        differ only in when, where and how long they were trained are the same.

        Args:
            place: of the bundle.
            version: to store it as, instead of the bundle's own.

        Raises:
            InputError: a name or version that cannot stand in the registry.
            VerificationError: a file of the bundle is not what its manifest says.
            BundleError: there is no bundle, or the registry cannot be written.
        """
        bundle = Bundle.open(place)
        manifest = bundle.manifest
        name, wanted = require_name("name", manifest.name), require_name("version", version or manifest.version)
        if any(entry.path.casefold() == RUN_FILE for entry in manifest.all_files()):
            raise InputError(
                f"{bundle.source} has a file {RUN_FILE!r}, which the registry writes: give it another name"
            )
        _require_whole(bundle.source)
        home = self.folder / name
        staged = home / partial_name(wanted)
        with self._writing():
            try:
                staged.mkdir(parents=True)
                _take_files(bundle, staged)
                with locked(home):
                    chosen, known = self._free(home, manifest, wanted)
                    target = home / chosen
                    if known:
                        with contextlib.suppress(BundleError):
                            read_run(target)
                            return Stored(Located(name, chosen, target), wanted, new=False)
                        _write_run(target)
                    else:
                        _finish(bundle, staged, chosen)
                        staged.rename(target)
                        sync(home)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
        return Stored(Located(name, chosen, target), wanted, new=not known)

    def promote(self, reference: str, alias: str = PRODUCTION) -> tuple[Located, str | None]:
        """Have an alias point to a version; returns the version, and which one the alias pointed to before.

        Args:
            reference: NAME@VERSION or NAME@ALIAS.
            alias: to set.

        Raises:
            InputError: no such version, or an alias that cannot be one.
            VerificationError: a file of the version is not the one that was added.
            BundleError: a broken ``run.json`` or ``aliases.json``, or the registry cannot be written.
        """
        place = self._exact(reference)
        home = place.folder.parent
        if require_name("alias", alias) in versions_of(home):
            raise InputError(f"{place.name} has a version {alias!r}: give the alias another name")
        with self._writing(), locked(home):
            place = resolve(self.folder, str(place))  # it may have been deleted while we waited
            _require_whole(place.folder)
            if hash_file(place.folder / MANIFEST_FILE) != self.run(place).bundle_sha256:
                raise VerificationError(
                    f"{place.folder / MANIFEST_FILE} is not the one that was added: delete {place} and add it again"
                )
            aliases = read_aliases(home)
            replaced = aliases.get(alias)
            _write_aliases(home, {**aliases, alias: place.version})
        return place, replaced

    def delete(self, reference: str, *, force: bool = False) -> tuple[str, ...]:
        """Delete a version; returns the aliases that pointed to it and are gone with it.

        Args:
            reference: NAME@VERSION; an alias is not taken, so that nothing else than what was meant is deleted.
            force: delete it even though an alias points to it.

        Raises:
            InputError: no such version, or an alias points to it.
            BundleError: ``aliases.json`` is broken, or the registry cannot be written.
        """
        place = self._exact(reference)
        if str(place) != reference:
            raise InputError(f"{reference} is an alias: to delete its version, say {place}")
        home = place.folder.parent
        with self._writing(), locked(home):
            place = resolve(self.folder, reference)
            gone = self.aliases(place)
            if gone and not force:
                raise InputError(f"{place} is {', '.join(gone)}: promote another version first, or force it")
            if gone:
                aliases = read_aliases(home)
                _write_aliases(home, {alias: version for alias, version in aliases.items() if alias not in gone})
            doomed = home / partial_name(place.version)
            place.folder.rename(doomed)
            sync(home)
            shutil.rmtree(doomed, ignore_errors=True)
        return gone

    def _entry(self, place: Located) -> Entry:
        aliases = self.aliases(place)
        try:
            return Entry(place, aliases, read_run(place.folder))
        except BundleError as error:
            return Entry(place, aliases, None, str(error))

    def _exact(self, reference: str) -> Located:
        if "@" not in reference:
            raise InputError(f"{reference!r} names no version: write NAME@VERSION")
        return resolve(self.folder, reference)

    def _free(self, home: Path, manifest: Manifest, wanted: str) -> tuple[str, bool]:
        """The version to store a manifest as, and whether the same content stands there already."""
        content = content_hash(manifest)
        number = 1
        while True:
            version = require_name("version", wanted if number == 1 else f"{wanted}.{number}")
            self._require_no_alias(home, version)
            if not (home / version).exists():
                return version, False
            with contextlib.suppress(BundleError):  # one that is broken is another one
                if content_hash(read_manifest(home / version)) == content:
                    return version, True
            number += 1

    def _require_no_alias(self, home: Path, version: str) -> None:
        if version in read_aliases(home):
            raise InputError(f"{home.name} has an alias {version!r}, so no version can be called that: choose another")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritable(reason(error)) from None

    def _unwritable(self, why: str) -> BundleError:
        return BundleError(f"cannot write in the registry {self.folder}: {why}; JULIA1_REGISTRY names another folder")


def _require_whole(source: Path) -> None:
    try:
        wrong = [check.problem for check in verify_bundle(source) if check.status == "wrong"]
    except BundleError as error:
        wrong = [str(error)]
    if wrong:
        raise VerificationError(wrong[0])


def _take_files(bundle: Bundle, staged: Path) -> None:
    """Link or copy every file that is there; a checkpoint may have been left out."""
    for entry in bundle.manifest.all_files():
        source, place = bundle.path(entry), staged / entry.path
        if source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                place.hardlink_to(source.resolve())
            except OSError:  # another file system, or one without hard links
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
                write_whole(place, new)  # under a new name first: what stands there may be a link
                card = FileEntry(manifest.card.path, hash_file(place), place.stat().st_size)
                named = changed(named, card=card)
        write_whole(staged / MANIFEST_FILE, named.to_json())
    _write_run(staged)
    for place in sorted(staged.rglob("*"), reverse=True):
        sync(place)
    sync(staged)


def _write_run(folder: Path) -> None:
    added = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_whole(folder / RUN_FILE, Run.of(read_manifest(folder), hash_file(folder / MANIFEST_FILE), added).to_json())


def _write_aliases(home: Path, aliases: dict[str, str]) -> None:
    write_whole(home / ALIASES_FILE, json.dumps(dict(sorted(aliases.items())), indent=2) + "\n")
