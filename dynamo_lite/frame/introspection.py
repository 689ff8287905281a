"""Introspection: code that asks the interpreter for sizes, counts, reference counts or lifetimes of objects, or for its
own frame.

Compiled code reproduces the frame's results, not the interpreter's internal state: a dict may be built at once instead
of item by item, and compiled code may hold an object for longer. So a frame that asks for such facts is left to the
interpreter. If it asks for the total number of objects, its callees are, too, since compiling them creates objects. A
frame with a break is several frames for the interpreter, so a frame that reads its frame object, or the dict of its
locals more than once, is also left alone. Invariant: the decision depends only on the frame's code and globals, before
the frame has run.
"""
from __future__ import annotations

import gc
import inspect
import sys
import types
import weakref
from typing import Any

from ..bytecode.analysis import FRAME_READERS, LOCALS_READERS, locals_reads

# Functions by module, under the names by which code refers to them.
_NUMBERS = {sys: frozenset({"getallocatedblocks"}), gc: frozenset({"get_objects", "get_count"})}
_BOOKS = {
    sys: frozenset({"getsizeof", "getrefcount"}) | _NUMBERS[sys],
    gc: frozenset({"get_referrers", "is_tracked"}) | _NUMBERS[gc],
}
_WEAK = {weakref: frozenset({"ref", "proxy", "WeakMethod"})}
_COLLECT = {gc: frozenset({"collect"})}
_FRAMES = {sys: frozenset({"_getframe"}), inspect: frozenset({"currentframe"})}
_NAMES = frozenset().union(*_BOOKS.values())

Functions = dict[types.ModuleType, frozenset[str]]


def reason_to_leave(code: types.CodeType, globals: dict[str, Any]) -> str | None:
    """The reason to leave a frame to the interpreter, or None."""
    if not _NAMES.isdisjoint(code.co_names) and _reaches(code, globals, _BOOKS):
        return "it asks the interpreter for the size, the number, the holders or the collector's view of objects"
    if _reaches(code, globals, _WEAK) and _reaches(code, globals, _COLLECT):
        return "it watches, by weak references and the garbage collector, how long objects live"
    if not FRAME_READERS.isdisjoint(code.co_names) and _reaches(code, globals, _FRAMES):
        return "it gets hold of frames of the interpreter, which go on changing while they run"
    if not LOCALS_READERS.isdisjoint(code.co_names) and locals_reads(code) > 1:
        return "it asks more than once for its locals, which are one dict in this version of Python"
    return None


def counts_objects(code: types.CodeType, globals: dict[str, Any]) -> bool:
    """Whether code asks for the number of existing objects."""
    return _reaches(code, globals, _NUMBERS)


def _reaches(code: types.CodeType, globals: dict[str, Any], functions: Functions) -> bool:
    """Whether code reads one of the functions: as an attribute of its module, or by a global name."""
    for name in code.co_names:
        value = globals.get(name)
        for module, names in functions.items():
            if value is module or (value is None and name == module.__name__):  # imported globally or locally
                if not names.isdisjoint(code.co_names):
                    return True
            elif name in names and getattr(module, name, None) is value:
                return True
    return False
