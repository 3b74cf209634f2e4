"""What ``julia1 tune`` found for a bundle on a machine: kept in the cache, never in the bundle, read by ``load``.

A setting holds for one bundle, one CPU with the cores that this process may use, and one set of engine versions: each
gives another file name, so a setting of another machine on a shared home is never taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from julia1 import settings
from julia1.bundle import Bundle
from julia1.bundle.files import write_whole
from julia1.bundle.manifest import MANIFEST_FILE
from julia1.errors import InputError
from julia1.runtime.cpu import Cpu
from julia1.runtime.engines import ENGINES
from julia1.strict_json import strict_json


@dataclass(frozen=True)
class Tuned:
    """The best setting that was found.

    Attributes:
        variant, engine, threads, batch_tokens, length_step: as in ``julia1.runtime.plan.Plan``.
        goal: what it is best in: ``latency`` or ``throughput``.
        date: when it was measured, ISO 8601.
        measured: its figures, in any JSON form.
    """

    variant: str
    engine: str
    threads: int
    batch_tokens: int
    length_step: int
    goal: str
    date: str
    measured: Mapping[str, Any] = field(default_factory=dict)


def tuned_file(bundle: Bundle, cpu: Cpu) -> Path:
    """Where the setting for this bundle on this machine is kept.

    Raises:
        InputError: there is no cache folder.
    """
    engines = [f"{engine} {version}" for engine in ENGINES if (version := engine_version(engine))]
    machine = [cpu.architecture, cpu.name, *sorted(cpu.features), str(cpu.cores), *engines]
    digest = hashlib.sha256((bundle.folder / MANIFEST_FILE).read_bytes())
    digest.update("\n".join(machine).encode())
    return settings.cache_folder() / "tuned" / f"{bundle.manifest.name}-{digest.hexdigest()[:16]}.json"


def engine_version(engine: str) -> str:
    """The installed version of an engine's package; empty when it is missing."""
    from importlib import metadata  # 4 MB of memory, and only a tuned setting asks for versions

    try:
        return metadata.version(ENGINES[engine])
    except metadata.PackageNotFoundError:
        return ""


def read_tuned(bundle: Bundle, cpu: Cpu) -> tuple[Tuned | None, str]:
    """The setting for this bundle on this machine, if there is one, and what is wrong with it, if anything is."""
    try:
        if not (settings.cache_folder() / "tuned").is_dir():
            return None, ""
        place = tuned_file(bundle, cpu)
        text = place.read_text(encoding="utf-8")
    except (OSError, InputError):  # no cache, or nothing in it for this machine
        return None, ""
    try:
        data = strict_json(text)
        found = Tuned(**data)
        for name, kind in (("threads", int), ("batch_tokens", int), ("length_step", int)):
            value = getattr(found, name)
            if not isinstance(value, kind) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}")
        for name in ("variant", "engine", "goal", "date"):
            if not isinstance(getattr(found, name), str):
                raise ValueError(f"{name} is {getattr(found, name)!r}")
    except (TypeError, ValueError) as error:
        return None, f"not as tuned: {place} cannot be read ({error}), tune again"
    return found, ""


def write_tuned(bundle: Bundle, cpu: Cpu, tuned: Tuned) -> Path:
    """Keep a setting for this bundle on this machine, in place of an earlier one, and return its file.

    Raises:
        InputError: there is no cache folder, or it cannot be written to.
    """
    place = tuned_file(bundle, cpu)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, json.dumps(asdict(tuned), indent=2) + "\n")
    except OSError as error:
        raise InputError(
            f"cannot keep the setting in {place}: {error}; set JULIA1_CACHE to a writable folder"
        ) from None
    return place
