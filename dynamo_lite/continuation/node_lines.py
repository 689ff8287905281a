"""The user's lines that graph nodes were made for, and tracebacks with these.

Invariant: they are read from the text that a node carries, so they outlive the trace and hold nothing of the program.
"""
from __future__ import annotations

import re
import sys
import traceback
import types
from pathlib import Path

from torch import fx

_OWN_FOLDER = str(Path(__file__).parent)
_PLACE = re.compile(r'^  File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


def stack_of(node: fx.Node) -> list[traceback.FrameSummary]:
    """Where the program was, outermost call first, without functions of ours that stand in for others."""
    found = [(file, int(line), name) for file, line, name in _PLACE.findall(node.stack_trace or "")]
    return [traceback.FrameSummary(file, line, name, lookup_line=False) for i, (file, line, name) in enumerate(found)
            if not i or not file.startswith(_OWN_FOLDER)]


def give_lines(error: BaseException, module: fx.GraphModule | None) -> None:
    """Gives an exception that a graph has raised the user's lines, if it is known which node has raised it.

    Args:
        error: its traceback begins at the code that called the graph.
        module: the graph.
    """
    caller = error.__traceback__
    if module is None or caller is None:
        return
    node, rest = _origin(module, caller.tb_next)
    stack = stack_of(node) if node is not None else []
    for place in stack[:0:-1]:
        rest = types.TracebackType(rest, _frame_at(place), -1, place.lineno or 0)
    if stack:
        error.__traceback__ = types.TracebackType(rest, caller.tb_frame, -1, stack[0].lineno or 0)


def _origin(
    module: fx.GraphModule, entry: types.TracebackType | None
) -> tuple[fx.Node | None, types.TracebackType | None]:
    """The node that has raised, and what comes behind it in the traceback; without a backend's own functions."""
    code = module.forward.__code__  # type: ignore[attr-defined]
    nodes = list(module.graph.nodes)
    rest = entry
    while entry is not None:
        if entry.tb_frame.f_code is code:
            place = (module._lineno_map or {}).get(entry.tb_lineno - module._prologue_start)
            return (nodes[place] if place is not None else None), entry.tb_next
        if entry.tb_frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
            rest = entry.tb_next
        entry = entry.tb_next
    # A backend's code: there is no choice where one operation may raise.
    raising = [node for node in nodes if node.meta.get("raises")]
    return (raising[0] if len(raising) == 1 else None), rest


def _frame_at(place: traceback.FrameSummary) -> types.FrameType:
    """A frame of a function with that name in that file, for tracebacks to show."""
    code = _this_frame.__code__.replace(
        co_filename=place.filename, co_name=place.name, co_qualname=place.name, co_firstlineno=place.lineno or 1)
    return types.FunctionType(code, {"_getframe": sys._getframe})()  # type: ignore[no-any-return]


def _this_frame() -> types.FrameType:
    return _getframe()  # type: ignore[name-defined, no-any-return]  # noqa: F821
