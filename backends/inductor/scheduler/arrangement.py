"""The interface between the scheduler and a target: how the target wants the loops of kernels.

The fusion algorithm is the same for all targets. The target determines how the loops of a group are transformed, which
members may share a kernel with a reduction or a product, and where a row's values are kept between two passes over it.

Invariant: an arrangement preserves the set of iterations and changes no value.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

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
from dynamo_lite.backends.inductor.scheduler.row_blocks import fuse_online, fuse_row_blocks
from dynamo_lite.backends.inductor.scheduler.space import Sizes
from dynamo_lite.backends.inductor.target_info import TargetInfo

BlockFusion = Callable[[Builder, Sequence[Any], frozenset[str], frozenset[str], dict[str, Buffer]], list[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Arrangement:
    """A target's loop transforms and fusion rules.

    Attributes:
        loops: transforms the loops of an ordinary kernel.
        scan_loops: transforms the loops of a scan, a kernel that carries values along its inner loop.
        product_loops: transforms the loops of a group's kernel that begins with a sum of products, which a template
            computes; it may add a workspace for the template to the program's buffers.
        follows_product: whether a member that runs over the same elements can be computed tile by tile, as an epilogue
            of the product, in the given loops.
        stays_near: whether another pass over the elements that a group reduces finds them in a near cache, so that the
            member that makes it may share the group's kernel.
        row_in_registers: largest number of elements of a row that stays in registers from one pass to the next.
        row_blocks: replaces chains of kernels by kernels that compute a block of rows at a time, in the steps of a
            program with the given returned names, inputs and buffers; None if the target has no such kernels.
        row_in_scratch: largest size in bytes of a row that is kept in the kernel's own scratch memory between passes.
    """

    loops: Callable[[Builder, Kernel], Kernel]
    scan_loops: Callable[[Builder, Kernel], Kernel]
    product_loops: Callable[[Builder, Kernel, Group, dict[str, Buffer]], Kernel]
    follows_product: Callable[[Group, Member, Sizes, Sequence[bool]], bool]
    stays_near: Callable[[Group, Member, Sizes, Sequence[bool]], bool]
    row_in_registers: int
    row_in_scratch: int
    row_blocks: BlockFusion | None = None


def vectors(info: TargetInfo, threads: int) -> Arrangement:
    """The arrangement for CPUs: one loop is vectorized, threads share the outer loops, and rows that are needed by a
    later pass stay in the core's caches.

    Args:
        info: the description of the processor.
        threads: number of threads that share the work of products.
    """
    products = functools.partial(tiles_of_vectors, threads=threads, info=info)
    near = functools.partial(stays_near, info=info)
    blocks = functools.partial(fuse_row_blocks, threads=threads, info=info)
    return Arrangement(
        transform_loops, transform_scan_loops, products, runs_along_vectors, near, 0, info.near_row, blocks)


def _always(*args: object) -> bool:
    return True


BLOCKS = Arrangement(flatten_loops, flatten_loops, tiles_of_blocks, _always, _always, 4096, 0, fuse_online)
"""The arrangement for Triton: blocks of iterations run in parallel. A block holds a row of up to 4,096 elements in
registers: 16 values in each of 256 threads, of the 255 that the registers of a thread can hold."""
BLOCKS_OR_LIBRARY = dataclasses.replace(BLOCKS, product_loops=tiles_or_library)
"""The same as ``BLOCKS``, where the kernel of each product also describes a library call that may replace it."""
