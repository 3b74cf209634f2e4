"""One error for a file that cannot be written: on a full disk each library has one of its own."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from julia1.errors import BundleError


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turns what the file system and safetensors raise inside it into a ``BundleError`` that names ``target``."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise BundleError(f"cannot write {target}: {error}") from None


def save_program(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write a ``.pt2`` file; raises ``OSError`` where PyTorch, which writes from C++, would end the process."""
    whole = io.BytesIO()
    torch.export.save(program, whole)
    path.write_bytes(whole.getbuffer())
