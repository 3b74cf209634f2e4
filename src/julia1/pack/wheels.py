"""Gets the pinned wheels of a box: from the package index by pip, or from a folder; only those whose hash fits."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from julia1.bundle.files import hash_file, reason
from julia1.errors import PackError, VerificationError
from julia1.pack.lock import Pin

_OFFLINE = re.compile(
    r"retrying|connection|name resolution|getaddrinfo|unreachable|timed out|proxy|ssl|max retries", re.IGNORECASE
)
_ELSEWHERE = "or fetch them where there is a network, and name their folder by --wheels FOLDER"


def from_folder(pins: Sequence[Pin], folder: Path) -> list[Path]:
    """The wheels in a folder, in the order of ``pins``.

    Raises:
        PackError: the folder or a wheel is missing or cannot be read.
        VerificationError: a wheel has another hash.
    """
    if not folder.is_dir():
        raise PackError(f"there is no folder of wheels at {folder}")
    missing = [pin.file for pin in pins if not (folder / pin.file).is_file()]
    if missing:
        raise PackError(f"{folder} lacks {' '.join(missing)}: put just these files there, by  pip download")
    places = [folder / pin.file for pin in pins]
    for pin, place in zip(pins, places, strict=True):
        _check(pin, place)
    return places


def from_index(pins: Sequence[Pin], python: str, folder: Path) -> list[Path]:
    """Download the wheels into a folder with pip, and so with its settings, proxies and cache; as ``from_folder``.

    Raises:
        PackError: pip is not there or could not fetch them.
        VerificationError: the index serves another file under the name of a pinned one.
    """
    if importlib.util.find_spec("pip") is None:
        raise PackError(
            f"pip fetches the wheels, and {sys.executable} has none: run  python -m ensurepip , {_ELSEWHERE}"
        )
    wanted = folder / "requirements.txt"
    wanted.write_text("".join(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in pins))
    tags = sorted({tag for pin in pins for tag in pin.tags})
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", str(wanted)]
    command += ["--python-version", python, "--implementation", "cp", "--dest", str(folder)]
    command += [word for tag in tags for word in ("--platform", tag)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise _failure(done.stdout + done.stderr, pins)
    return from_folder(pins, folder)


def _failure(said: str, pins: Sequence[Pin]) -> PackError | VerificationError:
    """What pip's output means."""
    names = " ".join(f"{pin.name}=={pin.version}" for pin in pins)
    if "DO NOT MATCH THE HASHES" in said:
        match = re.search(r"^\s+(\S+) from ", said, re.MULTILINE)
        return VerificationError(
            f"the package index serves {match[1] if match else 'a wheel'} with another SHA-256 than julia1 pins, so it "
            "is not used: ask who runs the index, or name another one in pip's settings"
        )
    if "No space left" in said:
        return PackError("cannot keep the wheels: No space left on device; TMPDIR names another folder for them")
    errors = [line.removeprefix("ERROR:").strip() for line in said.splitlines() if line.startswith("ERROR:")]
    last = errors[-1] if errors else (said.strip().splitlines() or ["pip said nothing"])[-1]
    why = "the package index cannot be reached" if _OFFLINE.search(said) else "the package index does not have them"
    return PackError(
        f"{why}, so pip fetched none of {names} ({last}): check the network and the index in pip's settings "
        f"(pip config list), {_ELSEWHERE}"
    )


def _check(pin: Pin, place: Path) -> None:
    try:
        found = hash_file(place)
    except OSError as error:
        raise PackError(f"cannot read {place}: {reason(error)}") from None
    if found != pin.sha256:
        raise VerificationError(
            f"{place} is not the wheel that julia1 pins: its SHA-256 is {found} and not {pin.sha256}; fetch it again"
        )
