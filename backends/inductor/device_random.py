"""The random number generator of a GPU as our kernels use it: takes the numbers that eager's call would take, and
checks that this torch draws as our kernels do.

``lowering.random`` describes the computation. Eager's kernels run as many threads as the device holds, each with its
own stream of numbers, so the numbers depend on the device. A torch that maps elements to threads in another way is
detected by comparing once; it then draws itself.

Invariant: after ``reserve``, the generator is in the state in which eager's call would leave it.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.ops import philox
from dynamo_lite.runtime.neutral_state import probe

_BLOCK = 256  # threads per block of eager's kernels
_AT_ONCE = 4  # numbers that a thread draws at a time
_VECTOR = 16  # bytes that a thread of eager's dropout loads at a time


def reserve(count: int, device: torch.device) -> torch.Tensor:
    """Takes the random numbers of one of eager's calls from the device's generator.

    Args:
        count: number of elements of the call.

    Returns:
        a tensor on the host: the seed, the first counter of each thread's stream, and the number of threads.
    """
    generator = generator_of(device)
    seed, offset = generator.initial_seed(), generator.get_offset()
    if offset % _AT_ONCE:
        raise RuntimeError(f"the offset of {device}'s generator is {offset}, no multiple of {_AT_ONCE}")
    threads = min(-(-count // _BLOCK) * _BLOCK, threads_of(device))
    generator.set_offset(offset + ((count - 1) // (threads * _AT_ONCE) + 1) * _AT_ONCE)
    return torch.tensor([seed - (seed >> 63 << 64), offset // _AT_ONCE, threads], device="cpu")


def generator_of(device: torch.device) -> torch.Generator:
    """The generator that eager's calls on a device draw from."""
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


@functools.cache
def threads_of(device: torch.device) -> int:
    """Number of threads of eager's kernels that a device holds."""
    found = torch.cuda.get_device_properties(device)
    return int(found.multi_processor_count * (found.max_threads_per_multi_processor // _BLOCK) * _BLOCK)


def vector_of(count: int, itemsize: int) -> int:
    """Number of elements that a thread of eager's dropout loads at a time from memory aligned to 16 bytes."""
    vector = _VECTOR // itemsize
    while count % vector:
        vector //= 2
    return vector


@probe
def draws_as_kernels_do(device: torch.device) -> bool:
    """Whether this torch draws on a device the numbers that our kernels compute. Tested on samples of the elements of
    several sizes: less than a block, and more than one round of all threads, for each width of dropout's loads."""
    most = threads_of(device)
    generator = generator_of(device)
    before = generator.get_state()
    try:
        generator.manual_seed(0x9E3779B97F4A7C15)
        sizes = (5, 1000, 9 * most + 8, 9 * most + 4, 9 * most + 2, 9 * most + 1)
        return all(_same(device, count, dtype) for count in sizes for dtype in (torch.float32, torch.bfloat16))
    finally:
        generator.set_state(before)


def _same(device: torch.device, count: int, dtype: torch.dtype) -> bool:
    """Whether eager's uniform numbers and dropout of ``count`` elements are those that are computed here."""
    places = torch.arange(0, count, max(count // 4096, 1))
    state = _peeked(device, count)
    drawn = torch.rand(count, device=device)[places.to(device)].cpu()
    number = numbers_at(places, state, 1)
    if not torch.equal(drawn, torch.where(number == 1, 0.0, number)) or not _is_after(device, state, count):
        return False
    state = _peeked(device, count)
    mask = torch.native_dropout(torch.ones(count, device=device, dtype=dtype), 0.5, True)[1][places.to(device)].cpu()
    number = numbers_at(places, state, vector_of(count, dtype.itemsize))
    return torch.equal(mask, number < 0.5) and _is_after(device, state, count)


def _peeked(device: torch.device, count: int) -> torch.Tensor:
    """The result of ``reserve``, without advancing the generator."""
    generator = generator_of(device)
    offset = generator.get_offset()
    state = reserve(count, device)
    generator.set_offset(offset)
    return state


def _is_after(device: torch.device, state: torch.Tensor, count: int) -> bool:
    """Whether the generator is in the state in which ``reserve`` would have left it."""
    threads = int(state[2])
    after = (int(state[1]) + (count - 1) // (threads * _AT_ONCE) + 1) * _AT_ONCE
    return bool(generator_of(device).get_offset() == after)


def numbers_at(places: torch.Tensor, state: torch.Tensor, vector: int) -> Any:
    """The numbers in (0, 1] of elements at given places in memory.

    Args:
        places: indices of the elements.
        state: the result of ``reserve``.
        vector: number of elements that a thread loads at a time.
    """
    seed, first, threads = state
    group, within = places // vector, places % vector
    turn, thread = group // threads, group % threads
    if vector == 1:
        within, turn = turn % _AT_ONCE, turn // _AT_ONCE
    else:
        turn = turn * max(vector // _AT_ONCE, 1) + within // _AT_ONCE
        within = within % _AT_ONCE
    bits = philox(first + turn, thread, seed, within)
    return bits.to(torch.float32) * 2.0**-32 + 2.0**-33
