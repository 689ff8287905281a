"""Well-formedness checks and interpreter of kernels, by which tests check and run the scheduler's output without code
generation.

``run_kernel`` interprets a ``Kernel`` as ``ir.interpreter`` interprets loop nests: it is simple, slow, and meant for
tests. It asserts that every access is within the bounds of its buffer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.checker import MalformedIR, check_nodes, require
from dynamo_lite.backends.inductor.ir.interpreter import Memory, evaluate, reduce, run_update
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import walk
from dynamo_lite.backends.inductor.ir.substitution import evaluate_index
from dynamo_lite.backends.inductor.scheduler.kernel import (
    BATCH,
    COLUMNS,
    FIRST_COLUMN,
    FIRST_ROW,
    ROWS,
    Accumulate,
    Kernel,
    RowBlocks,
    Stage,
    Store,
)
from dynamo_lite.runtime.storage_extent import storage_extent


def check_kernel(kernel: Kernel) -> None:
    """Raises ``MalformedIR`` if the kernel breaks a rule of ``scheduler.kernel``."""
    try:
        _check(kernel)
    except MalformedIR as e:
        raise MalformedIR(f"{e}\n{kernel.describe()}") from None


def _check(kernel: Kernel) -> None:
    if kernel.blocks is not None:
        for part in kernel.blocks.kernels():
            _check(part)
        return
    made: set[str] = set()
    filled: dict[str, tuple[ix.Var, ...]] = {}
    kernel = _untiled(kernel)
    for stage in kernel.stages:
        loops = (*kernel.outer, *stage.inner)
        require(len(set(loops)) == len(loops), "a loop variable stands twice")
        nodes = walk([s.value for s in stage.statements])
        check_nodes([n for n in nodes if n.op != "acc"], set(loops))
        if stage.scan:
            made.update(s.acc for s in stage.statements if isinstance(s, Accumulate))
        for n in nodes:
            require(n.op != "inside", f"a guard is left: {n}")
            require(n.op != "acc" or n.attr in made, f"{n} is read in the stage that makes it, or before")
            if n.op == "load":
                name = n.attr[0]
                require(name in kernel.buffers or name in kernel.scratch, f"{name} is no buffer of the kernel")
                require(name not in kernel.scratch or name in filled, f"{name} is read before it is written")
        for s in stage.statements:
            if stage.check:
                continue
            if isinstance(s, Accumulate):
                made.add(s.acc)
                continue
            require(ix.free_vars(s.index) <= set(loops), f"the index of {s.buffer} names a variable of no loop")
            require(s.buffer in kernel.scratch or s.buffer in kernel.outputs, f"{s.buffer} is written, but no output")
            if s.buffer in kernel.scratch:
                filled[s.buffer] = stage.inner
    written = {s.buffer for s in kernel.statements() if isinstance(s, Store)}
    require(set(kernel.outputs) <= written | ({kernel.tiles.workspace} - {""} if kernel.tiles else set()),
             "an output that nothing writes")


# ---------------------------------------------------------------- interpreter
def run_kernel(kernel: Kernel, memory: Memory) -> None:
    """Runs the kernel on flat tensors by buffer name; missing tensors of outputs are created."""
    for name in kernel.outputs:
        memory.setdefault(name, torch.zeros(_extent(kernel.buffers[name]), dtype=kernel.buffers[name].dtype))
    if kernel.blocks is not None:
        _run_blocks(kernel.blocks, memory)
    else:
        _run_stages(kernel, {}, memory)


def _untiled(kernel: Kernel) -> Kernel:
    """The kernel of a product with its loop along lines outside of the sum, where the template computes many sums at a
    time; other kernels as they are."""
    if kernel.tiles is None:
        return kernel
    sums, epilogue = kernel.stages
    outer = (*kernel.outer, kernel.tiles.lane)
    return dataclasses.replace(kernel, outer=outer, stages=[sums, dataclasses.replace(epilogue, inner=())])


def _run_stages(kernel: Kernel, symbols: dict[ix.Atom, torch.Tensor], memory: Memory) -> None:
    kernel = _untiled(kernel)
    for place in _iterations(kernel.outer, symbols):
        rows = {n: torch.zeros(_extent(b), dtype=b.dtype) for n, b in kernel.scratch.items()}
        here = {**memory, **rows}
        accs: dict[str, torch.Tensor] = {}
        for stage in kernel.stages:
            _run_stage(stage, {**symbols, **place}, here, accs)


# Rows of a block in the interpreter.
_ROWS = 3


def _run_blocks(blocks: RowBlocks, memory: Memory) -> None:
    batches, rows, _ = map(_int, blocks.sizes)
    for batch, first in itertools.product(range(batches), range(0, rows, _ROWS)):
        _run_block(blocks, {BATCH: batch, FIRST_ROW: first, ROWS: min(_ROWS, rows - first)}, memory)


def _run_block(blocks: RowBlocks, place: dict[ix.Index, int], memory: Memory) -> None:
    columns = _int(blocks.sizes[2])
    count = place[ROWS] * columns
    # What no part writes is NaN, or true.
    local = {name: torch.full((count,), math.nan).to(buffer.dtype) for name, buffer in blocks.local.items()}
    for name, other in blocks.takeovers.items():
        local[name] = local[other]

    def run(part: Kernel, begin: int, end: int, further: Memory) -> None:
        given = {**place, FIRST_COLUMN: begin, COLUMNS: end - begin}
        symbols = {next(iter(ix.atoms_of(name))): torch.tensor(n) for name, n in given.items()}
        _run_stages(part, symbols, {**memory, **local, **further})

    counts = blocks.counts
    places = list(range(columns))
    if counts is not None:
        flags = {at: {name: torch.zeros(1, dtype=torch.bool) for name in counts.outputs} for at in places}
        for at in places:
            run(counts, at, at + 1, flags[at])
        places = [at for at in places if any(map(bool, flags[at].values()))]
    begin, end = (places[0], places[-1] + 1) if places else (0, min(columns, 1))
    for part in blocks.parts:
        run(part, begin, end, {})


def _run_stage(
    stage: Stage, place: dict[ix.Atom, torch.Tensor], memory: Memory, accs: dict[str, torch.Tensor]
) -> None:
    if stage.check:
        return
    if stage.scan:
        _run_scan(stage, place, memory)
        return
    if stage.ordered:
        for s in stage.statements:
            assert isinstance(s, Store) and not place
            run_update(s.value, stage.inner, memory[s.buffer], memory)
        return
    shape = [_size(v, place) for v in stage.inner]
    places = {v: at.reshape([1] * len(shape)) for v, at in place.items()}
    places |= {v: torch.arange(n).reshape([-1 if d == k else 1 for k in range(len(shape))])
               for d, (v, n) in enumerate(zip(stage.inner, shape))}
    # All reads of a stage precede its writes here. That is correct, as the iterations of its loops are independent.
    values = [evaluate(s.value, places, memory, accs, bounds=True).expand(shape) for s in stage.statements]
    for s, value in zip(stage.statements, values):
        if isinstance(s, Store):
            index = torch.as_tensor(evaluate_index(s.index, places)).expand(shape).reshape(-1)
            target = memory[s.buffer]
            assert not index.numel() or (0 <= int(index.min()) and int(index.max()) < target.numel()), s.buffer
            assert index.unique().numel() == index.numel(), f"{s.buffer} is written twice at one place"
            target[index] = value.reshape(-1).to(target.dtype)
            continue
        result = reduce(s.kind, value, [], list(range(len(shape))))
        if s.kind.startswith("arg"):
            numbers = torch.as_tensor(evaluate_index(s.position, places)).expand(shape).reshape(-1)
            # The loops may visit positions in any order. Among equal values, the one with the least position counts.
            order = numbers.argsort()
            result = numbers[order][reduce(s.kind, value.reshape(-1)[order], [], [0])]
        accs[s.acc] = result


def _run_scan(stage: Stage, place: dict[ix.Atom, torch.Tensor], memory: Memory) -> None:
    carried = [s for s in stage.statements if isinstance(s, Accumulate)]
    accs = {s.acc: torch.tensor(s.start.attr, dtype=s.start.dtype) for s in carried if s.start is not None}
    for inner in _iterations(stage.inner, {}):
        places = {**place, **inner}
        accs = {s.acc: evaluate(s.value, places, memory, accs, bounds=True) for s in carried}
        for s in stage.statements:
            if isinstance(s, Store):
                at = int(torch.as_tensor(evaluate_index(s.index, places)))
                memory[s.buffer][at] = evaluate(s.value, places, memory, accs, bounds=True)


def _iterations(
    loops: tuple[ix.Var, ...], symbols: dict[ix.Atom, torch.Tensor]
) -> Iterator[dict[ix.Atom, torch.Tensor]]:
    for at in itertools.product(*[range(_size(v, symbols)) for v in loops]):
        yield {v: torch.tensor(i) for v, i in zip(loops, at)}


def _size(v: ix.Var, symbols: dict[ix.Atom, torch.Tensor]) -> int:
    return int(evaluate_index(v.size, symbols))


def _extent(buffer: Buffer) -> int:
    return storage_extent([_int(n) for n in buffer.size], [_int(s) for s in buffer.stride])


def _int(n: ix.Index) -> int:
    assert isinstance(n, int), f"only kernels of fixed sizes can be run here, not {n}"
    return n
