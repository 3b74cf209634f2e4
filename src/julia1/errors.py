"""Every error a user can meet.

    Julia1Error
    ├── InputError        a state, question, option, file or flag that cannot be used
    │   └── TooLongError  a text over its token limit where cutting is not allowed
    ├── BundleError       a bundle that is missing, damaged, unsafe or of another format
    ├── EngineError       no engine or variant can run the model on this machine
    ├── MissingExtraError an optional dependency is not installed
    ├── PackError         a box cannot be packed: no wheels, no network, no room
    ├── TrainingError     a training run cannot go on
    └── VerificationError a check ran and found the artifact wrong (hash, parity, guard)

Each message says what was wrong, with which value, and what to do about it.
"""

from __future__ import annotations


class Julia1Error(Exception):
    """Base class; catching it catches everything julia1 raises on purpose."""


class InputError(Julia1Error, ValueError):
    """A state, question, option, file or flag that cannot be used."""


class TooLongError(InputError):
    """A text is over its token limit and cutting it was not allowed."""


class BundleError(Julia1Error):
    """A bundle is missing, damaged, unsafe or written in a format this version cannot read."""


class EngineError(Julia1Error):
    """No engine or variant can run the model on this machine."""


class MissingExtraError(Julia1Error, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f'{package} is not installed: run  pip install "julia1[{extra}]"')


class PackError(Julia1Error):
    """A box cannot be packed: its wheels cannot be had, or it cannot be written."""


class TrainingError(Julia1Error):
    """A training run cannot go on."""


class VerificationError(Julia1Error):
    """A verification ran and failed: a hash, a parity limit, a guard."""
