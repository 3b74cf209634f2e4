"""Environment variables, all read here and nowhere else.

    =============== ======================================================= ======================================
    Variable        What it sets                                            When it is not set
    =============== ======================================================= ======================================
    JULIA1_CACHE    folder for what can be made again: unpacked bundles     ``$XDG_CACHE_HOME/julia1``, or
                                                                            ``~/.cache/julia1``
    JULIA1_REGISTRY folder of the version registry                          ``$XDG_DATA_HOME/julia1/registry``, or
                                                                            ``~/.local/share/julia1/registry``
    JULIA1_MODEL    bundle to load when none is named: folder, zip or       the one that ships with julia1
                    NAME@VERSION of the registry
    JULIA1_VARIANT  variant to run                                          the one that suits the CPU
    JULIA1_ENGINE   engine to run it on                                     the one that the variant is made for
    JULIA1_THREADS  threads of the engine, or ``share`` for 75 % of them    the physical cores it may use, 8 at most
    =============== ======================================================= ======================================

A variable that is empty counts as not set. Variables are read at each call, so a change takes effect at once.
"""

from __future__ import annotations

import os
from pathlib import Path

from julia1.errors import InputError


def cache_folder() -> Path:
    """The cache folder, absolute; it need not exist yet.

    Raises:
        InputError: no variable names it and the user has no home folder.
    """
    return _folder("JULIA1_CACHE", "XDG_CACHE_HOME", ".cache", "julia1", "a cache")


def registry_folder() -> Path:
    """The folder of the version registry, absolute; it need not exist yet.

    Raises:
        InputError: no variable names it and the user has no home folder.
    """
    return _folder("JULIA1_REGISTRY", "XDG_DATA_HOME", ".local/share", "julia1/registry", "a registry")


def names_registry() -> bool:
    """Whether the user chose the registry's folder."""
    return bool(os.environ.get("JULIA1_REGISTRY"))


def bundled_models() -> Path:
    """The folder of the bundles that ship with julia1."""
    return Path(__file__).parent / "assets"


def model_path() -> Path:
    """The bundle to load when the caller names none; it need not exist."""
    own = os.environ.get("JULIA1_MODEL", "")
    try:
        return Path(own).expanduser() if own else bundled_models() / "julia1-open-small"
    except RuntimeError:
        raise InputError(
            f"JULIA1_MODEL is {own!r}, and there is no such user's home folder: write the path out"
        ) from None


def variant() -> str | None:
    """The variant to run when the caller names none; ``None`` leaves it to the choice by CPU."""
    return os.environ.get("JULIA1_VARIANT") or None


def engine() -> str | None:
    """The engine to run on when the caller names none; ``None`` leaves it to the variant."""
    return os.environ.get("JULIA1_ENGINE") or None


def threads() -> int | str | None:
    """Threads of the engine when the caller names none, or ``share``; ``None`` leaves it to the CPU.

    Raises:
        InputError: the variable is neither a whole number of at least 1 nor ``share``.
    """
    own = os.environ.get("JULIA1_THREADS", "")
    if not own or own == "share":
        return own or None
    if not (own.isascii() and own.isdigit()) or int(own) < 1:
        raise InputError(f"JULIA1_THREADS is {own!r}: give a whole number of at least 1, or 'share', or leave it out")
    return int(own)


def tunes_malloc() -> bool:
    """Whether the user set how glibc's allocator works, by variables of its own."""
    return bool(os.environ.get("MALLOC_MMAP_THRESHOLD_") or "malloc" in os.environ.get("GLIBC_TUNABLES", ""))


def _folder(own: str, shared: str, at_home: str, name: str, purpose: str) -> Path:
    """The folder that the variable ``own`` names, else ``name`` below that of ``shared``, else below the user's."""
    chosen, common = os.environ.get(own, ""), os.environ.get(shared, "")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        if common and Path(common).is_absolute():  # the XDG standard says to ignore a relative one
            return Path(common) / name
        return Path.home() / at_home / name
    except RuntimeError:
        raise InputError(f"there is no home folder to keep {purpose} in: set {own} to a writable folder") from None
