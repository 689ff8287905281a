"""How a target wants the loops of kernels: what the scheduler asks of a target.

Fusion is decided once for all targets; what becomes of a group's loops then, and where a row's values wait between
two passes over it, is each target's.

Invariant: an arrangement keeps the set of iterations and changes no value.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.scheduler.contraction import runs_along_vectors, tiles_of_blocks, tiles_of_vectors
from dynamo_lite.backends.inductor.scheduler.groups import Group, Member
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.scheduler.library_product import tiles_or_library
from dynamo_lite.backends.inductor.scheduler.loop_transforms import (
    flatten_loops,
    transform_loops,
    transform_scan_loops,
)
from dynamo_lite.backends.inductor.scheduler.repeated_passes import stays_near
from dynamo_lite.backends.inductor.scheduler.space import Sizes
from dynamo_lite.backends.inductor.target_info import TargetInfo


@dataclasses.dataclass(frozen=True, slots=True)
class Arrangement:
    """Attributes:
        loops: puts a kernel's loops in form.
        scan_loops: the same for a kernel that carries values along its inner loop.
        product_loops: the same for the kernel of a group that begins with a sum of products, which a template computes;
            it may add a buffer for the template to those of the program.
        follows_product: whether a member that runs over the same elements can be computed tile by tile behind one, in
            the given loops.
        stays_near: whether a member that passes once more over what a group reduces finds it near the core, and may
            share the group's kernel.
        row_in_registers: a row of at most so many elements stays in registers from one pass to the next.
        row_in_scratch: a row of at most so many bytes is kept in memory of the kernel's own.
    """

    loops: Callable[[Builder, Kernel], Kernel]
    scan_loops: Callable[[Builder, Kernel], Kernel]
    product_loops: Callable[[Builder, Kernel, Group, dict[str, Buffer]], Kernel]
    follows_product: Callable[[Group, Member, Sizes, Sequence[bool]], bool]
    stays_near: Callable[[Group, Member, Sizes, Sequence[bool]], bool]
    row_in_registers: int
    row_in_scratch: int


def vectors(info: TargetInfo, threads: int) -> Arrangement:
    """One loop runs in vectors, threads share the outer ones: rows that wait between two passes stay near a core.

    Args:
        info: of the processor.
        threads: that products are shared out to.
    """
    products = functools.partial(tiles_of_vectors, threads=threads, info=info)
    near = functools.partial(stays_near, info=info)
    return Arrangement(transform_loops, transform_scan_loops, products, runs_along_vectors, near, 0, info.near_row)


def _always(*args: object) -> bool:
    return True


BLOCKS = Arrangement(flatten_loops, flatten_loops, tiles_of_blocks, _always, _always, 4096, 0)
"""Blocks of iterations run side by side, and a block holds a row of 4,096 elements: 16 values in each of 256 threads,
of the 255 that the registers of a thread can hold."""
BLOCKS_OR_LIBRARY = dataclasses.replace(BLOCKS, product_loops=tiles_or_library)
"""The same, and beside each product's kernel the library's call that may stand for it."""
