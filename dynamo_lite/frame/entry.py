"""The last phase of a compile: making a cache entry from guards and code.

Invariant: of the trace, an entry references only its guards and its graph.
"""
from __future__ import annotations

import logging
import types
from collections.abc import Callable
from typing import Any

from .. import exc, log
from .._eval_frame import GuardedCode
from .._guards import GuardProgram
from ..bytecode.emit import Emitter
from ..continuation.listings import side_by_side
from ..continuation.origins import resume_label
from ..guards import Guard, build_program
from ..guards.memory import guard_memory
from ..guards.tree import guard_tree
from ..output.codegen import INPUTS, Plan
from ..output.output_graph import OutputGraph
from .descriptions import place
from .entry_record import EntryRecord
from .finish import FrameExit, Graph, changed_and_others, described
from .request import Frame, Settings


def make_entry(
    settings: Settings, end: FrameExit, plan: Plan, graph: Graph, emitter: Emitter,
    direct: Callable[..., Any] | None = None,
) -> GuardedCode:
    """The cache entry of a compiled frame."""
    frame, request, output = end.frame, end.trace.request, end.trace.output
    _guard_aliases(output)
    guards = output.all_guards()
    sources = [t.source for t in graph.inputs if t.source is not None] + plan.extra_list
    program, texts = build_program(guards, end.trace.state, sources)
    with log.phase("assemble"):
        guarded = emitter.assemble(
            name=frame.code.co_name,
            qualname=frame.code.co_qualname,
            filename=frame.code.co_filename,
            firstlineno=frame.user_code.co_firstlineno,
            argnames=(*frame.parameters, INPUTS),
            freevars=frame.code.co_freevars,
            cellvars=frame.code.co_cellvars,
        )
    _log_entry(frame, guards, guarded, program)
    record = EntryRecord(guards, texts, described(graph), log.current_frame(), request.dynamic,
                         output.effects.changed_names(), {**request.readers, **output.value_guards.learned},
                         output.symbols.on_a_border())
    if settings.on_entry is not None:
        settings.on_entry(record)
    on_elements = any(guard.kind == "tensor_data" for guard in guards)
    breadth = 0 if on_elements else 2 if request.fits_all else 1
    return GuardedCode(program, guarded, end.returned is None, extra=record, breadth=breadth, direct=direct)


def _guard_aliases(output: OutputGraph) -> None:
    """Guards that mutated tensors, containers and objects alias the others exactly as they did while tracing."""
    changed, others = ([(source, value) for source, _, value in part] for part in changed_and_others(output))
    guard_memory(output.guards, changed, others)
    output.effects.guard_distinct(output.guards)


def _log_entry(frame: Frame, guards: list[Guard], guarded: types.CodeType, program: GuardProgram) -> None:
    if log.enabled("guards"):
        label = resume_label(frame.code)
        log.artifact("guards").info("guards of %s\n%s", label, guard_tree(guards))
        steps = "\n".join(f"{n:4} {exc.one_line(repr(step), 110)}" for n, step in enumerate(program.steps))
        log.artifact("guards").debug("guard program of %s\n%s", label, steps)
    if log.enabled("bytecode"):
        where = place(frame.user_code)
        what = where if frame.resumed is None else f"{frame.resumed.label} of {where}"
        text = side_by_side(frame.code, guarded, log.enabled("bytecode", logging.DEBUG))
        log.artifact("bytecode").info("%s\n%s", what, text)
