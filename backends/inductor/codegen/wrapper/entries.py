"""Descriptions of C entries: the layouts and offsets of tensors that they are given.

Invariant: a layout that an entry makes is a constant, or a formula of the sizes that the entry is called with.
"""
from __future__ import annotations

import dataclasses

import torch

from dynamo_lite.backends.inductor.program import BufferSpec, Expr, KernelCall

# c10::ScalarType, whose numbers are part of torch's serialized formats.
DTYPE_CODES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15}


@dataclasses.dataclass(frozen=True, slots=True)
class EntrySpec:
    """A generated C entry: its symbol and how it is to be called.

    Attributes:
        symbol: the C function's name.
        tensors, sizes: number of tensors and of sizes that it is called with.
        layouts: (sizes, strides, dtype code) of each tensor that it makes.
        release_gil: whether its work is large enough for releasing the GIL.
        kept: number of the tensors that it makes and returns; a last one that is not returned is the arena of buffers
            that live only in this entry.
        faults: see ``Program.faults``; empty if none of its kernels reports any.
        label: its name in torch's profiler: the operations of its kernels.
    """

    symbol: str
    tensors: int
    sizes: int
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]
    release_gil: bool
    kept: int
    faults: tuple[tuple[type[Exception], str], ...] = ()
    label: str = ""


def static_layout(spec: BufferSpec) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """The layout in the form that entries take; None if entries can't make it."""
    code = DTYPE_CODES.get(spec.dtype)
    if code is None or spec.device.type != "cpu" or not all(isinstance(n, int) for n in (*spec.size, *spec.stride)):
        return None
    return tuple(map(int, spec.size)), tuple(map(int, spec.stride)), code


_LONGEST_LABEL = 120  # a profiler's table truncates names anyway


def label_of(symbol: str, calls: list[KernelCall]) -> str:
    text = "; ".join(call.origin or call.symbol for call in calls)
    return f"dynamo_lite {symbol}: {text if len(text) <= _LONGEST_LABEL else text[:_LONGEST_LABEL - 3] + '...'}"


def c_text(expr: Expr, itemsize: int) -> str:
    """An offset in elements as C source of the offset in bytes."""
    if isinstance(expr, int):
        return str(expr * itemsize)
    raise NotImplementedError("an offset that depends on sizes")
