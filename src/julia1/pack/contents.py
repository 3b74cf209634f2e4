"""What of a wheel goes into a box: what runs a bundle, and every licence. See docs/pack.md for what this saves."""

from __future__ import annotations

_FOLDERS = {"test", "tests", "__pycache__", "_examples"}
_SUFFIXES = (".a", ".h", ".hpp", ".lib", ".pdb", ".pxd", ".pyi", ".pyx")
_LEFT_OUT = (
    "numpy/distutils/",
    "numpy/f2py/",
    "onnxruntime/backend/",
    "onnxruntime/datasets/",
    "onnxruntime/quantization/",
    "onnxruntime/tools/",
    "onnxruntime/transformers/",
    # For programs in C: the Python module has the whole runtime in a file of its own. It is half of the wheel.
    "onnxruntime/capi/libonnxruntime.",
    "onnxruntime/capi/onnxruntime.dll",
)


def place_of(member: str) -> str | None:
    """Where a member of a wheel goes below ``lib/``, or ``None`` when it is left out."""
    steps = member.split("/")
    if steps[0].endswith(".data"):  # what an installer would spread over folders
        if len(steps) < 3 or steps[1] not in ("platlib", "purelib"):
            return None
        steps = steps[2:]
    path = "/".join(steps)
    if steps[0].endswith(".dist-info"):  # the list of installed files would no longer be true
        return None if steps[-1] == "RECORD" else path
    if _FOLDERS.intersection(steps[:-1]) or path.endswith(_SUFFIXES) or path.startswith(_LEFT_OUT):
        return None
    return path
