"""Decomposition of random masks: they are drawn as booleans, which take a quarter of the memory of float32 masks, also
when they are saved for the backward pass.

Invariant: the numbers drawn, and the generator's state afterwards, are the same as for a mask of floats.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_SAME_NUMBERS = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes for which torch draws the same random numbers as for booleans."""


def bernoulli_(self: Tensor, p: float = 0.5, *, generator: Any = None) -> Any:
    if self.dtype not in _SAME_NUMBERS or generator is not None or not self.is_contiguous() or (
            self.device.type != "cpu"):
        # The numbers drawn depend on the layout and, on a GPU, on the dtype.
        return NotImplemented
    drawn = torch.empty(self.shape, dtype=torch.bool, device=self.device)
    aten.bernoulli_.float(drawn, p)
    return self.copy_(drawn)


FOR_KERNELS: dict[Any, Callable[..., Any]] = {aten.bernoulli_.float: bernoulli_}
