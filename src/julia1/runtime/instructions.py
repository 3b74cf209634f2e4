"""Which instruction sets the CPU has, asked of the CPU itself.

``/proc/cpuinfo`` tells what the machine has, which under user-mode emulation, and in some containers, is not what this
process runs on. CPUID on x86-64 and the auxiliary vector on ARM tell the truth there too; where neither can be asked
(a kernel that allows no executable memory), the files of the system and NumPy's own probe stand in.

Names are those of Linux. Bits: Intel SDM vol. 2A (CPUID) and vol. 1 ch. 13 (XCR0); Linux ``asm/hwcap.h`` for arm64.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path

VNNI = frozenset({"avx512_vnni", "avx_vnni"})

Cpuid = Callable[[int, int], tuple[int, int, int, int]]
"""Leaf and sub-leaf to EAX, EBX, ECX, EDX."""

_AVX_STATE, _AVX512_STATE, _AMX_STATE = 0x6, 0xE6, 0x60000
# feature: (leaf, sub-leaf, register, bit, the parts of XCR0 that the system must save for it)
_X86 = {
    "pni": (1, 0, 2, 0, 0),
    "ssse3": (1, 0, 2, 9, 0),
    "fma": (1, 0, 2, 12, _AVX_STATE),
    "sse4_1": (1, 0, 2, 19, 0),
    "sse4_2": (1, 0, 2, 20, 0),
    "popcnt": (1, 0, 2, 23, 0),
    "avx": (1, 0, 2, 28, _AVX_STATE),
    "f16c": (1, 0, 2, 29, _AVX_STATE),
    "bmi1": (7, 0, 1, 3, 0),
    "avx2": (7, 0, 1, 5, _AVX_STATE),
    "bmi2": (7, 0, 1, 8, 0),
    "avx512f": (7, 0, 1, 16, _AVX512_STATE),
    "avx512dq": (7, 0, 1, 17, _AVX512_STATE),
    "avx512cd": (7, 0, 1, 28, _AVX512_STATE),
    "avx512bw": (7, 0, 1, 30, _AVX512_STATE),
    "avx512vl": (7, 0, 1, 31, _AVX512_STATE),
    "avx512vbmi": (7, 0, 2, 1, _AVX512_STATE),
    "avx512_vnni": (7, 0, 2, 11, _AVX512_STATE),
    "amx_bf16": (7, 0, 3, 22, _AMX_STATE),
    "avx512_fp16": (7, 0, 3, 23, _AVX512_STATE),
    "amx_tile": (7, 0, 3, 24, _AMX_STATE),
    "amx_int8": (7, 0, 3, 25, _AMX_STATE),
    "avx_vnni": (7, 1, 0, 4, _AVX_STATE),
    "avx512_bf16": (7, 1, 0, 5, _AVX512_STATE),
}
_ARM_HWCAP = {"fp": 0, "asimd": 1, "atomics": 8, "fphp": 9, "asimdhp": 10, "asimddp": 20, "sve": 22}
_ARM_HWCAP2 = {"sve2": 1, "i8mm": 13, "bf16": 14, "sme": 23}
_MAC_ARM = {
    "asimd": "hw.optional.neon",
    "asimdhp": "hw.optional.arm.FEAT_FP16",
    "asimddp": "hw.optional.arm.FEAT_DotProd",
    "i8mm": "hw.optional.arm.FEAT_I8MM",
    "bf16": "hw.optional.arm.FEAT_BF16",
}
_NUMPY = {
    "SSE3": "pni",
    "SSSE3": "ssse3",
    "SSE41": "sse4_1",
    "SSE42": "sse4_2",
    "POPCNT": "popcnt",
    "AVX": "avx",
    "F16C": "f16c",
    "FMA3": "fma",
    "AVX2": "avx2",
    "AVX512F": "avx512f",
    "AVX512CD": "avx512cd",
    "AVX512_CLX": "avx512_vnni",
    "ASIMD": "asimd",
    "ASIMDHP": "asimdhp",
    "ASIMDDP": "asimddp",
    "SVE": "sve",
}

# mov eax, leaf; mov ecx, sub-leaf; and where the results go into r8, by calling convention
_INTO_REGISTERS = {"win32": b"\x89\xc8\x89\xd1", "": b"\x49\x89\xd0\x89\xf8\x89\xf1"}
_INTO_R8 = {"win32": b"\x49\x89\xc8", "": b"\x49\x89\xf8"}
# cpuid; mov [r8], eax; mov [r8+4], ebx; mov [r8+8], ecx; mov [r8+12], edx
_CPUID = b"\x0f\xa2\x41\x89\x00\x41\x89\x58\x04\x41\x89\x48\x08\x41\x89\x50\x0c"
# xor ecx, ecx; xgetbv; mov [r8], eax; mov [r8+4], edx; ret
_XGETBV = b"\x31\xc9\x0f\x01\xd0\x41\x89\x00\x41\x89\x50\x04\xc3"


def features(architecture: str) -> frozenset[str]:
    """Instruction sets that this process may use; on x86-64 also ``vnni`` when any 8-bit dot product exists.

    Empty where nothing tells.
    """
    found: frozenset[str] = frozenset()
    if architecture == "x86_64":
        found = _x86_features()
    elif architecture == "aarch64":
        found = _arm_features()
    found = found or cpuinfo_features() or _numpy_features()
    return found | {"vnni"} if found & VNNI else found


def name(architecture: str) -> str:
    """What the maker calls the CPU; empty where nothing tells."""
    if architecture == "x86_64":
        try:
            ask = _cpuid()
            if ask(0x80000000, 0)[0] >= 0x80000004:
                brand = b"".join(struct.pack("<4I", *ask(leaf, 0)) for leaf in range(0x80000002, 0x80000005))
                return brand.split(b"\0")[0].decode("ascii", "replace").strip()
        except OSError:
            pass
    match = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match.group(1).strip() if match else platform.processor()


def cpuinfo_features(text: str | None = None) -> frozenset[str]:
    """What ``/proc/cpuinfo`` says; empty where there is none."""
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", _cpuinfo() if text is None else text, re.MULTILINE)
    return frozenset(match.group(1).split()) if match else frozenset()


def decode(ask: Cpuid, saved_state: Callable[[], int]) -> frozenset[str]:
    """The features that CPUID tells of and the operating system supports.

    Args:
        ask: CPUID.
        saved_state: XCR0, the registers that the system saves; called only where CPUID says that it can be read.
    """
    most = ask(0, 0)[0]
    state = saved_state() if most >= 1 and ask(1, 0)[2] >> 27 & 1 else 0
    sub_leaves = ask(7, 0)[0] if most >= 7 else 0
    found = set()
    for feature, (leaf, sub, register, bit, needs) in _X86.items():
        there = leaf <= most and (leaf != 7 or sub <= sub_leaves)
        if there and ask(leaf, sub)[register] >> bit & 1 and state & needs == needs:
            found.add(feature)
    return frozenset(found)


def _x86_features() -> frozenset[str]:
    try:
        return decode(_cpuid(), _saved_state)
    except OSError:
        return frozenset()


def _cpuid() -> Cpuid:
    run = _Code(_convention(_INTO_REGISTERS), wide=True)
    return lambda leaf, sub: run(leaf, sub)


def _saved_state() -> int:
    low, high, *_ = _Code(_convention(_INTO_R8), wide=False)()
    return high << 32 | low


def _convention(of: dict[str, bytes]) -> bytes:
    return of.get(sys.platform, of[""])


class _Code:
    """A few instructions in executable memory of their own; raises ``OSError`` where the system allows none."""

    def __init__(self, start: bytes, wide: bool) -> None:
        # push rbx ... pop rbx; ret: CPUID writes a register that belongs to the caller
        code = b"\x53" + start + _CPUID + b"\x5b\xc3" if wide else start + _XGETBV
        types: tuple[type, ...] = (ctypes.c_uint32, ctypes.c_uint32) if wide else ()
        self._memory: object
        if sys.platform == "win32":
            allocate = ctypes.windll.kernel32.VirtualAlloc  # type: ignore[attr-defined,unused-ignore]
            allocate.restype = ctypes.c_void_p
            allocate.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32)
            address = allocate(None, mmap.PAGESIZE, 0x3000, 0x40)
            if not address:
                raise OSError("no executable memory")
            ctypes.memmove(address, code, len(code))
        else:
            memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            memory.write(code)
            self._memory = memory
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._call = ctypes.CFUNCTYPE(None, *types, ctypes.c_void_p)(address)

    def __call__(self, *arguments: int) -> tuple[int, int, int, int]:
        out = (ctypes.c_uint32 * 4)()
        self._call(*arguments, ctypes.addressof(out))
        return out[0], out[1], out[2], out[3]


def _arm_features() -> frozenset[str]:
    try:
        if sys.platform == "darwin":
            return frozenset(feature for feature, key in _MAC_ARM.items() if _sysctl(key))
        if sys.platform == "win32":
            present = ctypes.windll.kernel32.IsProcessorFeaturePresent  # type: ignore[attr-defined,unused-ignore]
            return frozenset({"asimd", *(("asimddp",) if present(43) else ())})
        ask = ctypes.CDLL(None).getauxval
        ask.restype, ask.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
        found = {feature for feature, bit in _ARM_HWCAP.items() if ask(16) >> bit & 1}
        return frozenset(found | {feature for feature, bit in _ARM_HWCAP2.items() if ask(26) >> bit & 1})
    except (OSError, AttributeError):
        return frozenset()


def _sysctl(key: str) -> bool:
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    failed = ctypes.CDLL(None).sysctlbyname(key.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return not failed and bool(value.value)


def _numpy_features() -> frozenset[str]:
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as known
    except ImportError:  # NumPy 1.26 has it elsewhere, and others may move it
        return frozenset()
    return frozenset(_NUMPY[feature] for feature, there in known.items() if there and feature in _NUMPY)


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""
