"""How each kind of reduction starts, takes in a value, and joins two partial results."""

from __future__ import annotations

import math

import torch

from dynamo_lite.backends.inductor.codegen.cpp.expressions import const_text


def start(kind: str, dtype: torch.dtype) -> str:
    """The value that changes nothing."""
    if kind in ("max", "min", "argmax", "argmin"):
        sign = -1 if kind in ("max", "argmax") else 1
        if dtype.is_floating_point:
            return const_text(sign * math.inf, dtype)
        if dtype is torch.bool:
            return const_text(sign > 0, dtype)
        info = torch.iinfo(dtype)
        return const_text(info.min if sign < 0 else info.max, dtype)
    return const_text({"sum": 0, "prod": 1, "any": False, "all": True}[kind], dtype)


def join(kind: str, dtype: torch.dtype, a: str, b: str) -> str:
    """``a`` and ``b`` reduced, scalars or vectors."""
    if kind in ("sum", "prod"):
        return f"{a} {'+' if kind == 'sum' else '*'} {b}"
    if kind in ("any", "all"):
        return f"mask_{'or' if kind == 'any' else 'and'}({a}, {b})"
    return f"{kind}_({a}, {b})"


def better(kind: str, dtype: torch.dtype, a: str, b: str) -> str:
    """Whether ``a`` beats ``b`` for argmax and argmin: NaN beats all, an equal value does not."""
    sign = ">" if kind == "argmax" else "<"
    if not dtype.is_floating_point:
        return f"{a} {sign} {b}"
    return f"mask_or({a} {sign} {b}, mask_and({a} != {a}, {b} == {b}))"
