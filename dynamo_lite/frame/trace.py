"""The second phase of a compile: a frame is evaluated symbolically.

A trace ends with the frame's return, or before an instruction that can't be traced, whose changes to the trace so far
are undone. If that is impossible, the result is a request for another trace that ends earlier or is given more
information. Invariant: a trace has no effects outside of it: when it is closed, torch's state is as before, and nothing
holds the program's objects.
"""
from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from .. import config, exc, log
from .._guards import current_global_state
from ..bytecode.code_map import CodeMap
from ..bytecode.instructions import decode
from ..continuation.places import starts_unit, unbreakable_places
from ..guards.source import ConstSource
from ..interpreter import containers, opcodes
from ..interpreter.budget import Budget
from ..interpreter.translator import BreakReached, ModuleNotLoaded, Translator, root_translator
from ..output.output_graph import OutputGraph
from ..runtime.function_modes import followed_modes, off_in_trace
from ..variables.base import ObservedException, VariableTracker, realized
from ..variables.numbers.scalars import NumberNeeded
from ..variables.objects.made_classes import forget_stand_ins
from ..variables.tensors.learned_elements import ValuesNeeded
from ..variables.tensors.masked import SelectionNeeded
from ..variables.tensors.value_guards import Guardable, ValueGuards
from ..variables.torch_api.lazy_modules import InitializesOnce
from .decide import note_skipped
from .request import Frame, Settings, TraceRequest

# These modules are imported for their side effect: they register handlers.
assert containers and opcodes


class Trace(NamedTuple):
    """A trace in progress.

    Attributes:
        tx: the evaluator, at the frame's root.
        output: the graph, guards and effects.
        state: torch's state at the frame's entry.
    """

    request: TraceRequest
    frame: Frame
    tx: Translator
    output: OutputGraph
    state: tuple[Any, ...]


class Traced(NamedTuple):
    """A finished trace.

    Attributes:
        returned: the frame's return value; None: the graph breaks.
        break_index: the instruction before which it breaks.
        error: the reason for the break.
    """

    trace: Trace
    returned: VariableTracker | None
    break_index: int | None
    error: exc.Unsupported | None


@contextlib.contextmanager
def opened(settings: Settings, request: TraceRequest) -> Iterator[Trace]:
    """A new trace. At its end, torch's state is restored and all references to the program's objects are dropped:
    trackers form reference cycles, so until the next garbage collection they would keep alive objects that the program
    has dropped."""
    frame = request.frame
    unbreakable = unbreakable_places(frame.user_code, frame.resumed)
    value_guards = ValueGuards(request.readers, _guardable(settings, request))
    output = OutputGraph(
        request.dynamic, request.fits_all, settings.fullgraph, value_guards, settings.dynamic, request.learned,
        request.captures)
    tx = root_translator(frame.code, output, frame.globals, frame.builtins, frame.closure, frame.args)
    output.effects.watch.add_arguments(frame.args)
    output.masked.selected_at = request.selected_at
    output.called_from_handler = frame.called_from_handler
    tx.budget = Budget(settings.fullgraph, request.graphless)
    tx.break_visit = request.break_visit
    tx.unbreakable = unbreakable
    if settings.break_at is not None:
        tx.break_before = _wanted_breaks(settings.break_at, frame)
    trace = Trace(request, frame, tx, output, current_global_state())
    output.overrides.enter_around(tx, followed_modes())
    try:
        with off_in_trace() if output.overrides.around else contextlib.nullcontext():
            try:
                yield trace
            finally:
                output.restore_state()
    finally:
        output.fake_mode.forget_inputs()
        forget_stand_ins(output.effects)
        tx.forget()
        output.forget()


def run(settings: Settings, trace: Trace) -> Traced | TraceRequest:
    """Evaluates the frame until its return, until a break, or until it is clear that another trace is needed.

    Raises:
        InitializesOnce: the frame is to run in plain Python, this time.
        exc.Unsupported: with fullgraph, for the first break.
    """
    request, tx = trace.request, trace.tx
    try:
        return Traced(trace, realized(tx, tx.run()), None, request.error)
    except BreakReached as reached:
        return _broken(trace, reached.index, request.error)
    except InitializesOnce as error:
        _forget_frames(error)
        raise
    except exc.Unsupported as error:
        met = error
    except ObservedException as error:
        error.__traceback__ = None
        raised = exc.Unsupported("python_exception_in_trace", error.value.python_type().__qualname__)
        _note(settings, tx, raised)
        return request.before(tx.visits - 1, raised)
    again = _with_values(request, met) or _selecting(request, met) or _capturing(settings, request, met)
    if again is not None:
        return again
    _note(settings, tx, met)
    if met.kind == "trace_too_long" and _is_left(trace.frame, tx):
        return request.before(tx.budget.after_operations(), met)
    if met.visit is None and tx.undo_instruction():
        return _broken(trace, tx.current.index, met)
    return request.before(met.visit if met.visit is not None else tx.visits - 1, met)


def _broken(trace: Trace, index: int, error: exc.Unsupported | None) -> Traced:
    """A trace that ends before the instruction at `index`. An entry that breaks at an import holds only until the
    module is loaded, as its callers' do: a library that imports a module at its first call breaks only that call."""
    if isinstance(error, ModuleNotLoaded):
        trace.tx.guard(ConstSource(sys.modules, "sys.modules"), "dict_lacks", error.module)
    return Traced(trace, None, index, error)


# ---------------------------------------------------------------- another trace
def after_refusal(settings: Settings, traced: Traced, error: exc.Unsupported) -> TraceRequest:
    """The request for another trace when the frame can't be left where this one ended.

    Raises:
        exc.Unsupported: `error`, if fullgraph is set.
    """
    request, tx = traced.trace.request, traced.trace.tx
    selecting = _selecting(request, error)
    if selecting is not None:
        return selecting
    if traced.break_index is None:
        again = _with_values(request, error)
        if again is not None:
            return again
        _note(settings, tx, error)
        return request.before(error.visit if error.visit is not None else tx.visits - 1, error)
    # A value that is live here can't be rebuilt after a graph: break earlier.
    assert traced.error is not None
    log.artifact("graph_breaks").debug("the break is made earlier, since it needs %s", error.reason)
    if error.visit is not None:
        return request.before(error.visit, traced.error)
    steps = request.steps_back * 2 + 1
    visit = tx.visits - steps
    earlier = request.before(visit if visit > request.frame.prologue() else None, traced.error)
    return earlier._replace(steps_back=steps)


def after_fault(settings: Settings, trace: Trace, error: Exception) -> TraceRequest | None:
    """The request for another trace when the evaluator itself has failed: with a break before the instruction; None if
    that has been tried.

    Raises:
        exc.Unsupported: with fullgraph, for the failure.
    """
    if config.raise_internal_errors:
        raise error
    request, frame, tx = trace.request, trace.frame, trace.tx
    text = f"{type(error).__name__}: {exc.one_line(error)}"
    fault = exc.Unsupported("internal_error", text, user_stack=tx.user_stack())
    log.count("internal_errors")
    if log.first_time("fallbacks", (frame.code, fault.where)):
        details = error if log.enabled("fallbacks") else None
        log.artifact("fallbacks").warning("%s", fault.report(), exc_info=details)
    _note(settings, tx, fault)
    if request.faults or tx.visits - 1 == request.break_visit or tx.visits < 1:
        note_skipped(frame.user_code, fault.reason)
        return None
    return request.before(tx.visits - 1, fault)._replace(faults=1)


def _with_values(request: TraceRequest, error: exc.Unsupported) -> TraceRequest | None:
    """The request with guards on the values that `error` asks for; None if it asks for none, or they are forbidden."""
    if isinstance(error, ValuesNeeded):
        _forget_frames(error)
        readers = {path: request.readers.get(path, frozenset()) | error.readers for path in error.origins}
        return request._replace(readers={**request.readers, **readers})
    if not isinstance(error, NumberNeeded) or request.fits_all or not error.origins & request.dynamic:
        return None
    if error.cls is not int and error.origins & request.kept:
        return None
    _forget_frames(error)
    return request._replace(dynamic=request.dynamic - error.origins)


def _selecting(request: TraceRequest, error: exc.Unsupported) -> TraceRequest | None:
    """The request with the elements that a mask selects computed where the program reads them; None if `error` does not
    ask for it. After some such requests it holds for all reads, so that a frame with many is not traced as often."""
    if not isinstance(error, SelectionNeeded) or request.selected_at is None:
        return None
    _forget_frames(error)
    several = error.at in request.selected_at or len(request.selected_at) >= _MOST_SELECTED
    return request._replace(selected_at=None if several else request.selected_at | {error.at})


_MOST_SELECTED = 3


def _capturing(settings: Settings, request: TraceRequest, error: exc.Unsupported) -> TraceRequest | None:
    """The request with numbers and sizes that depend on elements kept in the graph. With fullgraph they are kept there,
    as torch.compile can, instead of being an error. None if this is another error, or they were kept already."""
    if not settings.fullgraph or request.captures or not config.capture_with_fullgraph:
        return None
    if error.kind not in ("tensor_to_python", "dynamic_output_shape"):
        return None
    _forget_frames(error)
    return request._replace(captures=True)


def _note(settings: Settings, tx: Translator, error: exc.Unsupported) -> None:
    """Records the place of a break; with fullgraph, raises it as an error."""
    if not error.user_stack:
        error.user_stack = tx.user_stack()
    if settings.fullgraph and error.kind != "python_exception_in_trace":
        raise error
    _forget_frames(error)


def _forget_frames(error: exc.Unsupported) -> None:
    """Drops the error's traceback, cause and context, since they hold frames, including those of the program."""
    error.__cause__ = error.__context__ = error.__traceback__ = None


# ---------------------------------------------------------------- what a trace may do
def _guardable(settings: Settings, request: TraceRequest) -> Guardable:
    """Which tensors may be guarded by their elements. Unless breaks are forbidden, excluded are tensors whose elements
    have changed and values that a break has left; arguments that the program passes to a helper function count as
    computed by the program."""
    if request.fits_all:
        return Guardable(none=True)
    if settings.fullgraph:
        return Guardable()
    frame, original, left = request.frame, request.frame.user_code, frozenset[str]()
    if frame.resumed is not None:
        flags = bool(original.co_flags & inspect.CO_VARARGS) + bool(original.co_flags & inspect.CO_VARKEYWORDS)
        parameters = original.co_varnames[: original.co_argcount + original.co_kwonlyargcount + flags]
        left = frozenset(frame.parameters).difference(parameters)
    return Guardable(
        changed=request.dynamic, changed_names=request.changed_names, left=left,
        computed=frame.helper,
    )


def _wanted_breaks(wanted: Callable[[CodeType, int], bool], frame: Frame) -> frozenset[int]:
    """The instructions before which the settings ask for a break."""
    code, user = frame.user_code, decode(frame.user_code)
    origins = ((index, frame.origin(index)) for index in range(len(decode(frame.code))))
    return frozenset(
        index for index, origin in origins
        if origin >= user.first_index and starts_unit(user.instructions, origin) and wanted(code, origin)
    )


# User code whose trace was abandoned as too long.
_TOO_LONG: CodeMap[bool] = CodeMap()


def _is_left(frame: Frame, tx: Translator) -> bool:
    """Whether a frame whose trace is too long runs in plain Python: the loop is its own, or a break at the call of a
    function that loops has been tried before."""
    tried = frame.resumed is not None and _TOO_LONG.get(frame.user_code) is not None
    _TOO_LONG.set(frame.user_code, True)
    return tried or tx.budget.is_own_loop(tx)
