"""Decomposition of one-hot encoding into a scatter, as in eager.

On fake tensors, torch would compare the targets with all classes instead. A class out of range would then give a row of
zeros where eager raises.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dynamo_lite.backends.aot.functional import CannotFunctionalize

aten = torch.ops.aten


def one_hot(self: Tensor, num_classes: int = -1) -> Any:
    if type(num_classes) is int and not num_classes:
        raise CannotFunctionalize("one_hot of no classes")  # eager raises for any tensor
    if type(num_classes) is not int or num_classes < 1 or self.dtype is not torch.int64 or 0 in self.shape:
        return NotImplemented
    return self.new_zeros([*self.shape, num_classes]).scatter(-1, self.unsqueeze(-1), 1)


REQUIRED: dict[Any, Callable[..., Any]] = {aten.one_hot.default: one_hot}
