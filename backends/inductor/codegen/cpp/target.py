"""C++ as a target: see ``inductor.target``."""
from __future__ import annotations

import functools
from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.cpp.source import write_libraries, write_source
from dynamo_lite.backends.inductor.scheduler.arrangement import VECTORS
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target import Sources, Target


def cpp_target(simd: str) -> Target:
    """Kernels in C++.

    Args:
        simd: "avx512", "avx2" or "scalar".
    """
    return Target("cpp", VECTORS, functools.partial(_write, simd=simd))


def _write(kernels: Sequence[Kernel], simd: str) -> Sources:
    source, symbols = write_source(kernels, simd)
    return Sources(source, symbols, write_libraries(kernels, simd))
