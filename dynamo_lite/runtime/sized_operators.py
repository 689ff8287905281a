"""Operators of torch whose size is an int, defined again with a size that may be a symbol: ``linspace``, windows,
``one_hot``, ``tril_indices``, ``fftfreq``, pooling of a whole image. Graphs call these operators
(``torch.ops.dynamo_lite``), which call torch's.

They are defined when they are first needed, which takes 30 ms. Invariant: with an int as the size, an operator here
returns what torch's operator of the same name returns.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch

NAMESPACE = "dynamo_lite"
_WINDOWS = {
    "hann_window": ("default", "periodic"), "blackman_window": ("default", "periodic"),
    "bartlett_window": ("default", "periodic"), "kaiser_window": ("default", "periodic", "beta"),
    "hamming_window": ("default", "periodic", "periodic_alpha", "periodic_alpha_beta"),
}


def _line(size_at: int, size_of: Callable[[Any], Any] = lambda size: size) -> Callable[..., torch.Tensor]:
    """The fake implementation of an operator that makes a one-dimensional tensor.

    Args:
        size_at: index of the argument that determines the number of elements.
        size_of: computes the number of elements from that argument.
    """

    def fake(*args: Any, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> torch.Tensor:
        size = size_of(args[size_at])
        torch._check(size >= 0)
        return torch.empty(size, dtype=dtype, device=device)

    return fake


def _half(size: Any) -> Any:
    """Number of frequencies of a real signal, with the rounding of C++'s division."""
    return size // 2 + 1 if size >= 0 else 1 - -size // 2


def _one_hot(x: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    return x.new_empty((*x.shape, num_classes), dtype=torch.int64)


def _in_lower_triangle(row: Any, col: Any, offset: Any) -> Any:
    """Number of elements of a matrix on and below a diagonal, counted as torch counts them."""
    if row == 0 or col == 0:
        return 0
    in_first = min(col, 1 + offset) if offset > 0 else int(row + offset > 0)
    in_last = max(0, min(col, row + offset))
    rows = max(0, min(row, row + offset))
    growing = in_last - in_first + 1
    below = rows - growing
    return (in_first + in_last) * growing // 2 + (below * col if below > 0 else 0)


def _indices(upper: bool) -> Callable[..., torch.Tensor]:
    """The fake implementation of an operator that returns the indices of a triangle."""

    def fake(
        row: Any, col: Any, offset: Any = 0, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
    ) -> torch.Tensor:
        torch._check(row >= 0 and col >= 0)
        size = row * col - _in_lower_triangle(row, col, offset - 1) if upper else _in_lower_triangle(row, col, offset)
        return torch.empty((2, size), dtype=dtype or torch.int64, device=device)

    return fake


_POOLS = (torch.ops.aten.avg_pool1d, torch.ops.aten.avg_pool2d, torch.ops.aten.avg_pool3d)


def _pool_whole(x: torch.Tensor, dims: int) -> torch.Tensor:
    return _POOLS[dims - 1].default(x, list(x.shape[-dims:]))


def _pool_whole_backward(grad: torch.Tensor, x: torch.Tensor, dims: int) -> torch.Tensor:
    if dims == 3:
        return torch.ops.aten.avg_pool3d_backward(grad, x, list(x.shape[-3:]), [], [0], False, True, None)
    if dims == 2:
        return torch.ops.aten.avg_pool2d_backward(grad, x, list(x.shape[-2:]), [], [0], False, True, None)
    return _pool_whole_backward(grad.unsqueeze(-2), x.unsqueeze(-2), 2).squeeze(-2)


def _define_whole_pool(library: torch.library.Library) -> Any:
    """Defines ``avg_pool`` of contiguous tensors with a window that covers all of the last dimensions, and its
    gradient. Both are linear, and each is the gradient of the other. Like torch's, the gradient operator takes the
    input tensor, which autograd saves, so that a mutation of it or a second backward pass raises torch's error."""
    library.define("avg_pool_whole(Tensor self, int dims) -> Tensor")
    library.impl("avg_pool_whole", _pool_whole, "CompositeExplicitAutograd")
    library.define("avg_pool_whole_backward(Tensor grad, Tensor self, int dims) -> Tensor")
    library.impl("avg_pool_whole_backward", _pool_whole_backward, "CompositeExplicitAutograd")
    forward, backward = f"{NAMESPACE}::avg_pool_whole", f"{NAMESPACE}::avg_pool_whole_backward"

    def fake(x: torch.Tensor, dims: int) -> torch.Tensor:
        return x.new_empty((*x.shape[:-dims], *[1] * dims))

    def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.dims = inputs[1]

    def keep_dims(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.dims = inputs[2]

    def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return torch.ops.dynamo_lite.avg_pool_whole_backward(grad, ctx.saved_tensors[0], ctx.dims), None

    def second(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return torch.ops.dynamo_lite.avg_pool_whole(grad, ctx.dims), None, None

    torch.library.register_fake(forward, fake, lib=library)
    torch.library.register_fake(backward, lambda grad, x, dims: x.new_empty(x.shape), lib=library)
    torch.library.register_autograd(forward, gradient, setup_context=keep, lib=library)
    torch.library.register_autograd(backward, second, setup_context=keep_dims, lib=library)
    return torch.ops.dynamo_lite.avg_pool_whole.default


def _define(library: torch.library.Library, name: str, overload: str, size: str, fake: Callable[..., Any]) -> Any:
    """Defines an operator that takes symbols for the arguments whose names match `size`; its floats may depend on
    sizes."""
    original = getattr(getattr(torch.ops.aten, name), overload)
    schema = re.sub(rf"\bint ({size})\b", r"SymInt \1", str(original._schema).removeprefix("aten::"))
    schema = re.sub(r"\bfloat (\w+)", r"Scalar \1", schema)
    library.define(schema)
    full = schema.partition("(")[0]
    library.impl(full, original, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{full}", fake, lib=library)
    return getattr(getattr(getattr(torch.ops, NAMESPACE), name), overload)


def original_of(operator: Any) -> Any:
    """The operator of torch that one of these stands for; any other operator or function as it is."""
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace != NAMESPACE:
        return operator
    name, _, overload = operator.name().removeprefix(f"{NAMESPACE}::").partition(".")
    return getattr(getattr(torch.ops.aten, name, None), overload or "default", operator)


@functools.cache
def operators() -> dict[str, tuple[Any, ...]]:
    """The operators by torch's name; overloads of a name take one argument more each. The first call defines them."""
    library = _library()
    return {
        "linspace": (_define(library, "linspace", "default", "steps", _line(2)),),
        "logspace": (_define(library, "logspace", "default", "steps", _line(2)),),
        "tril_indices": (_define(library, "tril_indices", "default", "row|col", _indices(upper=False)),),
        "triu_indices": (_define(library, "triu_indices", "default", "row|col", _indices(upper=True)),),
        "fft_fftfreq": (_define(library, "fft_fftfreq", "default", "n", _line(0)),),
        "fft_rfftfreq": (_define(library, "fft_rfftfreq", "default", "n", _line(0, _half)),),
        "avg_pool_whole": (_define_whole_pool(library),),
        "one_hot": (_define(library, "one_hot", "default", "num_classes", _one_hot),),
        **{name: tuple(_define(library, name, overload, "window_length", _line(0)) for overload in overloads)
           for name, overloads in _WINDOWS.items()},
    }


@functools.cache
def _library() -> torch.library.Library:
    """The library object; it is cached because its operators exist only as long as it lives."""
    return torch.library.Library(NAMESPACE, "DEF")
