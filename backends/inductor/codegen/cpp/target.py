"""C++ as a target: see ``inductor.target``."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from dynamo_lite.backends.inductor.codegen.cpp.source import write_libraries, write_source
from dynamo_lite.backends.inductor.scheduler.arrangement import VECTORS
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target import Sources, Target
from dynamo_lite.backends.inductor.target_info import TargetInfo


def cpp_target(info: TargetInfo) -> Target:
    """Kernels in C++.

    Args:
        info: of the processor.
    """
    arrangement = dataclasses.replace(VECTORS, row_in_scratch=info.near_row)
    return Target("cpp", arrangement, functools.partial(_write, info=info))


def _write(kernels: Sequence[Kernel], info: TargetInfo) -> Sources:
    source, symbols = write_source(kernels, info)
    return Sources(source, symbols, write_libraries(kernels, info.simd))
