"""Kernels of AVX-512 on a processor that has AVX2: it is taken for one with AVX-512, decisions are those of a Xeon, and
the compiler makes of each wide instruction what the processor can do (avx512_emulated.h).

DYNAMO_LITE_TEST_PROCESSOR=avx512 makes a run of the tests one of these kernels. Invariant: nothing of the package is
replaced but what it reads of the processor, the compiler's flags for it, and which of Sleef's functions are called.
"""
from __future__ import annotations

import zlib
from pathlib import Path

import processors

from dynamo_lite.backends.inductor import prebuilt, processor, target_info
from dynamo_lite.backends.inductor.codegen.cpp import functions

HEADER = Path(__file__).parent / "avx512_emulated.h"
FEATURES = ("avx512f", "avx512bw", "avx512dq", "avx512vl")


def install() -> None:
    """From now on this process takes its processor for one with AVX-512.

    Raises:
        RuntimeError: the processor lacks AVX2, by which it is emulated.
    """
    if processor.simd_of(processor.cpu_features()) == "scalar":
        raise RuntimeError("AVX-512 is emulated by AVX2, which this processor lacks")
    # -O1: of a tile of vectors that no register holds -O3 takes minutes. The header's text is not part of a kernel
    # file's, whose digest is its name in the cache.
    version = f"-DEMULATION=0x{zlib.crc32(HEADER.read_bytes()):x}"
    prebuilt.SIMD_FLAGS["avx512"] = (*prebuilt.SIMD_FLAGS["avx2"], "-O1", "-include", str(HEADER), version)
    first = processor._first_processor

    def first_processor(path: str) -> dict[str, str]:
        fields = first(path)
        if path == "/proc/cpuinfo":
            fields["flags"] = " ".join([*fields["flags"].split(), *FEATURES])
        return fields

    processor._first_processor = first_processor
    processor.cpu_features.cache_clear()
    processor.this_processor.cache_clear()
    functions._pointer = _two_calls
    described = target_info._described.__wrapped__

    def described_here(simd, replaced):
        if simd == "avx512":
            return target_info.with_values(processors.XEON, dict(replaced))
        return described(simd, replaced)

    target_info._described = described_here


_one_call = functions._pointer


def _two_calls(symbol: str, types: str, result: str) -> str:
    """Declares Sleef's function of a wide vector as two calls of its function of half as many lanes."""
    for wide, narrow, half in (("f16", "f8", "vec<float, 8>"), ("d8", "d4", "vec<double, 4>")):
        if f"{wide}_" in symbol or symbol.endswith(wide):
            count = types.count("vec<")
            called = f"emulated_{symbol}"
            own = symbol.replace(wide, narrow)
            parameters = ", ".join(f"{result} {p}" for p in "xy"[:count])
            parts = "".join(f"{half} {p}_[2]; __builtin_memcpy({p}_, &{p}, sizeof {p}); " for p in "xy"[:count])
            calls = ", ".join(f"{called}({', '.join(f'{p}_[{k}]' for p in 'xy'[:count])})" for k in (0, 1))
            pointer = f'static {half} (*const {called})({", ".join([half] * count)}) = ' \
                      f'(decltype({called}))dlsym(libtorch, "{own}");'
            return f"{pointer}\nINLINE {result} {symbol}({parameters}) {{ {parts}const {half} r[2] = {{{calls}}}; " \
                   f"{result} z; __builtin_memcpy(&z, r, sizeof z); return z; }}"
    return _one_call(symbol, types, result)
