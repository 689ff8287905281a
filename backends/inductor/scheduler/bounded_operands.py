"""Operands whose elements must be bounded where columns of scores are left out (``skipped``): a weight of 0 does not
make up for a value of infinity or NaN, nor an added mask of minus infinity for such a score.

A target whose kernels pass over an operand in many programs does not test its elements in each of them: a kernel
before tests each line once, and stores a flag of it.

Invariant: where all flags of an element of the batch hold, all elements of its operands are below their limits.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, volume
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, RowBlocks, Stage, Store
from dynamo_lite.backends.inductor.scheduler.loop_transforms import flatten_loops

# Queries and keys below this limit have scores below 1e24 (for depths up to 1e12), of which a score function may take
# products with constants (``skipped``).
LARGEST = 1e6
# By an operand's bytes, the products of a chain from which on it pays to test for columns that are left out. The test
# of the operands is a kernel more, of some microseconds, in which an H100 computes about a quarter of so many products
# (half of them is what a causal mask excludes). From data sheets; no GPU has timed it.
LEAST_PRODUCTS = {2: 1 << 30, 4: 1 << 27}


@dataclasses.dataclass(frozen=True, slots=True)
class Limited:
    """An operand of a product whose elements are to be smaller than ``limit`` in magnitude. ``along_columns``: whether
    columns of scores are summed over, as those of values are."""

    contraction: Contraction
    matrix: Matrix
    lines: ix.Index
    depth: ix.Index
    limit: float
    along_columns: bool = False


def limited(product: Contraction, final: Contraction, added: bool) -> tuple[Limited, ...]:
    """The operands to be tested if columns of scores are left out: the values, and with an added mask keys and queries.

    Args:
        product, final: the first and the last product of a chain.
        added: whether the mask is added to scores.
    """
    assert isinstance(product.right, Matrix) and isinstance(final.right, Matrix)
    values = Limited(final, final.right, volume(final.columns), final.depth, math.inf, along_columns=True)
    if not added:
        return (values,)
    return (values, *(Limited(product, side, volume(lines), product.depth, LARGEST)
                      for side, lines in ((product.right, product.columns), (product.left, product.rows))))


def pays_to_test(blocks: RowBlocks, itemsize: int) -> bool:
    """Whether there is so much to leave out that another kernel pays. Symbolic sizes are assumed to be large.

    Args:
        itemsize: of the products' operands.
    """
    products = ix.product((*blocks.sizes, ix.add(blocks.depth, blocks.width)))
    return not isinstance(products, int) or products >= LEAST_PRODUCTS[itemsize]


def flag_kernels(
    builder: Builder, operands: Sequence[Limited], columns: ix.Index, buffers: dict[str, Buffer],
    origin: tuple[str, ...],
) -> list[Kernel]:
    """Kernels that store for each element of the batch and each column of scores whether the elements of right
    operands that belong to it are bounded. Each has one output, which is added to ``buffers``; operands with columns of
    equal lengths share a kernel."""
    found: dict[ix.Index, list[Limited]] = {}
    for operand in operands:
        along = operand.lines if operand.along_columns else operand.depth
        found.setdefault(along, []).append(operand)
    return [_flags(builder, several, along, columns, buffers, origin) for along, several in found.items()]


def _flags(
    builder: Builder, operands: Sequence[Limited], along: ix.Index, columns: ix.Index, buffers: dict[str, Buffer],
    origin: tuple[str, ...],
) -> Kernel:
    batches = volume(operands[0].contraction.batch)
    batch, column, k = (ix.var(name, n) for name, n in (("b", batches), ("c", columns), ("k", along)))
    held = builder.const(True, torch.bool)
    for operand in operands:
        matrix = operand.matrix
        place = ix.dot(ix.unflatten(batch, [v.size for v in operand.contraction.batch]), matrix.batch)
        # Of values, columns of scores are the depth.
        line, depth = (k, column) if operand.along_columns else (column, k)
        index = ix.sum_of([matrix.offset, place, ix.mul(line, matrix.line), ix.mul(depth, matrix.depth)])
        element = builder.cast(builder.load(matrix.buffer, index, buffers[matrix.buffer].dtype), torch.float32)
        below = builder.op("lt", builder.op("abs", element), builder.const(operand.limit, torch.float32))
        held = builder.op("and", held, below)
    name = f"bounded{len(buffers)}"
    outer = tuple(v for i in (batch, column) for v in ix.free_vars(i))
    first = buffers[operands[0].matrix.buffer]
    flags = Buffer(name, (batches, columns), (columns, 1), torch.bool, first.device)
    buffers[name] = flags
    names = dict.fromkeys(operand.matrix.buffer for operand in operands)
    stages = [Stage(tuple(ix.free_vars(k)), [Accumulate(name, "all", held)]),
              Stage((), [Store(name, ix.add(ix.mul(batch, columns), column), builder.acc(
                  name, torch.bool, frozenset(outer)))])]
    return flatten_loops(builder, Kernel(outer, stages, False, {**{n: buffers[n] for n in names}, name: flags}, (name,),
                                         {}, origin))
