"""Golden files: what a bundle computed on one machine, checked on another (fp32 within 1e-4, int8 the same answers)."""

from julia1.runtime.golden.checking import GoldenCheck, VariantCheck, check_golden
from julia1.runtime.golden.file import Golden, read_golden, write_golden
from julia1.runtime.golden.making import make_golden
from julia1.runtime.golden.requests import Request

__all__ = [
    "Golden",
    "GoldenCheck",
    "Request",
    "VariantCheck",
    "check_golden",
    "make_golden",
    "read_golden",
    "write_golden",
]
