"""Converts an intercepted frame into guarded code: the phases of a compile in order.

decide (whether to compile) -> trace (evaluate the frame) -> exit (where it is left, what is live) -> plan (the values
that its code needs from the graph) -> graph (outputs fixed, compiled by the backend) -> code -> entry (guards). Each
phase takes the results of the earlier ones. If a frame can't be left at a place, it is traced again, up to an earlier
place or with more guards.

Invariant: everything that is not compiled is reported in the log, with the user's line and the reason.
"""
from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

from .. import config, exc, log
from .._eval_frame import KEEP_ENTRIES, RUN_ORIGINAL, SKIP, FrameHook, GuardedCode
from ..bytecode.instructions import decode
from ..guards.failures import explain_failure
from ..rules.torch_marks import setting
from ..runtime import collector, function_modes, in_flight, signal_handlers
from ..runtime.saved_tensor_hooks import saved_tensor_hooks_suspended
from ..variables.torch_api.lazy_modules import InitializesOnce
from . import kept_sizes, trace
from .decide import decide, note_skipped
from .emit import direct_call, emit_code, plan_code
from .entry import make_entry
from .finish import (
    close_graph,
    compile_graph,
    described,
    find_exit,
    nothing_to_run,
    report_break,
    runs_as_well_in_python,
    uncompiled,
)
from .growth import with_growing_sizes
from .recompiles import first_request, note_compile
from .request import Frame, Settings, TraceRequest, frame_id


def compile_frame(
    settings: Settings,
    hook: Callable[[], FrameHook | None],
    code: types.CodeType,
    globals: dict[str, Any],
    builtins: dict[str, Any],
    closure: tuple[types.CellType, ...] | None,
    args: tuple[Any, ...],
    function: types.FunctionType,
) -> Any:
    """The result for a frame that fits no cache entry of a hook.

    Args:
        hook: returns the hook.

    Returns:
        a GuardedCode, or a decision of ``_eval_frame``.

    Raises:
        exc.Unsupported: with fullgraph, for the first break.
        exc.BackendCompilerFailed: the backend raised.
    """
    try:
        frame = Frame(settings, hook(), code, globals, builtins, closure, args)
        decision = decide(settings, frame, function)
        return decision.answer if decision.answer is not None else _fitting_entry(settings, frame)
    except (exc.Unsupported, exc.BackendCompilerFailed) as error:
        if isinstance(error, exc.BackendCompilerFailed) and setting("suppress_errors"):
            log.artifact("fallbacks").warning("%s runs in plain Python: %s", code.co_qualname, error)
            return SKIP
        raise error.with_traceback(None) from error.__cause__
    except exc.DynamoLiteError:
        raise
    except Exception as error:
        signal_handlers.pass_on(error)
        # An exception raised from here would bypass the handlers of the frame, which has not started.
        return _after_fault(code, error)


def _entry(settings: Settings, frame: Frame) -> Any:
    """The entry of a frame that is to be compiled; RUN_ORIGINAL after a failure of the evaluator."""
    with log.frame(frame_id(frame.code)), log.phase("trace"), saved_tensor_hooks_suspended(), function_modes.hidden():
        note_compile(frame)
        request = first_request(settings, frame)
        try:
            made = _attempts(settings, request)
        except exc.Unsupported:
            if frame.known or not request.dynamic:
                raise
            # Knowledge from an earlier process is no reason to refuse this call.
            made = _attempts(settings, request._replace(dynamic=frozenset()))
        if frame.known and isinstance(made, GuardedCode):
            kept_sizes.keep(settings, frame, request, made)
        return made


def _attempts(settings: Settings, request: TraceRequest) -> Any:
    """Traces a frame until a trace is compiled."""
    made: Any = request
    while isinstance(made, TraceRequest):
        with in_flight.modes_kept():  # also after a failure
            made = _attempt(settings, made)
    return made


def _attempt(settings: Settings, request: TraceRequest) -> Any:
    """One trace, and the entry made from it, or the request for another trace."""
    with trace.opened(settings, request) as opened:
        made: GuardedCode | TraceRequest | None
        try:
            made = _compile_trace(settings, opened)
        except InitializesOnce as error:
            note_skipped(request.frame.user_code, f"it runs in plain Python this time: {error.reason}")
            if settings.on_decision is not None:
                settings.on_decision(request.frame.user_code, error.detail)
            return uncompiled(opened, hooked=_may_go_on(request.frame))
        except exc.DynamoLiteError:
            raise
        except Exception as error:
            signal_handlers.pass_on(error)
            made = trace.after_fault(settings, opened, error)
            if made is None:
                return RUN_ORIGINAL
        if isinstance(made, TraceRequest) and made.break_visit is not None and made.break_visit < 0:
            assert made.error is not None
            note_skipped(request.frame.user_code, f"nothing of it can be captured: {made.error.reason}")
            return uncompiled(opened)
        return made


def _may_go_on(frame: Frame) -> bool:
    """Whether a frame that runs in plain Python may call what it has called again, as a loop over steps of a training
    does. The loops of torch's containers call each of their modules once."""
    module = str(frame.globals.get("__name__", ""))
    loops = any("JUMP" in i.opname and i.argval <= i.index for i in decode(frame.user_code).instructions)
    return loops and not module.startswith("torch.nn.")


def _compile_trace(settings: Settings, opened: trace.Trace) -> GuardedCode | TraceRequest:
    traced = trace.run(settings, opened)
    if isinstance(traced, TraceRequest):
        return traced
    again = with_growing_sizes(settings, opened.request, opened.output)
    if again is not None:
        return again
    try:
        end = find_exit(traced)
        plan = plan_code(end)
        graph = close_graph(end, plan)
        if end.returned is None:
            report_break(settings, end)
        plain = nothing_to_run(settings, end, graph)
        if plain is not None:
            return plain
        compiled = compile_graph(settings, end, graph)
        if runs_as_well_in_python(end, graph, compiled):
            return uncompiled(opened, hooked=False, sources=described(graph))
        emitter = emit_code(end, plan, graph, compiled)
        return make_entry(settings, end, plan, graph, emitter, direct_call(end, emitter, compiled))
    except exc.Unsupported as error:
        return trace.after_refusal(settings, traced, error)


# ---------------------------------------------------------------- the entry fits
def _fitting_entry(settings: Settings, frame: Frame) -> Any:
    """An entry of a frame that fits the call for which it is made."""
    seconds: dict[str, float] = {}
    handlers_before = signal_handlers.runs()
    # The compile itself may change a guarded object: a module that is imported on first use adds to a registry. The
    # second compile finds it there.
    for _ in range(2):
        with in_flight.compiling(), collector.paused(look_after=True), log.collect_phases() as spent:
            made = _entry(settings, frame)
        seconds.update(spent)
        if not isinstance(made, GuardedCode):
            return made
        if _fits(made, frame):
            if log.enabled("perf"):
                phases = ", ".join(f"{name} {time:.3f}" for name, time in seconds.items())
                log.artifact("perf").info(
                    "%s compiled in %.3f s: %s", frame.code.co_qualname, sum(seconds.values()), phases)
            return made
    failure = explain_failure(made.program, made.extra.texts, frame.values) or "now they do"
    if signal_handlers.runs() > handlers_before or threading.active_count() > 1:
        log.artifact("fallbacks").warning(
            "%s runs in plain Python this time: a signal handler or another thread has changed what it reads while it "
            "was compiled: %s", frame.code.co_qualname, failure)
        return KEEP_ENTRIES
    raise _GuardsDoNotHold(f"the guards do not hold for the call that they were made for: {failure}")


def _fits(made: GuardedCode, frame: Frame) -> bool:
    # Checked twice: code that a guard calls (__eq__ of a key) may change a guarded object.
    return all(made.program.check(*frame.values)[0] for _ in range(2))


class _GuardsDoNotHold(Exception):
    """An entry does not fit the call for which it was made: an internal error."""


def _after_fault(code: types.CodeType, error: Exception) -> Any:
    if config.raise_internal_errors:
        raise error
    log.count("internal_errors")
    details = error if log.enabled("fallbacks") else None
    log.artifact("fallbacks").warning(
        "%s runs in plain Python, because of a fault of the compiler: %s: %s", code.co_qualname,
        type(error).__name__, error, exc_info=details,
    )
    return KEEP_ENTRIES if isinstance(error, _GuardsDoNotHold) else RUN_ORIGINAL
