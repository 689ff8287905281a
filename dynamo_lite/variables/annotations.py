"""Annotations of functions and classes, which from Python 3.14 on are computed when they are first read (PEP 649).

Invariant: a trace reads no annotations whose ``__annotate__`` function has still to run. It is code of the program's,
whose effects belong where the program reads them; once it has run, Python keeps the annotations.
"""
from __future__ import annotations

import gc
import types
from typing import Any

from .base import unsupported


def require_computed(owner: Any, what: str) -> None:
    """Breaks the graph if reading the annotations of a function or class would run code of the program's."""
    computed = _of_class(owner) if isinstance(owner, type) else _of_function(owner)
    if not computed:
        unsupported("unsupported_attribute", f"{what}, which runs the function __annotate__")


def _of_class(cls: type) -> bool:
    # Objects/typeobject.c, type_get_annotations and type_get_annotate.
    space = vars(cls)
    if "__annotations__" in space or "__annotations_cache__" in space:
        return True
    return space.get("__annotate_func__", space.get("__annotate__")) is None


def _of_function(function: types.FunctionType) -> bool:
    if getattr(function, "__annotate__", None) is None:
        return True
    # The slot func_annotations, which has a dict once they are computed (Objects/funcobject.c), can't be read by name.
    builtins = getattr(function, "__builtins__", None)
    named = (function.__globals__, builtins, function.__dict__, function.__kwdefaults__, function.__doc__,
             function.__module__)
    return any(type(held) is dict and all(held is not known for known in named) for held in gc.get_referents(function))
