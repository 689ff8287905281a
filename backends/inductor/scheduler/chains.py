"""Chains of kernels: a product, kernels of its rows, and a second product that reads what they make of it.

Invariant: in a chain each kernel may run as late as the last one: nothing between them reads what they write, or
writes what they read.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dynamo_lite.backends.aot import passes
from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Patches, volume
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target_info import TargetInfo

Step = Any


def chain_from(
    steps: Sequence[Step], at: int, inputs: frozenset[str], pays: Callable[[Contraction, Contraction], bool]
) -> list[int]:
    """The positions of the kernels of a chain that begins at a step; none if there is no chain.

    Args:
        pays: whether blocks of rows pay for a chain with this first and this last product.
    """
    first = steps[at]
    if may_write(first, inputs) or not _is_product(first):
        return []
    if len([n for n in first.outputs if n != first.tiles.workspace]) != 1:
        return []
    contraction = first.tiles.contraction
    inside, found = {first.outputs[0]}, [at]
    for k in range(at + 1, len(steps)):
        step = steps[k]
        reads = _reads(step)
        if may_write(step, inputs):
            return []
        if reads.isdisjoint(inside):
            continue
        if not isinstance(step, Kernel):
            return []
        found.append(k)
        if step.tiles is not None:
            last = _is_product(step) and len(found) > 2 and step.tiles.contraction.left.buffer in inside
            if not last or reads & inside != {step.tiles.contraction.left.buffer}:
                return []
            return found if pays(contraction, step.tiles.contraction) else []
        if not _is_of_rows(step):
            return []
        inside.update(step.outputs)
    return []


def is_small(first: Contraction, info: TargetInfo) -> bool:
    """Whether the scores stay in the cache anyway, and one element of the batch is less work than is worth the calls
    for a block. (The number of threads must not decide, as the last bits of results may depend on blocks.)"""
    rows, columns = volume(first.lines), volume(first.lanes)
    scores, products = ix.product((volume(first.batch), rows, columns, 4)), ix.product((rows, columns, first.depth))
    if not isinstance(scores, int) or not isinstance(products, int):
        return False
    return scores <= info.near_result and products < info.product_grain(False)


def has_more_scores(first: Contraction, last: Contraction) -> bool:
    """Whether scores outweigh the right operands, which each block reads, and may have to pack, again: rows of scores
    are longer than those of both, or half as long with a batch. (Without a batch these are weights rather than keys and
    values, and packed as a rule.) Measured on a Zen 4: ``docs/design/products.md``."""
    columns, depth, width = volume(first.lanes), first.depth, volume(last.columns)
    if not all(isinstance(n, int) for n in (columns, depth, width)):
        return True
    return columns * (1 if volume(first.batch) == 1 else 2) >= depth + width


def _is_product(step: Step) -> bool:
    """Whether a step is the kernel of a product of matrices."""
    if not isinstance(step, Kernel) or step.tiles is None or step.faults():
        return False
    return not isinstance(step.tiles.contraction.right, Patches) and not step.tiles.contraction.left.taps


def _is_of_rows(kernel: Kernel) -> bool:
    """Whether a kernel has rows as its outer loops, and computes each in one loop."""
    plain = not any(s.tiled or s.ordered or s.check or s.scan or s.scalar or s.unless_same or s.where_same
                    or len(s.inner) > 1 for s in kernel.stages)
    return plain and kernel.blocks is None and not kernel.vector_outer and bool(kernel.outer) and not kernel.faults()


def _reads(step: Step) -> set[str]:
    return set(step.buffers) - set(step.outputs) if isinstance(step, Kernel) else set(prog.step_reads(step))


def read_by(steps: Iterator[Step]) -> frozenset[str]:
    return frozenset(name for step in steps for name in _reads(step))


def may_write(step: Step, inputs: frozenset[str]) -> bool:
    """Whether a step may change memory that an earlier kernel reads, which then can't be moved behind it."""
    if isinstance(step, Kernel):
        return not inputs.isdisjoint(step.outputs)
    return isinstance(step, prog.CopyInto) or isinstance(step, prog.ExternCall) and passes.keeps_its_place(step.target)
