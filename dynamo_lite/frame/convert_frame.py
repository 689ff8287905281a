"""A frame in, guarded code out.

A frame is traced; where the trace can't go on, it ends with a break before that instruction, which is taken back, or
the trace is made again up to there. The result is a guard program, a compiled graph, and code that calls it, replays
the side effects and returns or continues.

Invariant: whatever is not compiled is said in the log, with the user's line and the reason.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import logging
import os
import threading
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from .. import config, exc, log
from .._eval_frame import RUN_ORIGINAL, CompiledGraph, Continuation, GuardedCode, entries, mark_own
from .._guards import GuardProgram, current_global_state
from ..bytecode.code_map import CodeMap
from ..bytecode.emit import Emitter
from ..bytecode.instructions import decode
from ..bytecode.stack import NULL as NULL_KIND
from ..bytecode.stack import PREV_EXC, VALUE, StackKind
from ..continuation.deoptimize import Rerun, may_raise
from ..continuation.listings import layouts, side_by_side
from ..continuation.resume import break_start, emit_break, is_resume_code, needed_locals, note_numbers, resume_label
from ..fake.mode import saved_tensors_hooks_suspended
from ..guards import Guard, build_program
from ..guards.memory import guard_memory
from ..guards.source import LocalSource, Source
from ..guards.tree import guard_tree
from ..interpreter import containers, ops_class, ops_flow, ops_stack, ops_values
from ..interpreter.budget import Budget
from ..interpreter.registry import HANDLERS
from ..interpreter.translator import NULL, BreakReached, StackMark, Translator, root_translator
from ..output.codegen import INPUTS, OUTPUTS, Codegen, Plan
from ..output.output_graph import OutputGraph
from ..rules.torch_marks import setting
from ..variables.base import MISSING, LazyVariable, ObservedException, VariableTracker, realized
from ..variables.cells import CellVariable
from ..variables.finalization import endings_in, held_by, may_be_finalized
from ..variables.numbers.dynamic_values import CountVariable
from ..variables.numbers.scalars import NumberNeeded, ScalarVariable
from ..variables.objects.classes import MadeClassVariable
from ..variables.objects.made_classes import forget_stand_ins
from ..variables.objects.objects import ObjectVariable, is_foreign_iterator
from ..variables.tensors import arrays
from ..variables.tensors.size_tables import ValuesNeeded, is_size_table
from ..variables.torch_api import autograd_function, checkpointing, transforms
from ..variables.torch_api.torch_functions import set_state
from . import changed_values, frame_policy
from .frame_policy import Artifact

# The modules register their handlers.
assert HANDLERS and containers and ops_class and ops_flow and ops_stack and ops_values
assert arrays and autograd_function and checkpointing and transforms

# Code of the user's whose trace has been given up as too long.
_TOO_LONG: CodeMap[bool] = CodeMap()

CompileGraph = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


@dataclasses.dataclass
class Settings:
    """What a compile of a frame is asked for.

    Args:
        compile_graph: the backend, already bound to its options.
        fullgraph: whether a break is an error.
        roots: the functions that were asked to be compiled; others are helpers, see ``frame_policy``. None: all were.
        on_graph: told of every graph, for reports.
        on_break: told of every break.
        on_entry: told of every cache entry, as an Artifact.
        break_at: whether to break before an instruction of the user's code, besides where it is necessary. To find a
            fault by halves, and for tests.
    """

    compile_graph: CompileGraph
    fullgraph: bool = False
    roots: CodeMap[bool] | None = None
    on_graph: Callable[[Any], None] | None = None
    on_break: Callable[[exc.Unsupported], None] | None = None
    on_entry: Callable[[Any], None] | None = None
    break_at: Callable[[types.CodeType, int], bool] | None = None


# By code object: the frame's number, and those of its compiles.
_numbers: CodeMap[tuple[int, Iterator[int]]] = CodeMap()
_next_frame = itertools.count()
_numbers_lock = threading.Lock()
# A fork may happen while another thread, which the child does not have, holds it.
os.register_at_fork(after_in_child=_numbers_lock._at_fork_reinit)  # type: ignore[attr-defined]


def _frame_id(code: types.CodeType) -> str:
    with _numbers_lock:
        known = _numbers.get(code)
        if known is None:
            known = next(_next_frame), itertools.count()
            _numbers.set(code, known)
        return f"{known[0]}/{next(known[1])}"


def reset_numbers() -> None:
    """Frames are numbered from zero again."""
    global _next_frame
    with _numbers_lock:
        _numbers.clear()
        _next_frame = itertools.count()


def compile_frame(
    settings: Settings,
    hook: Any,
    code: types.CodeType,
    globals: dict[str, Any],
    builtins: dict[str, Any],
    closure: tuple[types.CellType, ...] | None,
    args: tuple[Any, ...],
) -> Any:
    """Compiles a frame that no cache entry fits.

    Returns:
        a GuardedCode, or a decision of ``_eval_frame``.

    Raises:
        exc.Unsupported: with fullgraph, for the first break.
        exc.BackendCompilerFailed: the backend raised.
    """
    user_code = _original(code, 0)[0]
    asked = settings.roots is not None and settings.roots.get(user_code) is not None
    decision = frame_policy.decide(code, user_code, globals, asked, settings.fullgraph)
    if decision is not None:
        return decision
    frame = (args, closure, globals, builtins)
    known = entries(code, hook)
    if settings.roots is not None and not settings.fullgraph and code is user_code and settings.roots.get(code) is None:
        decision = frame_policy.decide_helper(code, known, closure, globals, args)
        if decision is not None:
            return decision
    with log.frame(_frame_id(code)), log.phase("trace"), saved_tensors_hooks_suspended():
        limit = setting("recompile_limit")
        if len(known) >= limit:
            return frame_policy.limit_reached(code, known, frame)
        changing: frozenset[Any] = frozenset()
        measured: frozenset[Any] = frozenset()
        frame_policy.note_compile(code, known, frame)
        if known:
            changing = frame_policy.changing_values(user_code, known, frame)
        resumed = is_resume_code(code)
        if resumed is not None and resumed.numbers:
            names = enumerate(code.co_varnames[: len(args)])
            measured = frozenset(LocalSource(name, i).key for i, name in names if name in resumed.numbers)
        fits_all = len(known) == limit - 1 and not settings.fullgraph
        compiler = _FrameCompiler(settings, code, globals, builtins, closure, args, changing | measured, fits_all)
        if all(entry.extra.graph is None for entry in known):
            compiler.barren = len(known)
        if not settings.fullgraph and len(known) >= limit // 2:
            compiler.kept = changing | measured
        elif not settings.fullgraph and (known or setting("capture_scalar_outputs")):
            compiler.kept = measured
        return compiler.compile()


# ---------------------------------------------------------------- one frame
class _FrameCompiler:
    """The compile of one frame."""

    def __init__(
        self,
        settings: Settings,
        code: types.CodeType,
        globals: dict[str, Any],
        builtins: dict[str, Any],
        closure: tuple[types.CellType, ...] | None,
        args: tuple[Any, ...],
        changing: frozenset[Any],
        fits_all: bool,
    ) -> None:
        self.settings = settings
        self.changing = changing
        self.fits_all = fits_all
        self.code = code
        self.globals = globals
        self.builtins = builtins
        self.closure = closure
        self.args = args
        self.error: exc.Unsupported | None = None
        # The paths of tensors that are guarded by their elements, and the functions that asked for these.
        self.readers: dict[Any, frozenset[types.CodeType]] = {}
        self.kept: frozenset[Any] = frozenset()  # floats that are not to be guarded by value whatever is done with them
        self.kept_locals: frozenset[str] = frozenset()
        self.barren = 0  # compiles of this code that have given no graph, if none has given one
        self._faults = 0

    def compile(self) -> Any:
        visit: int | None = None
        while True:
            output = OutputGraph(self.changing, self.fits_all)
            output.fixed_tables, output.fullgraph = frozenset(self.readers), self.settings.fullgraph
            output.may_rely_on = self._may_rely_on
            output.fake_mode.known.follows = bool(self.readers)
            tx = root_translator(self.code, output, self.globals, self.builtins, self.closure, self.args)
            output.effects.watch.add_arguments(self.args)
            tx.budget = Budget(self.settings.fullgraph, self.barren)
            tx.break_visit = visit
            tx.break_at = self._wanted_break if self.settings.break_at is not None else None
            state = current_global_state()
            with _restoring(tx, output):
                try:
                    result, visit = self._attempt(tx, state)
                except ValuesNeeded as values:
                    for path in values.origins:
                        self.readers[path] = self.readers.get(path, frozenset()) | values.readers
                    continue
                except NumberNeeded as needed:
                    if not self._may_fix(needed):
                        raise
                    self.changing -= needed.origins
                    continue
                except exc.DynamoLiteError:
                    raise
                except Exception as error:
                    result, visit = None, self._internal_error(tx, error, visit)
                    if visit is None:
                        return RUN_ORIGINAL
                if result is not None:
                    return result
            if visit is None or visit < 0:
                assert self.error is not None
                frame_policy.note_skipped(
                    _original(self.code, 0)[0], f"nothing of it can be captured: {self.error.reason}"
                )
                return self._run_original(tx, state)

    def _may_rely_on(self, source: Source, value: torch.Tensor) -> bool:
        """Whether the elements of a tensor may be guarded: not those that have changed, and only of sizes where the
        tensor is likely to be computed by the program: left by a break, or an argument of a function that was called
        after one."""
        original = _original(self.code, 0)[0]
        if changed_values.has_changed(original, source.name):
            return False
        while source.parents():
            source = source.parents()[0]
        if is_resume_code(self.code) is not None and isinstance(source, LocalSource):
            flags = bool(original.co_flags & inspect.CO_VARARGS) + bool(original.co_flags & inspect.CO_VARKEYWORDS)
            parameters = original.co_varnames[: original.co_argcount + original.co_kwonlyargcount + flags]
            if source.local not in parameters:
                return False
        roots = self.settings.roots
        return roots is None or roots.get(original) is not None or is_size_table(value)

    def _attempt(self, tx: Translator, state: tuple[Any, ...]) -> tuple[Any, int | None]:
        """One trace: what came of it; or None, and the visit of the root before which to break instead."""
        try:
            returned = realized(tx, tx.run())
            try:
                return self._finish(tx, state, returned, None), None
            except exc.Unsupported as error:
                self._note(tx, error)
                return None, error.visit if error.visit is not None else tx.visits - 1
        except BreakReached as reached:
            return self._finish_break(tx, state, reached.index)
        except exc.Unsupported as error:
            self._note(tx, error)
            if error.kind == "trace_too_long" and self._is_left(tx):
                return None, tx.budget.after_operations()
            if error.visit is None and tx.take_back():
                return self._finish_break(tx, state, tx.current.index)
            return None, error.visit if error.visit is not None else tx.visits - 1
        except ObservedException as error:
            error.__traceback__ = None
            self._note(tx, self._uncaught(tx, error))
            return None, tx.visits - 1

    def _internal_error(self, tx: Translator, error: Exception, visit: int | None) -> int | None:
        """Where to break because of a fault of ours; None if that has been tried."""
        if config.raise_internal_errors:
            raise error
        text = f"{type(error).__name__}: {exc.one_line(error)}"
        fault = exc.Unsupported("internal_error", text, user_stack=tx.user_stack())
        log.count("internal_errors")
        if log.first_time("fallbacks", (self.code, fault.where)):
            details = error if log.enabled("fallbacks") else None
            log.artifact("fallbacks").warning("%s", fault.report(), exc_info=details)
        self._note(tx, fault)
        if self._faults or tx.visits - 1 == visit or tx.visits < 1:
            frame_policy.note_skipped(_original(self.code, 0)[0], fault.reason)
            return None
        self._faults += 1
        return tx.visits - 1

    def _finish_break(self, tx: Translator, state: tuple[Any, ...], index: int) -> tuple[Any, int | None]:
        """The guarded code that ends before an instruction; or None, and where to break instead."""
        try:
            return self._finish(tx, state, None, index), None
        except exc.Unsupported as error:
            # What is alive here can't be rebuilt after a graph: break earlier.
            self._note_rebuild(tx, error)
            return None, error.visit if error.visit is not None else self._earlier(tx.visits)

    def _is_left(self, tx: Translator) -> bool:
        """Whether a frame with a trace that is too long runs in plain Python: the loop is its own, or breaking at the
        call of a function that loops has been tried before."""
        original = _original(self.code, 0)[0]
        tried = is_resume_code(self.code) is not None and _TOO_LONG.get(original) is not None
        _TOO_LONG.set(original, True)
        return tried or tx.budget.is_own_loop(tx)

    def _wanted_break(self, index: int) -> bool:
        """Whether the settings ask for a break before this instruction."""
        code, original = _original(self.code, index)
        wanted = self.settings.break_at
        if wanted is None or original < decode(code).first_index or break_start(code, original) != original:
            return False
        return wanted(code, original)

    def _earlier(self, visits: int) -> int | None:
        """Where to break when breaking after `visits` instructions is impossible."""
        self._steps_back = getattr(self, "_steps_back", 0) * 2 + 1
        target = visits - self._steps_back
        return target if target > self._prologue_visits() else None

    def _prologue_visits(self) -> int:
        """Instructions that set the frame up, where there is no state to break at."""
        if is_resume_code(self.code) is not None:
            return next(i for i, _ in enumerate(decode(self.code).instructions) if _original(self.code, i)[1] >= 0)
        return decode(self.code).first_index

    def _may_fix(self, error: exc.Unsupported) -> bool:
        """Whether guards on the value of numbers help, with which the trace starts again."""
        if not isinstance(error, NumberNeeded) or self.fits_all or not error.origins & self.changing:
            return False
        return error.cls is int or not error.origins & self.kept

    def _note(self, tx: Translator, error: exc.Unsupported) -> None:
        if self._may_fix(error) or isinstance(error, ValuesNeeded):
            raise error
        if not error.user_stack:
            error.user_stack = tx.user_stack()
        if self.settings.fullgraph and error.kind != "python_exception_in_trace":
            raise error
        # What it was raised from or in the middle of, and its traceback, hold frames, those of the program too.
        error.__cause__ = error.__context__ = error.__traceback__ = None
        self.error = error

    def _note_rebuild(self, tx: Translator, error: exc.Unsupported) -> None:
        assert self.error is not None
        log.artifact("graph_breaks").debug("the break is made earlier, since it needs %s", error.reason)

    def _uncaught(self, tx: Translator, error: ObservedException) -> exc.Unsupported:
        cls = error.value.python_type()
        return exc.Unsupported("python_exception_in_trace", f"{cls.__qualname__}", user_stack=tx.user_stack())

    # -- code
    def _finish(
        self, tx: Translator, state: tuple[Any, ...], returned: VariableTracker | None, break_index: int | None
    ) -> Any:
        output = tx.output
        if break_index is not None:
            break_index = self._break_start(tx, break_index)
        self.kept_locals = self._felt_locals(tx) if break_index is not None else frozenset()
        output.effects.check_outer_tracebacks()
        output.effects.check_generators()
        plan = Plan()
        try:
            self._emit(tx, plan, 0, returned, break_index, dry=True)
        except RecursionError:
            raise exc.Unsupported("unsupported_value", "rebuilding a value that is nested too deeply") from None
        outputs = plan.output_list
        changes = output.state_changes()
        finished = output.finish(outputs)
        output.restore_state()
        if break_index is not None:
            self._report_break()
        elif finished is None and not output.effects.has_changes() and returned is not None and not changes:
            if not output.operations:
                # All that it calls has been evaluated with it, so there is nothing to look up.
                return self._run_original(tx, state, hooked=False)
        elif returned is not None and output.generators and not (output.operations or self.settings.fullgraph):
            return self._run_original(tx, state, hooked=False)  # no more than numbers are drawn
        graph, inputs = finished if finished is not None else (None, [])
        compiled = self._call_backend(graph, inputs) if graph is not None else None
        put_back = self._to_put_back(output, inputs, compiled)
        if compiled is not None and break_index is not None:
            compiled = CompiledGraph(compiled)
        emitter, plan, resumes = self._emit(
            tx, plan, len(inputs), returned, break_index, dry=False, compiled=compiled, put_back=put_back,
            changes=changes, graph=graph,
        )
        self._guard_aliases(output, inputs)
        sources = [t.source for t in inputs if t.source is not None] + plan.extra_list
        return self._entry(tx, state, emitter, sources, graph, break_index is not None)

    def _break_start(self, tx: Translator, index: int) -> int:
        start_of = break_start(*_original(self.code, index))
        original_index = _original(self.code, index)[1]
        if start_of == original_index:
            return index
        # A call's parts run as one: KW_NAMES and PRECALL changed nothing on the stack.
        return index - (original_index - start_of)

    def _run_original(self, tx: Translator, state: tuple[Any, ...], hooked: bool = True) -> GuardedCode:
        """An entry that says: there is nothing to compile; `hooked`: perhaps there is in what it calls."""
        program, texts = build_program(tx.output.guards.all(), state, [])
        artifact = Artifact(
            tx.output.guards.all(), texts, None, log.current_frame(), self.changing,
            readers={**self.readers, **tx.output.learned})
        return GuardedCode(program, None, hooked, extra=artifact)

    def _call_backend(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        log.count("graphs")
        if log.enabled("graph_code"):
            place = frame_policy.place(_original(self.code, 0)[0])
            log.artifact("graph_code").info("graph of %s\n%s", place, graph.print_readable(False))
            log.artifact("graph_code").debug("nodes of the graph of %s\n%s", place, layouts(graph))
        if self.settings.on_graph is not None:
            self.settings.on_graph(graph)
        with log.phase("backend"):
            compiled = self.settings.compile_graph(graph, [t.fake for t in inputs])
        graph.meta["generated_code"] = getattr(compiled, "generated_code", ())
        return compiled

    def _emit(
        self,
        tx: Translator,
        plan: Plan,
        graph_inputs: int,
        returned: VariableTracker | None,
        break_index: int | None,
        *,
        dry: bool,
        compiled: Callable[..., Any] | None = None,
        put_back: tuple[list[int], list[int]] | None = None,
        changes: list[tuple[Any, tuple[Any, ...]]] | None = None,
        graph: torch.fx.GraphModule | None = None,
    ) -> tuple[Emitter, Plan, list[types.CodeType]]:
        emitter = Emitter()
        emitter.set_line(tx.current.positions)
        rerun: Rerun | None = None
        cells = self.code.co_cellvars
        in_cells, arguments = ([n for n in self._argument_names() if (n in cells) == c] for c in (True, False))
        cg = _FrameCodegen(tx.output.effects, emitter, plan, graph_inputs, arguments, self._own_cells(tx), in_cells)
        if compiled is not None:
            restore = functools.partial(set_state, tx.output.state_at_entry)
            random = tx.output.fake_mode.random_seen
            changed, counted = put_back or ([], [])
            rerun = Rerun(emitter, self.code, self._argument_names(), restore, random, tx.output.changes_autocast,
                          changed, counted, tuple(tx.output.generators.values()), graph, put_back is not None)
            _emit_graph_call(emitter, compiled, graph_inputs, plan, rerun)
        for function, args in changes or ():
            emitter.load_function(function)
            for value in args:
                emitter.load_const(value)
            emitter.call(len(args))
            emitter.pop()
        tx.output.effects.replay(cg)
        resumes: list[types.CodeType] = []
        if returned is not None:
            cg.push(returned)
            emitter.ret()
        else:
            assert break_index is not None
            bound = self._emit_frame(cg, tx)
            kinds = _stack_kinds(tx.stack)
            if not dry:
                resumes = emit_break(
                    emitter, self.code, break_index, stack=kinds, bound=bound, continuation=Continuation,
                    keep=self.kept_locals, parameters=(INPUTS, *self._argument_names()), foreign=_foreign(tx.stack),
                )
                self._note_numbers(tx, resumes, break_index)
                for code in resumes:
                    mark_own(code)
        if rerun is not None:
            rerun.finish()
        return emitter, plan, resumes

    def _note_numbers(self, tx: Translator, resumes: list[types.CodeType], break_index: int) -> None:
        """What is a number out of a tensor before the break, or comes out of one there, is no constant after it."""
        kinds = (ScalarVariable, CountVariable)
        names = [name for name, value in tx.locals.items() if isinstance(value, kinds)]
        slots = [slot for slot, value in enumerate(tx.stack) if isinstance(value, kinds)]
        gives_number = self.error is not None and self.error.kind == "tensor_to_python"
        for code in resumes:
            note_numbers(code, names, slots, _original(self.code, break_index)[1] if gives_number else None)

    def _to_put_back(
        self, output: OutputGraph, inputs: list[Any], compiled: Any
    ) -> tuple[list[int], list[int]] | None:
        """Places of the inputs to copy, and of those whose writes torch counts, so that the frame can run again when
        the graph raises; None: it can't."""
        changed = output.mutated_inputs()
        if not changed or getattr(compiled, "raises_before_writes", False):
            return [], []
        places = [place for place, t in enumerate(inputs) if any(t is c for c in changed)]
        if may_raise(output.graph) and not any(t.fake.requires_grad for t in changed):
            return places, []
        # Operations run one by one count their writes; a backend's kernel may write and raise before it has counted.
        by_torch = isinstance(getattr(compiled, "__self__", None), torch.fx.GraphModule) or getattr(
            compiled, "counts_writes", False)
        return ([], places) if by_torch else None

    def _argument_names(self) -> tuple[str, ...]:
        return self.code.co_varnames[: len(self.args)]

    def _own_cells(self, tx: Translator) -> list[CellVariable]:
        return [cell for name, cell in tx.cells.items() if name in self.code.co_cellvars]

    def _emit_frame(self, cg: Codegen, tx: Translator) -> list[str]:
        """Restores the frame: cells, stack, locals. Values are computed before a local is overwritten."""
        emitter = cg.emit
        live = needed_locals(self.code, tx.current.index) | self.kept_locals
        held: list[tuple[str, str]] = []
        for name in tx.code.co_varnames:
            if name in tx.locals and name in live:
                held.append((name, cg.hold(tx.locals[name])))
        for cell in self._own_cells(tx):
            cg.fill_cell(cell)
        handled = iter(tx.exceptions)
        for value in tx.stack:
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
        for name, temporary in held:
            emitter.load_fast(temporary)
            emitter.store_fast(name)
        for name in sorted(cg.arguments):
            now = tx.locals.get(name)
            held_still = now is not None and isinstance(now.source, LocalSource) and now.source.local == name
            if now is None or (name not in live and not held_still):
                emitter.unbind_fast(name)  # an argument that the program has deleted or bound anew
        return [name for name, _ in held]

    def _felt_locals(self, tx: Translator) -> frozenset[str]:
        """Locals and cells that nothing reads any more, but whose values must not end before the frame does."""
        live = needed_locals(self.code, tx.current.index)
        effects = tx.output.effects
        dead = {n: v for n, v in tx.locals.items() if n not in live and not n.startswith("___")}
        cells = {n: tx.cells[n].contents for n in _original(self.code, 0)[0].co_cellvars if n in tx.cells}
        dead |= {n: contents for n, contents in cells.items() if contents is not MISSING}
        kept: set[str] = set()
        seen_outside: dict[int, VariableTracker] | None = None
        for name, value in dead.items():
            if isinstance(value, MadeClassVariable):
                kept.add(name)  # its bases know of it
                continue
            if isinstance(value, LazyVariable) and effects.tracker_of(value.value) is None:
                if isinstance(value.source, LocalSource) and value.source.local == name:
                    kept.add(name)  # an argument of which no guard says what kind of value it is
                    continue
            parts = held_by(effects, [value])
            if any(t.source is not None and endings_in(getattr(t, "value", None)) for t in parts.values()):
                kept.add(name)
                continue
            made = [key for key, part in parts.items() if may_be_finalized(part)]
            if made and seen_outside is None:
                seen_outside = held_by(effects, self._visible(tx, live))
            if seen_outside is not None and any(key in seen_outside for key in made):
                kept.add(name)
        return frozenset(kept)

    @staticmethod
    def _visible(tx: Translator, live: Collection[str]) -> Iterator[VariableTracker]:
        """What plain Python can get hold of from a break on."""
        yield from (value for value in tx.stack if not isinstance(value, StackMark))
        yield from (value for name, value in tx.locals.items() if name in live)
        yield from tx.cells.values()
        yield from tx.output.effects.outside_values()

    # -- guards and the entry
    def _guard_aliases(self, output: OutputGraph, inputs: list[Any]) -> None:
        """What is changed must be as apart from the rest as while tracing: memory of tensors, containers, objects."""
        mutated = {id(t) for t in output.mutated_inputs()}
        if mutated:
            changed: list[tuple[Source, torch.Tensor]] = []
            others: list[tuple[Source, torch.Tensor]] = []
            for t in output.inputs:
                if isinstance(t, ScalarVariable):
                    continue
                if t.source is not None and t.value is not None and t.value.device.type != "meta":
                    (changed if id(t) in mutated else others).append((t.source, t.value))
            guard_memory(output.guards, changed, others)
        output.effects.guard_distinct(output.guards)

    def _entry(
        self,
        tx: Translator,
        state: tuple[Any, ...],
        emitter: Emitter,
        sources: list[Source],
        graph: torch.fx.GraphModule | None,
        has_break: bool,
    ) -> GuardedCode:
        guards = tx.output.guards.all()
        program, texts = build_program(guards, state, sources)
        user_code = _original(self.code, 0)[0]
        with log.phase("assemble"):
            guarded = emitter.assemble(
                name=self.code.co_name,
                qualname=self.code.co_qualname,
                filename=self.code.co_filename,
                firstlineno=user_code.co_firstlineno,
                argnames=(*self._argument_names(), INPUTS),
                freevars=self.code.co_freevars,
                cellvars=self.code.co_cellvars,
            )
        self._log_entry(guards, guarded, program)
        artifact = Artifact(guards, texts, graph, log.current_frame(), self.changing,
                            tx.output.effects.changed_names(), {**self.readers, **tx.output.learned})
        if self.settings.on_entry is not None:
            self.settings.on_entry(artifact)
        on_elements = any(guard.kind == "tensor_data" for guard in guards)
        breadth = 0 if on_elements else 2 if self.fits_all else 1
        return GuardedCode(program, guarded, has_break, extra=artifact, breadth=breadth)

    def _log_entry(self, guards: list[Guard], guarded: types.CodeType, program: GuardProgram) -> None:
        label = resume_label(self.code)
        if log.enabled("guards"):
            log.artifact("guards").info("guards of %s\n%s", label, guard_tree(guards))
            steps = "\n".join(f"{n:4} {exc.one_line(repr(step), 110)}" for n, step in enumerate(program.steps))
            log.artifact("guards").debug("guard program of %s\n%s", label, steps)
        if log.enabled("bytecode"):
            place = frame_policy.place(_original(self.code, 0)[0])
            what = place if is_resume_code(self.code) is None else f"{label} of {place}"
            text = side_by_side(self.code, guarded, log.enabled("bytecode", logging.DEBUG))
            log.artifact("bytecode").info("%s\n%s", what, text)

    def _report_break(self) -> None:
        error = self.error
        assert error is not None
        log.count("graph_breaks")
        if self.settings.on_break is not None:
            self.settings.on_break(error)
        if not log.enabled("graph_breaks"):
            return
        if error.kind == "unsupported_iteration" and is_resume_code(self.code) is not None:
            # The iterator of a loop that was broken in its body: a consequence that the user can't do anything about.
            log.artifact("graph_breaks").debug("Graph break again at %s", error.report())
        elif log.first_time("graph_breaks", (error.where, error.kind)):
            log.artifact("graph_breaks").info("Graph break at %s", error.report())
        else:
            log.artifact("graph_breaks").debug("Graph break again at %s: %s", error.where, error.reason)


def _original(code: types.CodeType, index: int) -> tuple[types.CodeType, int]:
    """The user's code object and the index there of an instruction; -1 in the prologue of a resume function."""
    info = is_resume_code(code)
    return (code, index) if info is None else (info.original, info.origins[index])


@contextlib.contextmanager
def _restoring(tx: Translator, output: OutputGraph) -> Iterator[None]:
    """At the end, torch's state is as before, and nothing of the trace holds the program's objects: trackers know each
    other, so until the next collection of garbage they would keep alive what the program lets go of."""
    try:
        yield
    finally:
        output.restore_state()
        output.fake_mode.forget_inputs()
        forget_stand_ins(output.effects)
        tx.forget()
        output.forget()


def _emit_graph_call(
    emitter: Emitter, compiled: Callable[..., Any], graph_inputs: int, plan: Plan, rerun: Rerun
) -> None:
    rerun.begin(INPUTS)
    with emitter.covered(rerun.label, 0):
        emitter.load_function(compiled)
        emitter.load_fast(INPUTS)
        if plan.extra_list:
            emitter.load_const(slice(0, graph_inputs))
            emitter.subscr()
        emitter.call_ex(False)
    if plan.output_list:
        emitter.store_fast(OUTPUTS)
    else:
        emitter.pop()


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
    """Places on the stack of iterators from outside that no trace can follow."""
    return [
        slot for slot, tracker in enumerate(stack)
        if isinstance(tracker, (LazyVariable, ObjectVariable)) and tracker.source is not None
        and is_foreign_iterator(tracker.value)
    ]


class _FrameCodegen(Codegen):
    """Code generation for one frame, which knows the effects of its trace."""

    def __init__(self, effects: Any, *args: Any) -> None:
        super().__init__(*args)
        self._effects = effects

    def attributes_of(self, value: VariableTracker) -> dict[str, VariableTracker]:
        written = self._effects.attributes_of(value)
        return {n: v for n, v in written.items() if v is not MISSING}

    def load_class(self, cls: type) -> None:
        made = self._effects.tracker_of(cls)
        if isinstance(made, MadeClassVariable):
            self.push(made)
        else:
            self.emit.load_const(cls)

    def check_traceback(self, value: VariableTracker) -> None:
        self._effects.check_traceback(value)
