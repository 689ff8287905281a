"""The C++ target for CPUs, see ``inductor.target``."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import torch

from dynamo_lite import config
from dynamo_lite.backends.inductor.codegen.cpp.convolution_times import ConvolutionTimes
from dynamo_lite.backends.inductor.codegen.cpp.product_times import ProductTimes
from dynamo_lite.backends.inductor.codegen.cpp.source import write_libraries, write_source
from dynamo_lite.backends.inductor.scheduler.arrangement import vectors
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.scheduler.short_loops import SHORT
from dynamo_lite.backends.inductor.target import PRODUCTS, Abilities, Sources, Target, Tuning
from dynamo_lite.backends.inductor.target_info import TargetInfo


def cpp_target(info: TargetInfo, tuning: Tuning) -> Target:
    """The target that generates kernels in C++.

    Args:
        info: description of the processor.
        tuning: how to decide which matrix products and convolutions are left to the library.
    """
    threads = torch.get_num_threads()
    abilities = Abilities(frozenset() if tuning.products != "library" else PRODUCTS, near_vector=info.near_vector,
                          near=info.processor.l1.size, few=SHORT)
    # Kernels for vector instructions other than this processor's are only read, so nothing can be measured for them.
    if info.simd == info.processor.simd and (
            tuning.products == "measured" or tuning.products == "rule" and config.measured_products):
        times = ProductTimes(info, threads, tuning.products == "measured")
        products = dataclasses.replace(abilities.products, faster=times.is_for_library)
        convolutions = ConvolutionTimes(info, threads).is_for_library if tuning.products == "measured" else None
        abilities = dataclasses.replace(abilities, products=products, faster_convolution=convolutions)
    return Target("cpp", vectors(info, threads), functools.partial(_write, info=info), abilities)


def _write(kernels: Sequence[Kernel], info: TargetInfo) -> Sources:
    source, symbols = write_source(kernels, info)
    return Sources(source, symbols, write_libraries(kernels, info.simd))
