"""Which fake tensors say that they require gradients while a graph is recorded below autograd.

Aten's own kernels choose by it, under ``no_grad`` too: ``should_fold`` (aten/src/ATen/native/LinearAlgebra.cpp) between
one product of all lines and one for each of a batch.

Invariant: what a composite operation is recorded as is what eager computes, as far as it follows from these flags.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from dynamo_lite import torch_versions

_VIEWS = torch._C.DispatchKey.ADInplaceOrView
_TO_COPY = torch.ops.aten._to_copy.default


def know_cached_cast(func: Any, args: tuple[Any, ...], result: Any) -> None:
    """Has the cast of a parameter that autocast keeps require gradients: it is made with them, wherever that is
    (``cached_cast`` in aten/src/ATen/autocast_mode.cpp)."""
    if func is not _TO_COPY or not torch.is_grad_enabled() or not result.is_floating_point():
        return
    (x,) = args
    if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf and not x._is_view():
        result.requires_grad_()


@contextlib.contextmanager
def views_have_bases(func: torch._ops.OpOverload, args: tuple[Any, ...]) -> Iterator[None]:
    """Within a composite operation: a view says that it requires gradients if its base does, also without gradients.

    The dispatch key of views tells it of its base, which is excluded while a dispatch mode has an operation. The
    results of an operation that has a kernel for the key itself (``split`` of torch 2.11) are told when it returns.
    Where products of folded lines take no symbolic sizes, these are kept, and the product is one for each of the batch.
    """
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    symbolic = any(t._has_symbolic_sizes_strides for t in tensors)
    told = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _VIEWS.name)
    if told or not any(t.requires_grad for t in tensors) or symbolic and torch_versions.matmul_asks_for_numbers():
        yield
        return
    before = torch._C._dispatch_tls_is_dispatch_key_excluded(_VIEWS)
    exclude = torch._C._dispatch_tls_set_dispatch_key_excluded
    exclude(_VIEWS, False)
    try:
        yield
    finally:
        exclude(_VIEWS, before)
