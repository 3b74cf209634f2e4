"""Environment variables, all read here and nowhere else.

    ============== ======================================================= =======================================
    Variable       What it sets                                            When it is not set
    ============== ======================================================= =======================================
    JULIA1_CACHE   folder for what can be made again: unpacked bundles     ``$XDG_CACHE_HOME/julia1``, or
                                                                           ``~/.cache/julia1``
    ============== ======================================================= =======================================

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
    own = os.environ.get("JULIA1_CACHE", "")
    shared = os.environ.get("XDG_CACHE_HOME", "")
    try:
        if own:
            return Path(own).expanduser().absolute()
        if shared and Path(shared).is_absolute():  # the XDG standard says to ignore a relative one
            return Path(shared) / "julia1"
        return Path.home() / ".cache" / "julia1"
    except RuntimeError:
        raise InputError("there is no home folder to keep a cache in: set JULIA1_CACHE to a writable folder") from None
