"""The alternative to a product's kernel: a library call, and a kernel of the epilogue, for autotuning.

The library's operator adds a bias, or the matrix of ``addmm``, if that is the first operation on the product, and
rounds its result where the program does. The epilogue kernel reads the result from memory; without an epilogue there is
none.

Invariant: the call and the epilogue kernel compute the same as the product's kernel, rounded where the program without
templates rounds.
"""
from __future__ import annotations

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Matrix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.contraction import tiles_of_blocks
from dynamo_lite.backends.inductor.scheduler.groups import Group
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel, LibraryProduct, Operand, Stage, Store
from dynamo_lite.backends.inductor.scheduler.loop_transforms import flatten_loops

PRODUCT = "product"
"""The name of the library call's result among the buffers of the epilogue kernel."""


def tiles_or_library(builder: Builder, kernel: Kernel, group: Group, buffers: dict[str, Buffer]) -> Kernel:
    """The same as ``tiles_of_blocks``, with the description of the library call that may replace the kernel."""
    kernel = tiles_of_blocks(builder, kernel, group, buffers)
    assert kernel.tiles is not None
    kernel.tiles.library = library_product(builder, kernel)
    return kernel


def library_product(builder: Builder, kernel: Kernel) -> LibraryProduct | None:
    """The library call and the epilogue kernel that may replace a product's kernel. None if the library would round a
    sum that the program uses unrounded."""
    tiles = kernel.tiles
    assert tiles is not None and tiles.line is not None
    contraction, right = tiles.contraction, tiles.contraction.right
    assert isinstance(right, Matrix)
    dtype = kernel.buffers[contraction.left.buffer].dtype
    stores = [s for s in kernel.stages[1].statements if isinstance(s, Store)]
    sums = [n for n in walk([s.value for s in stores]) if n.op == "acc"]
    if len(sums) != 1:
        return None
    result, addend = sums[0], None
    user = _only_user(stores, result)
    added = None if user is None else _addend(kernel, user, result, dtype)
    if user is not None and added is not None and (dtype not in HALF or _rounding(stores, user, dtype) is not None):
        result, addend = user, added
    if dtype in HALF:
        rounding = _rounding(stores, result, dtype)
        if rounding is None:
            return None
        result = rounding
    loops = [v for v in (tiles.batch, tiles.line, tiles.lane) if v is not None]
    sizes = tuple(v.size for v in loops)
    operands = (
        _operand(contraction.left, sizes[:-1], contraction.depth, False),
        _operand(right, (*sizes[:-2], sizes[-1]), contraction.depth, True))
    buffer = Buffer(PRODUCT, sizes, ix.contiguous_strides(sizes), dtype, kernel.buffers[contraction.left.buffer].device)
    place = buffer.load_index(tuple(map(ix.atom, loops)))
    direct = stores[0].buffer if len(stores) == 1 and stores[0].value is result and stores[0].index == place else None
    after = None if direct is not None else _after(builder, kernel, stores, result, buffer, place)
    return LibraryProduct(operands, addend, buffer, direct, after)


def _after(
    builder: Builder, kernel: Kernel, stores: list[Store], result: Node, buffer: Buffer, place: ix.Index
) -> Kernel:
    """The kernel of the epilogue, which reads the library call's result.

    Args:
        stores: those of the product's kernel.
        result: the node that the call computes.
        buffer, place: the call's result, and the index of the current element in it.
    """
    tiles = kernel.tiles
    assert tiles is not None
    load = builder.load(buffer.name, place, buffer.dtype)
    values = builder.substitute_all([s.value for s in stores], {}, {result: load})
    read = {n.attr[0] for n in walk(values) if n.op == "load"} - {buffer.name}
    inputs = {name: b for name, b in kernel.buffers.items() if name in read and name not in kernel.outputs}
    outputs = {name: kernel.buffers[name] for name in kernel.outputs}
    following = [Store(s.buffer, s.index, value) for s, value in zip(stores, values)]
    loops = tuple(v for v in (tiles.batch, tiles.line, tiles.lane) if v is not None)
    made = Kernel(loops, [Stage((), list(following))], False, {buffer.name: buffer, **inputs, **outputs},
                  kernel.outputs, {}, kernel.origin)
    return flatten_loops(builder, made)


def _only_user(stores: list[Store], node: Node) -> Node | None:
    """The only node that uses ``node``; None if several do, or if it is stored."""
    if any(s.value is node for s in stores):
        return None
    users = [n for n in walk([s.value for s in stores]) if any(a is node for a in n.args)]
    return users[0] if len(users) == 1 else None


def _rounding(stores: list[Store], node: Node, dtype: torch.dtype) -> Node | None:
    """The cast to the operands' dtype, if that is the only use of a sum; else None."""
    user = _only_user(stores, node)
    return user if user is not None and user.op == "cast" and user.dtype is dtype else None


def _addend(kernel: Kernel, node: Node, sums: Node, dtype: torch.dtype) -> Operand | None:
    """The operand that ``node`` adds to the sums, if it is read from memory in the operands' dtype; else None."""
    if node.op != "add" or node.args[0] is node.args[1]:
        return None
    other = node.args[1] if node.args[0] is sums else node.args[0]
    if other.op == "cast" and other.args[0].dtype in HALF:
        other = other.args[0]
    if other.op != "load" or other.dtype is not dtype or other.attr[0] in kernel.outputs:
        return None
    buffer, index = other.attr
    tiles = kernel.tiles
    assert tiles is not None
    loops = [v for v in (tiles.batch, tiles.line, tiles.lane) if v is not None]
    offset = substitute(index, dict.fromkeys(loops, 0))
    strides = [ix.coefficient(index, v) for v in loops]
    if None in strides or ix.add(ix.dot([ix.atom(v) for v in loops], strides), offset) != index:
        return None
    sizes = tuple(v.size for v in loops)
    if len(loops) == 2 and strides[0] == 0:
        return Operand(buffer, sizes[1:], tuple(strides[1:]), offset)  # a bias, which the library's epilogue adds
    return Operand(buffer, sizes, tuple(strides), offset)


def _operand(matrix: Matrix, sizes: tuple[ix.Index, ...], depth: ix.Index, right: bool) -> Operand:
    """An operand of the product as a matrix or a batch of matrices.

    Args:
        sizes: the size of the batch, if there is one, and the operand's number of rows or columns.
        right: whether it is the right operand, whose first matrix dimension is the depth.
    """
    batch: tuple[ix.Index, ...] = ()
    if len(sizes) == 2:
        batch = matrix.batch or (0,)
    own = ((depth, matrix.depth), (sizes[-1], matrix.line))
    (n, a), (m, b) = own if right else own[::-1]
    return Operand(matrix.buffer, (*sizes[:-1], n, m), (*batch, a, b), matrix.offset)


__all__ = ["PRODUCT", "library_product", "tiles_or_library"]
