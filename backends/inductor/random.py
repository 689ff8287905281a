"""Bernoulli masks (dropout) with torch's random numbers, in a fifth of torch's time.

Invariant: the numbers and the generator's final state are those of torch's ``bernoulli_``. A torch that draws
differently (one with MKL on an Intel processor does) is detected by one comparison, and then draws itself.
"""
from __future__ import annotations

import math
from typing import Any

import torch

from dynamo_lite.backends.aot.ops import RandomFill
from dynamo_lite.backends.inductor import _random
from dynamo_lite.runtime.neutral_state import probe

_BITS = 53
_TORCH = torch.ops.aten.bernoulli_.float


def bernoulli(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device, p: float = 0.5, *,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """As ``RandomFill(aten.bernoulli_.float)``: makes a tensor of that layout, filled by torch's generator."""
    out = torch.empty_strided(size, stride, dtype=dtype, device=device)
    if generator is None and draws_like_torch() and _fits(out, p):
        return _draw(out, p, torch.default_generator)
    return _TORCH(out, p, generator=generator)


def fast_form(target: Any) -> Any:
    """The function to call instead of ``target``; None if there is none."""
    return bernoulli if isinstance(target, RandomFill) and target.op is _TORCH else None


def _fits(out: torch.Tensor, p: float) -> bool:
    return out.dtype in (torch.float32, torch.bool) and out.device.type == "cpu" and out.is_contiguous() and 0 <= p <= 1


def _draw(out: torch.Tensor, p: float, generator: torch.Generator) -> torch.Tensor:
    state = generator.get_state()
    # The 53-bit number over 2**53 is less than p exactly if the number is below p * 2**53, which is exact.
    limit = math.ceil(math.ldexp(p, _BITS))
    _random.bernoulli(state.data_ptr(), out.data_ptr(), out.numel(), limit, out.dtype is torch.bool)
    generator.set_state(state)
    return out


@probe
def draws_like_torch() -> bool:
    """Whether this torch draws the same numbers as ``_random.c``."""
    for dtype in (torch.float32, torch.bool):
        for p in (0.9, 0.5, 0.1):
            mine, theirs = torch.Generator().manual_seed(7), torch.Generator().manual_seed(7)
            for count in (5, 1000, 20_000):
                want = torch.empty(count, dtype=dtype).bernoulli_(p, generator=theirs)
                if not torch.equal(_draw(torch.empty(count, dtype=dtype), p, mine), want):
                    return False
            if not torch.equal(mine.get_state(), theirs.get_state()):
                return False
    return True
