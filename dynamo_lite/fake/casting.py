"""Operations under autocast on fake tensors; see ``runtime.casts_inside``.

Invariant: ``mode.casts`` holds the autocast dispatch keys that are active within the current operation; it is empty
within an operation that autocast itself casts.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dynamo_lite import exc
from dynamo_lite.runtime import casts_inside


@contextlib.contextmanager
def as_around(mode: Any) -> Iterator[None]:
    """A context in which autocast is on within operations as it is now around them. Not for use under the mode."""
    before, mode.casts = mode.casts, casts_inside.keys()
    try:
        yield
    finally:
        mode.casts = before


def dispatch(mode: Any, func: Any, types: Any, args: Any, kwargs: dict[str, Any], composite: bool) -> Any:
    """Runs an operation for which some autocast keys are active.

    Args:
        composite: whether aten composes the operation of others.

    Raises:
        exc.Unsupported: the operation's result is not known.
    """
    if func in casts_inside.OPAQUE:
        raise exc.Unsupported("unsupported_torch_call", f"{func} under autocast")
    casts = mode.casts
    if composite and not casts_inside.are_cast(func, (args, kwargs)):
        with mode, casts_inside.on(casts):
            return casts_inside.take_apart(func, args, kwargs, mode.decomposes_in_python((args, kwargs)))
    mode.casts = ()
    try:
        return mode.dispatch_here(func, types, args, kwargs)
    finally:
        mode.casts = casts
