"""The origin of a node: the line of the user's program that it comes from, for comments in generated code.

Invariant: only comments and logs depend on it.
"""
from __future__ import annotations

import functools
import os
import re
import types
from typing import Any

import torch
from torch.fx import Node

_PLACE = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+), in ')
_LIBRARY = os.path.dirname(torch.__file__) + os.sep


def user_line(node: Node) -> str:
    """The user's line that a node of a captured or recorded graph comes from, as ``source  (file.py:12)``; or ""."""
    trace = node.meta.get("stack_trace") or node.stack_trace
    origin: Any = node.meta.get("origin")
    if not trace and isinstance(origin, Node):
        trace = origin.stack_trace
    return _line_of(trace) if trace else ""


@functools.lru_cache(maxsize=4096)
def _line_of(trace: str) -> str:
    """The innermost line outside of torch; if there is none, the innermost line."""
    found: list[tuple[str, str]] = []
    lines = trace.strip().splitlines()
    for place, text in zip(lines, [*lines[1:], ""]):
        match = _PLACE.search(place)
        if match is not None:
            source = "" if _PLACE.search(text) else text.strip()
            found.append((match["file"], f"{source}  ({os.path.basename(match['file'])}:{match['line']})"))
    if not found:
        return lines[-1].strip()
    return next((text for file, text in reversed(found) if not file.startswith(_LIBRARY)), found[-1][1])


def operation_and_line(node: Node) -> str:
    """The operation's name and the user's line, for comments."""
    if isinstance(node.target, types.FunctionType):  # an operation of ``ops``, not of aten
        name = node.target.__name__
    else:
        name = str(node.target).removeprefix("aten.")
        name = name[: name.rindex(".")] if "." in name else name
    line = user_line(node)
    return f"{name} <- {line}" if line else name
