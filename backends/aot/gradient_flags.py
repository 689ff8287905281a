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


class GradientFlags:
    """Those of one recording. It does nothing where autograd is on: torch sets them then.

    Args:
        below_autograd: whether autograd is off for the whole of the recording.
    """

    def __init__(self, below_autograd: bool) -> None:
        self._is_needed = below_autograd
        self._within_views = 0  # operations that have a kernel for the dispatch key of views

    def set_on_cast(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Has the cast of a parameter that autocast keeps require gradients: it is made with them, wherever that is
        (``cached_cast`` in aten/src/ATen/autocast_mode.cpp)."""
        if func is not _TO_COPY or not self._is_needed or not torch.is_grad_enabled():
            return
        (x,) = args
        leaf = isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf and not x._is_view()
        if leaf and result.is_floating_point():
            result.requires_grad_()

    @contextlib.contextmanager
    def kept_by_views(self, func: torch._ops.OpOverload, args: tuple[Any, ...]) -> Iterator[None]:
        """Within a composite operation views require gradients if their base does, also without gradients.

        A view learns its base from the kernel of a dispatch key, which is excluded while a dispatch mode has an
        operation. Where an operation has such a kernel itself (``split`` of torch 2.11), that sets the base of what
        the operation returns, and a tensor that has one already would be an error. In torch 2.11, whose ``matmul``
        takes no symbolic sizes where it folds lines, nothing is set for these: the product is then one for each of the
        batch.
        """
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        symbolic = any(t._has_symbolic_sizes_strides for t in tensors)
        sets_bases = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _VIEWS.name)
        skipped = not self._is_needed or self._within_views or not any(t.requires_grad for t in tensors)
        before = torch._C._dispatch_tls_is_dispatch_key_excluded(_VIEWS)
        if not (sets_bases or skipped or symbolic and torch_versions.matmul_asks_for_numbers()):
            torch._C._dispatch_tls_set_dispatch_key_excluded(_VIEWS, False)
        self._within_views += sets_bases
        try:
            yield
        finally:
            self._within_views -= sets_bases
            torch._C._dispatch_tls_set_dispatch_key_excluded(_VIEWS, before)
