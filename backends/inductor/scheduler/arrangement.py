"""How a target wants the loops of kernels: what the scheduler asks of a target.

Fusion is decided once for all targets; what becomes of a group's loops then, and where a row's values wait between
two passes over it, is each target's.

Invariant: an arrangement keeps the set of iterations and changes no value.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.scheduler.loop_transforms import (
    flatten_loops,
    transform_loops,
    transform_scan_loops,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Arrangement:
    """Attributes:
        loops: puts a kernel's loops in form.
        scan_loops: the same for a kernel that carries values along its inner loop.
        row_in_registers: a row of at most so many elements stays in registers from one pass to the next.
        row_in_scratch: a row of at most so many bytes is kept in memory of the kernel's own.
    """

    loops: Callable[[Builder, Kernel], Kernel]
    scan_loops: Callable[[Builder, Kernel], Kernel]
    row_in_registers: int
    row_in_scratch: int


VECTORS = Arrangement(transform_loops, transform_scan_loops, 0, 64 * 1024)
"""One loop runs in vectors, threads share the outer ones: a processor's caches hold 64 KB of a row near a core,
where ``TargetInfo.near_row`` does not say less."""
BLOCKS = Arrangement(flatten_loops, flatten_loops, 4096, 0)
"""Blocks of iterations run side by side, and a block holds a row of 4,096 elements: 16 values in each of 256 threads,
of the 255 that the registers of a thread can hold."""
