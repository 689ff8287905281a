"""A check, in C, that tensors have a known class, dtype, device, sizes and strides, and memory of their own kind.

Backends use it for the tensors that autograd's engine hands to a backward pass, which no guard has seen. Invariant: a
tensor that passes can be read by its address: it is no subclass, no wrapper of ``torch.func``'s, not sparse, and has no
conjugate or negative bit; nor is it one of zeros without memory.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo_lite import _guards

Check = Callable[[tuple[Any, ...], None, dict[str, Any], dict[str, Any]], tuple[bool, Any]]

_NOT_PLAIN = _guards.TENSOR_CONJ | _guards.TENSOR_NEG | _guards.TENSOR_ZERO


def check_like(examples: Sequence[Any]) -> Check | None:
    """A function that checks whether a tuple has tensors like these, and None where these are None.

    Called as ``check(values, None, {}, {})``, it returns a tuple whose first item says so. None if DLPack can't
    describe one of the examples, so that it can't be checked.
    """
    steps: list[tuple[Any, ...]] = []
    for at, example in enumerate(examples):
        steps.append(("load_local", at, at))
        if example is None:
            steps.append(("is", at, None))
            continue
        if type(example) is not torch.Tensor or example.layout is not torch.strided or example.is_quantized:
            return None
        try:
            code, bits, device, index, shape, strides = _guards.tensor_spec(example)
        except (BufferError, RuntimeError):
            return None
        steps.append(("tensor", at, torch.Tensor, code, bits, device, index, shape, strides, None, _NOT_PLAIN))
    check = _guards.GuardProgram(steps, 0, len(examples)).check
    return check if check(tuple(examples), None, {}, {})[0] else None
