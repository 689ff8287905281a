"""Operators of users' libraries that do nothing but write to tensors which they are given.

A library may register kernels of an operator for devices and, for everything else, one that is composed of torch's
operations. On fake tensors the composed one runs. If it loops over elements, as a recursive filter does over a
recording, tracing takes time in proportion to the recording's length (torchaudio's `lfilter` of 1,600 samples: 2 s),
and the trace is valid for that length only. The operator's result follows from its schema: the tensors written to.

Invariant: operators that have a metadata rule or return new tensors are left to torch's mode.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

_BUILTIN = frozenset({"aten", "prim", "prims", "quantized", "_c10d_functional"})


@functools.cache
def _places(func: Any) -> tuple[tuple[str, ...], bool] | None:
    """The names of the arguments that an operator returns, and whether it returns a single one; None for an operator
    that is not of this kind."""
    name, schema = func.name(), func._schema
    if func.namespace in _BUILTIN or torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        return None
    has = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    if not has(name, "Meta") or torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
        return None
    if torch._library.simple_registry.singleton.find(name).fake_impl.kernel is not None:
        return None
    written = {frozenset(a.alias_info.before_set): a.name for a in schema.arguments
               if a.alias_info is not None and a.alias_info.is_write and str(a.type) == "Tensor"}
    given = []
    for result in schema.returns:
        if result.alias_info is None or frozenset(result.alias_info.before_set) not in written:
            return None
        given.append(written[frozenset(result.alias_info.before_set)])
    return tuple(given), len(given) == 1


def results(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operator of this kind; ``NotImplemented`` for any other operator."""
    places = _places(func)
    if places is None:
        return NotImplemented
    names, alone = places
    given = {**dict(zip((a.name for a in func._schema.arguments), args)), **kwargs}
    found = tuple(given[name] for name in names)
    return found[0] if alone else found or None
