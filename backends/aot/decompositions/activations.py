"""Decomposition of the leaky ReLU with a random slope outside of training, where the slope is the middle of its range.

Invariant: the result is that of eager, which then calls the leaky ReLU, too, and draws nothing.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def rrelu_with_noise(
    self: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False,
    generator: Any = None,
) -> Any:
    if training or noise.shape != self.shape:
        return NotImplemented
    return aten.leaky_relu.default(self.contiguous(), (lower + upper) / 2)  # eager's result is contiguous


def rrelu_with_noise_backward(
    grad_output: Tensor, self: Tensor, noise: Tensor, lower: float, upper: float, training: bool, self_is_result: bool
) -> Any:
    if training:
        return NotImplemented
    return aten.leaky_relu_backward.default(grad_output, self, (lower + upper) / 2, self_is_result)


FOR_KERNELS: dict[Any, Callable[..., Any]] = {
    aten.rrelu_with_noise.default: rrelu_with_noise,
    aten.rrelu_with_noise_backward.default: rrelu_with_noise_backward,
}
