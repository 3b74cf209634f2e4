"""Large blocks of memory go back to the system when they are freed."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

from julia1 import settings

LARGE_BYTES = 128 << 10
"""Where glibc begins."""
_M_MMAP_THRESHOLD = -3  # malloc.h


@lru_cache(maxsize=1)
def return_large_blocks() -> bool:
    """Have glibc keep blocks of ``LARGE_BYTES`` apart from its heap, for good; returns whether it does.

    By itself it raises that size to 32 MiB as such blocks are freed (mallopt(3), "dynamic mmap threshold"); arrays and
    buffers of long texts then lie in the heap among small ones, and their room never goes back: 30 MB after 400 mixed
    requests. Other systems' allocators, and a user who has set glibc's own variables, are left alone.
    """
    if not sys.platform.startswith("linux") or settings.tunes_malloc():
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
    except (AttributeError, OSError):  # musl has none
        return False
