"""Lowerings of random numbers on a GPU: kernels compute eager's numbers where they are used, from the generator's seed
and offset.

Eager's CUDA kernels give each thread a stream of Philox4x32-10, from which it draws four numbers at a time
(``aten/src/ATen/native/cuda``). Which thread draws an element's number, and at which position of its stream, follows
from the element's position in memory, the number of threads and, for dropout, how many elements a thread loads at once.

A call reserves its numbers when its turn comes (``device_random.reserve``). This is a library call whose result, three
integers on the host, is passed to kernels as arguments. So draws by kernels and by the library keep eager's order.

Invariant: values and the generator's state are eager's, bit for bit. Cases in which this is not certain are left to the
library: sizes that are symbolic or exceed 32 bits, float64, memory that is not dense, numbers that a compiler may round
in two ways (normal distributions; uniform ones whose range neither begins at 0 nor has a power of two as its width).
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dynamo_lite.backends.aot.ops import RandomFill
from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.device_random import reserve, vector_of
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.layouts import is_dense
from dynamo_lite.backends.inductor.lowering.values import Shape, TensorValue, shape_vars
from dynamo_lite.backends.inductor.lowering_registry import lowering_of, register_lowering

aten = torch.ops.aten

_FLOATS = HALF | {torch.float32}
_MOST = 2**31 - 1  # largest number of elements that eager's kernels index with 32 bits, and draw for in one launch
_LANES = 4  # numbers that one evaluation of Philox gives


# ---------------------------------------------------------------- numbers
def _uniform(g: GraphLowering, shape: Shape, stride: Shape, device: torch.device, vector: int = 1) -> Node:
    """Uniformly distributed float32 numbers in (0, 1], as ``curand_uniform4`` makes them.

    Args:
        stride: strides of the memory that eager's kernel fills.
        vector: number of consecutive elements that a thread of eager's kernel loads at once.
    """
    seed, first, threads = _reserved(g, math.prod(n for n in shape if isinstance(n, int)), device)
    ops = g.ops

    def whole(n: int) -> Node:
        return ops.const(n, torch.int64)

    place = ops.index(ix.dot(shape_vars(shape), stride))
    group = ops.op("shr", place, whole(vector.bit_length() - 1)) if vector > 1 else place
    turn, thread = ops.op("tdiv", group, threads), ops.op("tmod", group, threads)
    if vector == 1:
        lane, step = ops.op("and", turn, whole(_LANES - 1)), ops.op("shr", turn, whole(2))
    else:
        within = ops.op("and", place, whole(vector - 1))
        lane, step = within, turn
        if vector > _LANES:
            # A thread draws several times for the elements that it loads at once.
            lane = ops.op("and", within, whole(_LANES - 1))
            step = ops.op("add", ops.op("mul", turn, whole(vector // _LANES)), ops.op("shr", within, whole(2)))
    bits = ops.op("philox", ops.op("add", first, step), thread, seed, lane)
    number = ops.op("mul", ops.cast(bits, torch.float32), ops.const(2.0**-32, torch.float32))
    return ops.op("add", number, ops.const(2.0**-33, torch.float32))


def _reserved(g: GraphLowering, count: int, device: torch.device) -> list[Node]:
    """The seed, the first counter and the number of threads that eager would use for ``count`` elements."""
    buffer = g.new_buffer((3,), (1,), torch.int64, torch.device("cpu"))
    buffer.device = torch.device("cpu")
    g.emit(prog.ExternCall(reserve, (count, device), {}, (buffer.name,), ", ".join(g.origin)))
    return [g.ops.load(buffer.name, k, torch.int64) for k in range(3)]


def _is_served(shape: Sequence[ix.Index], stride: Sequence[ix.Index]) -> bool:
    """Whether eager fills memory of this layout by one launch, in the order of the elements in memory."""
    numbers = [n for n in (*shape, *stride) if isinstance(n, int)]
    if len(numbers) < len(shape) + len(stride):
        return False
    return 0 < math.prod(numbers[:len(shape)]) <= _MOST and is_dense(tuple(shape), tuple(stride))


# ---------------------------------------------------------------- fills
def _filled_uniformly(
    g: GraphLowering, shape: Shape, stride: Shape, dtype: torch.dtype, device: torch.device, low: float, high: float
) -> Any:
    """A new tensor of numbers that are uniformly distributed in [low, high)."""
    if dtype not in _FLOATS or not _is_served(shape, stride):
        return NotImplemented
    low, high = (torch.tensor(n, dtype=dtype).item() for n in (low, high))
    width = torch.tensor(high - low, dtype=torch.float64).to(dtype).item()
    if not (low == 0 or width and math.frexp(width)[0] == 0.5) or not math.isfinite(width):
        return NotImplemented
    number = _uniform(g, shape, stride, device)
    single = torch.float32
    number = g.ops.op("add", g.ops.op("mul", number, g.ops.const(width, single)), g.ops.const(low, single))
    value = g.ops.cast(number, dtype)
    # Like eager's kernel, replace the upper end of the range by the lower one, so that the range is [low, high).
    is_last = g.ops.op("eq", value, g.ops.const(high, dtype))
    return TensorValue(shape, dtype, g.ops.op("where", is_last, g.ops.const(low, dtype), value))


def _filled_with_truths(
    g: GraphLowering, shape: Shape, stride: Shape, dtype: torch.dtype, device: torch.device, p: float
) -> Any:
    """A new tensor of numbers that are 1 (true) with probability ``p``, otherwise 0."""
    if dtype is torch.float64 or not 0 <= p <= 1 or not _is_served(shape, stride):
        return NotImplemented
    number = _uniform(g, shape, stride, device)
    drawn = g.ops.op("lt", number, g.ops.const(p, torch.float32))
    return TensorValue(shape, dtype, g.ops.cast(drawn, dtype))


@register_lowering(RandomFill(aten.uniform_.default), random=True)
def filled_uniformly(
    g: GraphLowering, size: Shape, stride: Shape, dtype: torch.dtype, device: torch.device, low: float = 0.0,
    high: float = 1.0, *, generator: Any = None,
) -> Any:
    if generator is not None:
        return NotImplemented
    return _filled_uniformly(g, tuple(size), tuple(stride), dtype, device, low, high)


@register_lowering(RandomFill(aten.bernoulli_.float), random=True)
def filled_with_truths(
    g: GraphLowering, size: Shape, stride: Shape, dtype: torch.dtype, device: torch.device, p: float = 0.5, *,
    generator: Any = None,
) -> Any:
    if generator is not None:
        return NotImplemented
    return _filled_with_truths(g, tuple(size), tuple(stride), dtype, device, p)


# ---------------------------------------------------------------- new tensors
@register_lowering(aten.rand.default, random=True)
def rand(
    g: GraphLowering, size: Sequence[ix.Index], dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Any:
    (fake,) = g.results()
    return _filled_uniformly(g, tuple(size), _stride(g, size), fake.dtype, fake.device, 0.0, 1.0)


@register_lowering(aten.rand_like.default, random=True)
def rand_like(
    g: GraphLowering, self: TensorValue, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, memory_format: Any = None,
) -> Any:
    (fake,) = g.results()
    return _filled_uniformly(g, self.shape, _stride(g, self.shape), fake.dtype, fake.device, 0.0, 1.0)


@register_lowering(aten.bernoulli.p, random=True)
def bernoulli(g: GraphLowering, self: TensorValue, p: float, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    (fake,) = g.results()
    return _filled_with_truths(g, self.shape, _stride(g, self.shape), fake.dtype, fake.device, p)


def _stride(g: GraphLowering, shape: Sequence[ix.Index]) -> Shape:
    """Eager's strides of the result, contiguous ones if they are not known."""
    return g.wanted_stride(tuple(shape)) or ix.contiguous_strides(shape)


# ---------------------------------------------------------------- dropout
@register_lowering(aten.native_dropout.default, random=True)
def native_dropout(g: GraphLowering, input: TensorValue, p: float, train: bool | None) -> Any:
    shape, stride = input.shape, ix.contiguous_strides(input.shape)
    if train is False or not 0 <= p < 1 or input.dtype not in _FLOATS or not _is_served(shape, stride):
        return NotImplemented
    count = math.prod(n for n in shape if isinstance(n, int))
    vector = vector_of(count, input.dtype.itemsize)
    # How many elements a thread loads at once depends on the operand's alignment, which is only certain for memory that
    # eager has just allocated.
    if g.wanted_stride(shape) not in (None, stride) or vector > 1 and not _is_allocated(g.operand(0)):
        return NotImplemented
    kept = torch.tensor(1 - p, dtype=torch.float32).item()
    scale = torch.tensor(1 / kept, dtype=torch.float32).item()
    drawn = g.ops.op("lt", _uniform(g, shape, stride, input.device, vector), g.ops.const(kept, torch.float32))
    mask = TensorValue(shape, torch.bool, drawn, device=input.device)
    g.realize_if_dear(mask)
    single = torch.float32
    wide, chosen = g.ops.cast(input.node, single), g.ops.cast(mask.node, single)
    value = g.ops.op("mul", g.ops.op("mul", wide, chosen), g.ops.const(scale, single))
    return TensorValue(shape, input.dtype, g.ops.cast(value, input.dtype)), mask


def _is_allocated(node: torch.fx.Node) -> bool:
    """Whether the tensor is in eager at the beginning of memory that an operation of the graph has allocated: it is not
    an input, not a part of another tensor, and not a value that is written into one."""
    count = node.meta["val"].numel()
    while True:
        if node.meta["val"].numel() != count or node.op != "call_function" or node.meta["val"].storage_offset() or any(
                _writes(user, node) for user in node.users):
            return False
        lowering = lowering_of(node.target)
        if lowering is None or not lowering.view:
            return True
        node = node.all_input_nodes[0]


def _writes(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether the user writes the node's value into a tensor or a part of one."""
    if user.target is aten.copy_.default:
        return user.args[1] is node
    name = getattr(user.target, "__name__", "").partition(".")[0]
    return name.endswith("_scatter") and user.args[0] is not node
