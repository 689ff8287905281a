"""The user's source lines of graph nodes, and tracebacks that show them.

Invariant: the lines are read from the text that a node carries, so they outlive the trace and hold no objects.
"""
from __future__ import annotations

import os
import re
import sys
import traceback
import types
import weakref
from pathlib import Path

from torch import fx

_PACKAGE = __name__.partition(".")[0]
_OWN_FOLDER = str(Path(__file__).parents[1]) + os.sep
_PLACE = re.compile(r'^  File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


class NodeLines:
    """The data that guarded code keeps to find the lines of an operation that has raised. It holds no module, node or
    tensor.

    Args:
        module: the graph.
    """

    __slots__ = ("_by_line", "_code", "_raising")

    def __init__(self, module: fx.GraphModule) -> None:
        code = module.forward.__code__
        nodes = list(module.graph.nodes)
        places = module._lineno_map or {}
        # torch.fx keeps the source of a graph's code as long as the code itself.
        self._code = weakref.ref(code)
        self._by_line = {line + module._prologue_start: nodes[place].stack_trace
                         for line, place in places.items() if place is not None}
        raising = [node.stack_trace for node in nodes if node.meta.get("raises")]
        # In a backend's code the operation is known only if a single one can raise.
        self._raising = raising[0] if len(raising) == 1 else None

    def origin(
        self, entry: types.TracebackType | None
    ) -> tuple[list[traceback.FrameSummary], types.TracebackType | None]:
        """The user's stack at the operation that has raised, and the part of the traceback below it, without a
        backend's own functions."""
        code = self._code()
        rest = entry
        while entry is not None:
            if entry.tb_frame.f_code is code:
                return stack_in(self._by_line.get(entry.tb_lineno)), entry.tb_next
            if entry.tb_frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
                rest = entry.tb_next
            entry = entry.tb_next
        return stack_in(self._raising), rest


def stack_of(node: fx.Node) -> list[traceback.FrameSummary]:
    """The user's stack at a node, outermost call first, without dynamo_lite's functions that replace others."""
    return stack_in(node.stack_trace)


def stack_in(text: str | None) -> list[traceback.FrameSummary]:
    """As :func:`stack_of`, for a node's text."""
    found = [(file, int(line), name) for file, line, name in _PLACE.findall(text or "")]
    return [traceback.FrameSummary(file, line, name, lookup_line=False) for i, (file, line, name) in enumerate(found)
            if not i or not file.startswith(_OWN_FOLDER)]


def give_lines(error: BaseException, lines: NodeLines | None) -> None:
    """Adds the user's lines to an exception that a graph has raised, if it is known which node raised it.

    Args:
        error: its traceback begins at the code that called the graph.
        lines: the lines of the graph.
    """
    caller = error.__traceback__
    if lines is None or caller is None:
        return
    stack, rest = lines.origin(caller.tb_next)
    for place in stack[:0:-1]:
        rest = types.TracebackType(rest, _frame_at(place), -1, place.lineno or 0)
    if stack:
        error.__traceback__ = types.TracebackType(rest, caller.tb_frame, -1, stack[0].lineno or 0)


def _frame_at(place: traceback.FrameSummary) -> types.FrameType:
    """A frame of a function with the name and file of `place`, to be shown in a traceback."""
    code = _this_frame.__code__.replace(
        co_filename=place.filename, co_name=place.name, co_qualname=place.name, co_firstlineno=place.lineno or 1)
    return types.FunctionType(code, {"_getframe": sys._getframe})()


def _this_frame() -> types.FrameType:
    return _getframe()  # type: ignore[name-defined]  # noqa: F821
