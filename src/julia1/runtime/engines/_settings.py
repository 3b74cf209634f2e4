"""Checks of the settings that an engine is opened with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from julia1.errors import InputError


def checked_settings(
    engine: str, settings: Mapping[str, Any] | None, known: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The settings, each with one of the values that are known for it.

    Raises:
        InputError: another name or value.
    """
    for name, value in (settings or {}).items():
        if name not in known:
            raise InputError(f"{engine} has no setting {name!r}; it has: {', '.join(known)}")
        if value not in known[name]:
            raise InputError(f"the setting {name!r} of {engine} is {value!r}: take one of {', '.join(known[name])}")
    return dict(settings or {})
