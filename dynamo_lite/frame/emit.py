"""The fourth phase of a compile: generating the code that replaces the frame's code.

It calls the compiled graph, replays the side effects, and then returns, or restores the frame's state before the
instruction that runs in plain Python. It is generated twice: first to find which values it needs from the graph, then
in its final form. Invariant: both times the same values are computed in the same order.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._eval_frame import CompiledGraph, Continuation, mark_own
from ..bytecode.emit import Emitter
from ..bytecode.stack import NULL as NULL_KIND
from ..bytecode.stack import PREV_EXC, VALUE, StackKind
from ..continuation.deoptimize import Deoptimizer
from ..continuation.resume import emit_break, note_numbers
from ..exc import Unsupported
from ..guards.source import LocalSource
from ..interpreter.translator import NULL, StackMark
from ..output.codegen import INPUTS, OUTPUTS, Codegen, Plan
from ..runtime.function_modes import WithoutModes, put_on, take_off
from ..variables.base import LazyVariable, VariableTracker
from ..variables.cells import CellVariable
from ..variables.numbers.scalars import ScalarVariable
from ..variables.numbers.symbolic_ints import SymbolicIntVariable
from ..variables.objects.objects import ObjectVariable, is_foreign_iterator
from ..variables.torch_api.torch_functions import set_state
from .finish import Compiled, FrameExit, Graph


def plan_code(end: FrameExit) -> Plan:
    """The values that the code will need from the graph and from outside.

    Raises:
        Unsupported: a value can't be rebuilt.
    """
    plan = Plan()
    cg = _codegen(end, plan, 0)
    try:
        cg.effects.replay(cg)
        if end.returned is not None:
            cg.push(end.returned)
        else:
            _restore_frame(cg, end)
    except RecursionError:
        raise Unsupported("unsupported_value", "rebuilding a value that is nested too deeply") from None
    return plan


def emit_code(end: FrameExit, plan: Plan, graph: Graph, compiled: Compiled | None) -> Emitter:
    """The code that replaces the frame's code, not yet assembled."""
    cg = _codegen(end, plan, len(graph.inputs))
    emitter = cg.emit
    deoptimizer = None
    if compiled is not None:
        deoptimizer = _deoptimizer(cg, end, graph, compiled)
        plain = WithoutModes(compiled.run) if end.trace.output.overrides.around else compiled.run
        run = plain if end.returned is not None else CompiledGraph(plain)
        _emit_graph_call(cg, run, deoptimizer)
    modes = _emit_modes_off(cg, end)
    for function, args in graph.state_changes:
        emitter.load_function(function)
        for value in args:
            emitter.load_const(value)
        emitter.call(len(args))
        emitter.pop()
    cg.effects.replay(cg)
    if end.returned is not None:
        cg.push(end.returned)
        _emit_modes_on(cg, modes)
        emitter.ret()
    else:
        _emit_break(cg, end, modes)
    if deoptimizer is not None:
        deoptimizer.finish()
    return emitter


def direct_call(end: FrameExit, emitter: Emitter, compiled: Compiled | None) -> Callable[..., Any] | None:
    """A C function that can be called in place of the generated code, without a frame: the code only calls it and
    returns its first output. None if the code does more. The function has no side effects, so that the code can call it
    again when it raises.

    A backend's attribute `is_brief` says that a function runs no Python code and keeps the global interpreter lock.
    """
    output = end.trace.output
    if compiled is None or not getattr(compiled.run, "is_brief", False) or output.mutated_inputs() or (
            output.overrides.around):
        return None
    if output.fake_mode.random_seen or any(node.meta.get("impure") for node in output.graph.nodes):
        return None
    least = Emitter()
    least.load_function(compiled.run)
    least.load_fast(INPUTS)
    least.call_ex(False)
    least.store_fast(OUTPUTS)
    least.load_fast(OUTPUTS)
    least.load_const(0)
    least.subscr()
    least.ret()
    same = [(op.name, op.arg) for op in emitter.ops[:len(least)]] == [(op.name, op.arg) for op in least.ops]
    return compiled.run if same else None


def _codegen(end: FrameExit, plan: Plan, graph_inputs: int) -> Codegen:
    emitter = Emitter()
    emitter.set_line(end.trace.tx.current.positions)
    cells = end.frame.code.co_cellvars
    in_cells, arguments = ([n for n in end.frame.parameters if (n in cells) == c] for c in (True, False))
    return Codegen(emitter, plan, end.trace.output.effects, graph_inputs, arguments, _own_cells(end), in_cells)


def _own_cells(end: FrameExit) -> list[CellVariable]:
    return [cell for name, cell in end.trace.tx.cells.items() if name in end.frame.code.co_cellvars]


def _replaced_cells(end: FrameExit) -> list[tuple[str, CellVariable]]:
    """Free variables of a resume function in whose place there is another cell than the one that came in.

    A comprehension of Python 3.12 and later puts a cell of its own there and, behind it, back what it saved.
    """
    cells = end.trace.tx.cells
    came_in = zip(end.frame.code.co_freevars, end.trace.tx.free_cells)
    return [(name, cells[name]) for name, cell in came_in if name in cells and cells[name] is not cell]


# ---------------------------------------------------------------- the graph
def _deoptimizer(cg: Codegen, end: FrameExit, graph: Graph, compiled: Compiled) -> Deoptimizer:
    """The handler for exceptions raised by the call of the graph."""
    output, frame = end.trace.output, end.frame
    restore: Callable[[], None] = functools.partial(set_state, output.state_at_entry)
    if output.overrides.around:
        restore = WithoutModes(restore)
    changed, counted = compiled.put_back or ([], [])
    return Deoptimizer(
        cg.emit,
        frame.code,
        frame.parameters,
        restore,
        output.fake_mode.random_seen,
        output.changes_autocast,
        changed,
        counted,
        tuple(output.generators.values()),
        graph.module,
        compiled.put_back is not None,
    )


def _emit_graph_call(cg: Codegen, run: Callable[..., Any], deoptimizer: Deoptimizer) -> None:
    emitter = cg.emit
    deoptimizer.begin(INPUTS)
    with emitter.covered(deoptimizer.label, 0):
        emitter.load_function(run)
        emitter.load_fast(INPUTS)
        if cg.plan.extra_list:
            emitter.load_const(slice(0, cg.graph_inputs))
            emitter.subscr()
        emitter.call_ex(False)
    if cg.plan.output_list:
        emitter.store_fast(OUTPUTS)
    else:
        emitter.pop()


# ---------------------------------------------------------------- a break
def _restore_frame(cg: Codegen, end: FrameExit) -> list[str]:
    """Restores the frame: cells, stack, locals. Values are computed before a local is overwritten."""
    emitter, tx = cg.emit, end.trace.tx
    held: list[tuple[str, str]] = []
    for name in tx.decoded.locals:
        if name in tx.locals and name in end.live:
            held.append((name, cg.hold(tx.locals[name])))
    for cell in _own_cells(end):
        cg.fill_cell(cell)
    replaced = [(name, cg.hold(cell)) for name, cell in _replaced_cells(end)]
    _push_stack(cg, end)
    for name, temporary in replaced:
        emitter.load_fast(temporary)
        emitter.replace_cell(name)
    for name, temporary in held:
        emitter.load_fast(temporary)
        emitter.store_fast(name)
    for name in sorted(cg.arguments):
        now = tx.locals.get(name)
        held_still = now is not None and isinstance(now.source, LocalSource) and now.source.local == name
        if now is None or (name not in end.live and not held_still):
            emitter.unbind_fast(name)  # an argument that the program has deleted or bound anew
    return [name for name, _ in held]


def _push_stack(cg: Codegen, end: FrameExit) -> None:
    emitter, handled = cg.emit, iter(end.trace.tx.exceptions)
    for value in end.trace.tx.stack:
        if value is NULL:
            emitter.push_null()
        elif not isinstance(value, StackMark):
            cg.push(value)
        elif value.what == "lasti":
            emitter.load_const(0)
        else:
            exception = next(handled)
            assert exception is not None
            cg.push(exception)
            emitter.push_exc_info()
            emitter.pop()


def _emit_modes_off(cg: Codegen, end: FrameExit) -> str | None:
    """Emits code that leaves the torch function modes around the frame, which what follows is not to reach. Returns the
    name of the local that holds them; None if there are none."""
    if not end.trace.output.overrides.around:
        return None
    cg.emit.load_function(take_off)
    cg.emit.call(0)
    modes = cg.emit.temporary()
    cg.emit.store_fast(modes)
    return modes


def _emit_modes_on(cg: Codegen, modes: str | None) -> None:
    if modes is not None:
        cg.emit.load_function(put_on)
        cg.emit.load_fast(modes)
        cg.emit.call(1)
        cg.emit.pop()


def _emit_break(cg: Codegen, end: FrameExit, modes: str | None) -> None:
    """Emits the instruction that runs in plain Python, and the code that continues after it."""
    stack, site = end.trace.tx.stack, end.site
    assert site is not None
    bound = _restore_frame(cg, end)
    _emit_modes_on(cg, modes)
    resumes = emit_break(
        cg.emit, site, stack=_stack_kinds(stack), bound=bound, continuation=Continuation, keep=end.kept,
        parameters=(INPUTS, *end.frame.parameters), foreign=_foreign(stack),
    )
    # A number that was extracted from a tensor before or at the break must not be treated as a constant after it.
    kinds = (ScalarVariable, SymbolicIntVariable)
    names = [name for name, value in end.trace.tx.locals.items() if isinstance(value, kinds)]
    slots = [slot for slot, value in enumerate(stack) if isinstance(value, kinds)]
    gives_number = end.error is not None and end.error.kind == "tensor_to_python"
    for code in resumes:
        note_numbers(code, names, slots, site if gives_number else None)
        mark_own(code)


def _stack_kinds(stack: list[VariableTracker]) -> list[StackKind]:
    kinds: list[StackKind] = []
    for value in stack:
        if value is NULL:
            kinds.append(NULL_KIND)
        elif isinstance(value, StackMark):
            kinds.append(PREV_EXC if value.what != "lasti" else StackKind.LASTI)
        else:
            kinds.append(VALUE)
    return kinds


def _foreign(stack: list[VariableTracker]) -> list[int]:
    """Stack slots of iterators from outside that no trace can follow."""
    return [
        slot for slot, tracker in enumerate(stack)
        if isinstance(tracker, (LazyVariable, ObjectVariable)) and tracker.source is not None
        and is_foreign_iterator(tracker.value)
    ]
