"""Makes the functions of a file of Triton kernels callable.

No module of this package imports Triton before the first kernel is loaded.

Invariant: kernels run on CPU tensors only in Triton's interpreter, which must be selected before Triton is imported.
"""
from __future__ import annotations

import importlib.util
import itertools
import linecache
import os
import sys
from typing import Any

_numbers = itertools.count()


def unavailable() -> str | None:
    """The reason why Triton kernels can't run on CPU tensors in this process; None if they can."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return "Triton kernels run on CPU tensors by its interpreter alone: set TRITON_INTERPRET=1"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    language = sys.modules.get("triton.language")
    if language is not None and type(language.sum).__name__ != "InterpretedFunction":
        return "Triton was imported before TRITON_INTERPRET=1 was set"
    return None


def load(source: str) -> dict[str, Any]:
    """The names that a file of kernels defines."""
    filename = f"<dynamo_lite kernels {next(_numbers)}>"
    # Triton reads a kernel's source through linecache.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": "dynamo_lite.backends.inductor.generated"}
    exec(compile(source, filename, "exec"), namespace)
    return namespace
