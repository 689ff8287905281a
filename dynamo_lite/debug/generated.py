"""generated_code: the source code that the backend generated for a compiled function or module.

Invariant: only reads; nothing is compiled or run.
"""
from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from .. import _eval_frame
from ..frame.callers import code_of
from ..frame.compiled_module import CompiledModule


def generated_code(compiled: Any) -> str:
    """The source code that the backend generated for the graphs compiled so far, graph by graph.

    Args:
        compiled: the function or module that ``compile`` returned.

    Returns:
        the source code; empty before the first call, and for backends that generate nothing.

    Raises:
        TypeError: `compiled` is not a compiled function or module.
    """
    entry = compiled._compiled_call if isinstance(compiled, CompiledModule) else compiled
    if not isinstance(entry, _eval_frame.CompiledFunction):
        raise TypeError(f"generated_code takes what compile() returned, not a {type(compiled).__name__}")
    code = code_of(entry.fn)
    parts: list[str] = []
    for record in _records(code, entry.hook, set()) if code is not None else ():
        parts.extend(record.sources or ())
    return "\n\n".join(parts)


def _records(code: types.CodeType, hook: Any, seen: set[types.CodeType]) -> Iterator[Any]:
    """The records of a frame's cache entries and of those of its resume functions."""
    if code in seen:
        return
    seen.add(code)
    for entry in _eval_frame.entries(code, hook):
        yield entry.extra
        for constant in entry.code.co_consts if entry.code is not None else ():
            if isinstance(constant, types.CodeType):
                yield from _records(constant, hook, seen)
