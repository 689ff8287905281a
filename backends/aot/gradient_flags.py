"""Sets ``requires_grad`` on fake tensors while a graph is recorded below autograd.

Aten's own kernels depend on that flag, even under ``no_grad``: ``should_fold`` (aten/src/ATen/native/LinearAlgebra.cpp)
chooses between one matrix product of all rows and one for each matrix of a batch.

Invariant: as far as it depends on these flags, a composite operation is recorded as the operations that eager runs.
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
    """The flags during one recording. Does nothing where autograd is on, as torch sets them then.

    Args:
        below_autograd: whether autograd is off during the whole recording.
    """

    def __init__(self, below_autograd: bool) -> None:
        self._is_needed = below_autograd
        self._within_views = 0  # nesting depth of operations that have a kernel for the dispatch key of views

    def set_on_cast(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Sets the flag on autocast's cast of a parameter if autocast caches it: such casts are made under autograd,
        wherever they occur (``cached_cast`` in aten/src/ATen/autocast_mode.cpp)."""
        if func is not _TO_COPY or not self._is_needed or not torch.is_grad_enabled():
            return
        (x,) = args
        leaf = isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf and not x._is_view()
        if leaf and result.is_floating_point():
            result.requires_grad_()

    @contextlib.contextmanager
    def kept_by_views(self, func: torch._ops.OpOverload, args: tuple[Any, ...]) -> Iterator[None]:
        """Within a composite operation, views require gradients if their base does, even under ``no_grad``.

        A view gets its base from the kernel of a dispatch key, which is excluded while a dispatch mode handles an
        operation; here that key is included again. If an operation has such a kernel itself (``split`` in torch 2.11),
        that kernel sets the base of its results, and fails for a tensor that already has one, so nothing is done.
        Nor is anything done for symbolic sizes in torch 2.11, whose ``matmul`` does not accept these where it folds
        rows: there is then one product for each matrix of the batch.
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
