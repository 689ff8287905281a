"""Decomposition of zeros without memory, which some of autograd's formulas return as a gradient, into zeros in memory.

Generated code reads memory, and a gradient may be written to. Eager keeps such a tensor without memory for as long as
operators take it as the number zero.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def in_memory(
    size: Sequence[Any], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    return aten.zeros.default(size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


REQUIRED: dict[Any, Callable[..., Any]] = {aten._efficientzerotensor.default: in_memory}
