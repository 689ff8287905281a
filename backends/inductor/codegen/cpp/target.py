"""C++ as a target: see ``inductor.target``."""
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.codegen.cpp.source import write_libraries, write_source
from dynamo_lite.backends.inductor.scheduler.arrangement import vectors
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target import Abilities, Sources, Target
from dynamo_lite.backends.inductor.target_info import TargetInfo


def cpp_target(info: TargetInfo) -> Target:
    """Kernels in C++.

    Args:
        info: of the processor.
    """
    abilities = Abilities(near_vector=info.near_vector)
    return Target("cpp", vectors(info, torch.get_num_threads()), functools.partial(_write, info=info), abilities)


def _write(kernels: Sequence[Kernel], info: TargetInfo) -> Sources:
    source, symbols = write_source(kernels, info)
    return Sources(source, symbols, write_libraries(kernels, info.simd))
