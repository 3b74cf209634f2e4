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
from pathlib import Path

from julia1 import settings
from julia1.bundle.files import LOCK_FILE, hash_file, locked, partial_name, reason, sync, write_whole
from julia1.bundle.manifest import MANIFEST_FILE, Manifest
from julia1.bundle.places import (
    ALIASES_FILE,
    PRODUCTION,
    Located,
    names_of,
    nearest,
    read_aliases,
    require_name,
    resolve,
    version_key,
    versions_of,
)
from julia1.bundle.reader import Bundle
from julia1.bundle.runs import RUN_FILE, Run, content_hash, read_run
from julia1.bundle.versions import fill, has_content, require_run, require_whole
from julia1.errors import BundleError, InputError, VerificationError


@dataclass(frozen=True)
class Entry:
    """A version as a list shows it.

    Attributes:
        place: name, version and folder.
        aliases: that point to it, sorted.
        run: what is known of it; ``None`` when ``run.json`` is broken.
        problem: why ``run.json`` or ``aliases.json`` is broken, else empty.
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
        home = self.folder / require_name("name", name)
        self._require_no_alias(home, require_name("version", version))
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
        if home.exists() and not home.is_dir():
            raise self._unwritable(f"{home} is not a folder")
        for place, needed in ((self.folder, os.W_OK | os.X_OK), (home, os.W_OK | os.X_OK), (home / LOCK_FILE, os.W_OK)):
            if place.exists() and not os.access(place, needed):
                raise self._unwritable(f"you may not write {place}")

    def add(self, place: str | Path, version: str | None = None, *, once: bool = False) -> Stored:
        """Keep a copy of a bundle.

        A version is never overwritten. When it is taken by another model, VERSION.2 is given, or .3 and so on, and the
        stored ``bundle.json`` and card say so. The same content is not stored twice under one version; two bundles that
        differ only in when, where and how long they were trained are the same.

        Args:
            place: of the bundle.
            version: to store it as, instead of the bundle's own.
            once: not to store it when any version of the name has the same content, for a version that nobody chose.

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
        require_whole(bundle.source)
        home = self.folder / name
        with self._writing():
            home.mkdir(parents=True, exist_ok=True)
            with locked(home):
                chosen, known = self._free(home, manifest, wanted, once)
                target = home / chosen
                if known:
                    require_run(target)
                else:
                    staged = home / partial_name(chosen)
                    try:
                        staged.mkdir()
                        fill(staged, bundle, chosen)
                        staged.rename(target)
                    finally:
                        shutil.rmtree(staged, ignore_errors=True)
                    sync(home)
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
        require_name("alias", alias)
        home = self._exact(reference).folder.parent
        with self._writing(), locked(home):
            place = self._exact(reference)  # it may have been deleted, or the alias promoted, while we waited
            if alias in versions_of(home):
                raise InputError(f"{place.name} has a version {alias!r}: give the alias another name")
            require_whole(place.folder)
            if hash_file(place.folder / MANIFEST_FILE) != self.run(place).bundle_sha256:
                raise VerificationError(
                    f"{place.folder / MANIFEST_FILE} is not the one that was added: delete {place} and add it again"
                )
            aliases = read_aliases(home)
            replaced = aliases.get(alias)
            _write_aliases(home, {**aliases, alias: place.version})
        return place, replaced

    def unalias(self, name: str, alias: str = PRODUCTION) -> str:
        """Take an alias away; returns the version that it pointed to, which stays.

        Raises:
            InputError: no such name or alias.
            BundleError: ``aliases.json`` is broken, or the registry cannot be written.
        """
        home = self.folder / require_name("name", name)
        require_name("alias", alias)
        if not versions_of(home) and not read_aliases(home):
            resolve(self.folder, name)  # says which names there are
        with self._writing(), locked(home):
            aliases = read_aliases(home)
            if alias not in aliases:
                raise InputError(
                    f"in the registry {self.folder}, {name} has no alias {alias!r}; {nearest(alias, sorted(aliases))}"
                )
            version = aliases.pop(alias)
            _write_aliases(home, aliases)
        return version

    def delete(self, reference: str, *, force: bool = False) -> tuple[str, ...]:
        """Delete a version; returns the aliases that pointed to it and are gone with it.

        Args:
            reference: NAME@VERSION; an alias is not taken, so that nothing else than what was meant is deleted.
            force: delete it even though an alias points to it, or ``aliases.json`` is broken so that nobody can tell.

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
            try:
                aliases = read_aliases(home)
            except BundleError as error:
                if not force:
                    raise BundleError(f"{error}; or force it") from None
                aliases = {}
            gone = tuple(sorted(alias for alias, version in aliases.items() if version == place.version))
            if gone and not force:
                raise InputError(f"{place} is {', '.join(gone)}: promote another version first, or force it")
            doomed = home / partial_name(place.version)
            place.folder.rename(doomed)  # first: an alias that is left behind says so, one that is lost does not
            if gone:
                try:
                    _write_aliases(home, {alias: version for alias, version in aliases.items() if alias not in gone})
                except OSError:
                    doomed.rename(place.folder)
                    raise
            sync(home)
            shutil.rmtree(doomed, ignore_errors=True)
        return gone

    def prune(self, name: str, keep: int) -> tuple[Located, ...]:
        """Delete all but the versions that came last and those that an alias points to; returns what is gone.

        A version whose ``run.json`` is broken stays too: nobody can tell when it came.

        Args:
            name: of the model.
            keep: how many of the last to keep, at least 1; one that an alias points to counts where it is among them.

        Raises:
            InputError: no such name.
            BundleError: ``aliases.json`` is broken, or the registry cannot be written.
        """
        if keep < 1:
            raise InputError(f"keep is {keep}: keep at least 1 version, or delete them by their names")
        self.entries(name)  # says which names there are
        home = self.folder / name
        doomed: list[tuple[Located, Path]] = []
        with self._writing(), locked(home):
            used = set(read_aliases(home).values())
            dated = [entry.place for entry in self.entries(name) if entry.run is not None]
            for place in dated[:-keep]:
                if place.version not in used:
                    hidden = home / partial_name(place.version)
                    place.folder.rename(hidden)
                    doomed.append((place, hidden))
            sync(home)
            for _, hidden in doomed:
                shutil.rmtree(hidden, ignore_errors=True)
        return tuple(place for place, _ in doomed)

    def _entry(self, place: Located) -> Entry:
        aliases: tuple[str, ...] = ()
        run, problems = None, []
        try:
            aliases = self.aliases(place)
        except BundleError as error:
            problems.append(str(error))
        try:
            run = read_run(place.folder)
        except BundleError as error:
            problems.append(str(error))
        return Entry(place, aliases, run, "; ".join(problems))

    def _exact(self, reference: str) -> Located:
        if "@" not in reference:
            raise InputError(f"{reference!r} names no version: write NAME@VERSION")
        return resolve(self.folder, reference)

    def _free(self, home: Path, manifest: Manifest, wanted: str, once: bool) -> tuple[str, bool]:
        """The version to store a manifest as, and whether the same content stands there already."""
        content = content_hash(manifest)
        if once:
            for version in versions_of(home):
                if has_content(home / version, content):
                    return version, True
        number = 1
        while True:
            version = require_name("version", wanted if number == 1 else f"{wanted}.{number}")
            self._require_no_alias(home, version)
            if not (home / version).exists():
                return version, False
            if has_content(home / version, content):
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


def _write_aliases(home: Path, aliases: dict[str, str]) -> None:
    write_whole(home / ALIASES_FILE, json.dumps(dict(sorted(aliases.items())), indent=2) + "\n")
