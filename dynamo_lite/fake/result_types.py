"""Dtypes of results for operands of different dtypes, found by running eager's kernels.

torch's metadata rules promote the operands' dtypes where many kernels take the first operand's (the losses and their
gradients, ``normal``, ``addr``). A program sees the dtype, and generated code would read the result's memory with the
wrong dtype. So the operation itself runs on small stand-ins, once for each combination of operation, dtypes and
arguments that are not tensors.

Invariant: an operation whose tensors and dtype arguments are all of one dtype is not run, and nothing but dtypes is
taken from the answer.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import no_dispatch
from torch.utils import _pytree as pytree

from dynamo_lite.fake import refusals
from dynamo_lite.runtime import signal_handlers

# The dtype of each result, None for a result that is not a tensor.
Types = tuple[torch.dtype | None, ...]
_MOST_ENTRIES = 4096
# Eager's dtypes by the keys that `_key` makes; None if the stand-ins gave no answer.
_answers: dict[Any, Types | None] = {}


def of_eager(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Types | None:
    """The dtypes of an operation's results; None where its metadata rule decides them."""
    types = set(_types(args, kwargs))
    if len(types) < 2 or func.namespace != "aten" or any(r.alias_info is not None for r in func._schema.returns):
        return None
    fakes = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if not fakes or not all(map(refusals.is_plain, fakes)) or func in refusals.OPAQUE:
        return None
    key = (func, _key(args), _key(tuple(kwargs.items())))
    if key not in _answers:
        answer = _ask(func, args, kwargs, fakes, types)
        if len(_answers) >= _MOST_ENTRIES:
            _answers.clear()
        _answers[key] = answer
    return _answers[key]


def _types(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[torch.dtype]:
    """The dtypes of the tensors that an operator gets, alone or in lists, and the dtypes among its other arguments."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            yield value.dtype
        elif isinstance(value, torch.dtype):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (part.dtype for part in value if isinstance(part, torch.Tensor))


def _key(value: Any) -> Any:
    """The properties of an argument that a result's dtype may depend on, as part of a key."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim() == 0
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    if value is None or isinstance(value, (bool, int, str, torch.dtype)):
        return type(value), value
    return type(value)


def _ask(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], fakes: list[torch.Tensor], types: set[torch.dtype]
) -> Types | None:
    """The dtypes that eager's kernel gives. Large tensors are replaced by small ones of the same ranks first. If their
    sizes do not suit the operation, the real sizes are tried, provided that floats of several dtypes are mixed: other
    mixtures are of elements and indices, for which the metadata rules are right."""
    several = sum(t.is_floating_point or t.is_complex for t in types) > 1
    sizes = [refusals.shrunk(fakes)] if refusals.are_large(fakes) else [None]
    if several and sizes[0] is not None:
        sizes.append({n: n for t in fakes for n in t.shape})
    with no_dispatch(), torch._C._AutoDispatchBelowAutograd(), refusals.unnoticed(func):
        for table in sizes:
            for content in refusals.contents(func):
                real_args, real_kwargs = refusals.stand_ins(args, kwargs, table, content)
                try:
                    result = func(*real_args, **real_kwargs)
                except Exception as error:
                    signal_handlers.pass_on(error)
                    continue
                parts = result if isinstance(result, (tuple, list)) else [result]
                return tuple(part.dtype if isinstance(part, torch.Tensor) else None for part in parts)
    return None
