"""Suspends the program's hooks on tensors that autograd saves (``torch.autograd.graph.saved_tensors_hooks``) while a
compile runs autograd on fake tensors.

Invariant: afterwards the same hooks are active in the same order, whatever was raised.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def saved_tensor_hooks_suspended() -> Iterator[None]:
    """A context in which tensors that autograd saves are not passed to the program's hooks."""
    autograd = torch._C._autograd
    hooks = []
    while (pair := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(pair)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)
