"""Symbolic evaluation of frames.

A :class:`Translator` evaluates one frame: its locals, its cells and an operand stack of trackers. A call of a Python
function makes a child translator, which runs to its end (a generator: to the next ``yield``) before the caller goes
on. The captured frame is the root.

Invariants: the operand stack has the same contents as CPython's at this instruction, with :data:`NULL` for NULL. A
trace that stops at a graph break leaves the root's state as it was before the breaking instruction: either the effects
of that instruction are undone, or the frame is traced again up to there.
"""
from __future__ import annotations

import dataclasses
import os
import sys
import traceback
import types
from typing import Any

import torch

from .. import config
from ..bytecode.facts import facts
from ..bytecode.instructions import Decoded, Instruction, decode
from ..exc import Unsupported
from ..guards.source import (
    BuiltinSource,
    ClosureCellSource,
    ConstSource,
    DictItemSource,
    GlobalsSource,
    LocalSource,
    Source,
)
from ..output.output_graph import OutputGraph
from ..variables.base import MISSING, LazyVariable, ObservedException, VariableTracker, realized, unsupported
from ..variables.cells import CellVariable
from ..variables.constant import ConstantVariable
from ..variables.containers.mappings import DictVariable
from ..variables.functions.equivalents import is_equivalent
from ..variables.functions.functions import GENERATOR, BaseFunctionVariable, is_inlinable
from ..variables.functions.generators import GeneratorVariable
from ..variables.tensors.tensor_hooks import HookHandleVariable
from ..variables.torch_api.modes import DeviceEnterVariable, DeviceScopeVariable
from ..variables.torch_api.overrides import DisabledOverridesVariable
from .budget import Budget
from .evaluator import Evaluator
from .registry import HANDLERS, REFUSED


class _Null(VariableTracker):
    """The NULL that the calling convention puts on the stack."""

    def describe(self) -> str:
        return "NULL"


class StackMark(VariableTracker):
    """A stack slot that holds the interpreter's own state: the exception state to go back to, or an instruction
    offset."""

    def __init__(self, what: str, exception: VariableTracker | None = None) -> None:
        super().__init__()
        self.what = what
        self.exception = exception

    def describe(self) -> str:
        return self.what


NULL = _Null()
_OWN_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep


@dataclasses.dataclass
class BreakPoint:
    """The point where the root stopped.

    Attributes:
        index: index of the instruction before which the root stopped.
        visit: number of instructions that the root had evaluated by then.
        error: the reason for the graph break.
    """

    index: int
    visit: int
    error: Unsupported


class ModuleNotLoaded(Unsupported):
    """A break at an import that runs a module's code. Once the module is loaded, the frame can be traced without the
    break.

    Args:
        module: the name in ``sys.modules``.
    """

    def __init__(self, detail: str, module: str) -> None:
        super().__init__("import_statement", detail)
        self.module = module


class BreakReached(Exception):
    """The root has arrived at the instruction where the trace is to stop."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Returned(Exception):
    """Internal: the frame returns `value`."""

    def __init__(self, value: VariableTracker) -> None:
        super().__init__()
        self.value = value


class Yielded(Exception):
    """Internal: the generator's frame yields `value`."""

    def __init__(self, value: VariableTracker) -> None:
        super().__init__()
        self.value = value


class Translator(Evaluator):
    """The symbolic evaluator of one frame.

    Args:
        code: the code object to evaluate.
        output: the graph, guards and effects of the trace.
        globals: the frame's globals and their source.
        locals: the values of the parameters by name.
        parent: the frame that called this one, None for the root.
    """

    def __init__(
        self,
        code: types.CodeType,
        output: OutputGraph,
        globals: tuple[dict[str, Any], Source],
        builtins: dict[str, Any],
        locals: dict[str, VariableTracker],
        parent: Translator | None = None,
    ) -> None:
        self.code = code
        self.output = output
        self.decoded: Decoded = decode(code)
        self.globals = globals
        self.builtins = builtins
        self.locals = locals
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.root: Translator = parent.root if parent is not None else self
        self.stack: list[VariableTracker] = []
        self.cells: dict[str, CellVariable] = {}
        self.free_cells: list[CellVariable] = []
        self.namespace: DictVariable | None = None  # the namespace, if the frame is a class body
        self.keyword_names: tuple[str, ...] = ()
        self.exceptions: list[VariableTracker | None] = []
        self.index = 0
        self.visits = 0
        self.budget: Budget = parent.root.budget if parent is not None else Budget()
        self.current: Instruction = self.decoded.instructions[0]
        self.returned: VariableTracker = ConstantVariable(None)
        self.stopped = False  # whether a StopIteration has ended this generator's frame
        self._before: tuple[list[VariableTracker], int, int, int] = ([], 0, 0, 0)
        self.break_visit: int | None = None
        self.unbreakable: frozenset[int] = frozenset()  # instructions of the root before which it can't break
        self.last_breakable = -1  # the last visit of an instruction before which it can break
        self.break_before: frozenset[int] = frozenset()  # instructions of the root before which to break

    # -- the stack
    def push(self, value: VariableTracker) -> None:
        self.stack.append(value)

    def pop(self) -> VariableTracker:
        """Pops the top of the stack and realizes it."""
        return realized(self, self.stack.pop())

    def pop_lazy(self) -> VariableTracker:
        """Pops the top of the stack without realizing it."""
        return self.stack.pop()

    def wrap_top(self) -> VariableTracker:
        """Realizes the top of the stack and leaves it there."""
        value = self.stack[-1] = realized(self, self.stack[-1])
        return value

    def peek(self, n: int) -> VariableTracker:
        """Realizes the n-th value from the top of the stack and leaves it there."""
        value = self.stack[-n] = realized(self, self.stack[-n])
        return value

    def pop_many(self, n: int) -> list[VariableTracker]:
        """Pops the top n values of the stack, bottom first, and realizes them."""
        if n == 0:
            return []
        values = self.stack[-n:]
        del self.stack[-n:]
        return [realized(self, v) for v in values]

    def forget(self) -> None:
        """Releases the frame's values. To be called when the trace has ended."""
        for values in (self.stack, self.locals, self.cells, self.free_cells, self.exceptions):
            values.clear()
        self._before = ([], 0, 0, 0)
        self.returned = ConstantVariable(None)
        self.release_parts()

    # -- running
    def run(self) -> VariableTracker:
        """Evaluates the frame to its return.

        Raises:
            ObservedException: the frame raises.
            exc.Unsupported: the frame can't be evaluated further.
            BreakReached: the root has come to the instruction at which to stop.
        """
        try:
            while True:
                self.step()
        except Returned as result:
            return result.value

    def step(self) -> None:
        """Evaluates one instruction."""
        instructions = self.decoded.instructions
        instruction = self.current = instructions[self.index]
        if self.parent is None:
            self._enter_instruction(instruction)
        else:
            self.output.effects.epoch += 1
            self.budget.evaluated += 1
            if self.budget.evaluated > self.budget.look_at:
                self.budget.look(self.root)
        try:
            handler = HANDLERS.get(instruction.opname)
            if handler is None:
                unsupported("unsupported_opcode", f"{instruction.opname}: {REFUSED.get(instruction.opname, 'no rule')}")
            target = handler(self, instruction)
        except ObservedException as error:
            error.__traceback__ = None  # it holds the evaluator's frames, and one of these the error
            self.unwind(error, instruction)
        except Unsupported as error:
            if not error.user_stack:
                error.user_stack = self.user_stack()
            raise
        except RecursionError:
            unsupported("inline_depth", f"{self.code.co_qualname}: the evaluator's own stack is used up")
        else:
            self.index = instruction.index + 1 if target is None else target
        if self.parent is None and self.output.effects.watch:
            self.output.effects.watch.check(self)

    def _enter_instruction(self, instruction: Instruction) -> None:
        if self.break_visit == self.visits:
            raise BreakReached(instruction.index)
        if self.unbreakable and instruction.index not in self.unbreakable:
            self.last_breakable = self.visits
        self.visits += 1
        output = self.output
        self._before = (list(self.stack), output.effects.epoch, output.guards.count(), output.symbols.decided)
        if instruction.index in self.break_before:
            unsupported("explicit_break", f"asked for before {instruction.opname}")
        budget = self.budget
        if budget.operations != self.output.operations:
            budget.note_operations(self)
        budget.evaluated += 1
        if budget.evaluated > budget.look_at:
            budget.look(self)

    def undo_instruction(self) -> bool:
        """Undoes the root's current instruction, which broke the graph, if it has changed nothing but the stack.

        Guards that it added stay. If they fix values that plain Python is going to read anyway, it is better to trace
        anew, and the instruction is not undone.

        Returns: whether the instruction was undone.
        """
        stack, epoch, guards, decided = self._before
        output = self.output
        if output.effects.epoch != epoch or output.symbols.decided != decided:
            return False
        if not output.guards.only_structure_since(guards):
            return False
        self.stack[:] = stack
        self.keyword_names = ()
        self.visits -= 1
        return True

    def unwind(self, error: ObservedException, instruction: Instruction) -> None:
        """Continues at the instruction's exception handler, or leaves the frame (Python/ceval.c, exception_unwind)."""
        self.output.effects.note_raised(error.value, self.root.visits - 1)
        self.errors.chain(error)
        handler = instruction.handler
        if handler is None:
            raise error
        del self.stack[handler.depth :]
        if handler.lasti:
            self.push(StackMark("lasti"))
        self.push(error.value)
        self.index = handler.target

    # -- calls
    def inline(
        self, function: BaseFunctionVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Evaluates a call of a Python function."""
        code = function.code()
        if not is_inlinable(code):
            unsupported("generator_frame", f"{function.describe()}, a coroutine or async generator")
        if self.depth >= config.inline_depth_limit:
            unsupported("inline_depth", f"{function.describe()} at depth {self.depth}")
        bound = function.bind(self, args, kwargs)
        child = Translator(code, self.output, function.globals(), self.builtins, bound, self)
        child.free_cells = function.cells(self)
        if code.co_flags & GENERATOR:
            return GeneratorVariable(child, function, dict(bound))
        try:
            return realized(self, child.run())
        finally:
            child.release_parts()

    def run_generator(
        self, frame: Translator, sent: VariableTracker | None, raised: ObservedException | None
    ) -> VariableTracker | None:
        """Runs a generator's frame to its next yield; None when it returns."""
        frame.parent = self
        frame.depth = self.depth + 1
        if frame.depth >= config.inline_depth_limit:
            unsupported("inline_depth", f"generator at depth {frame.depth}")
        inner = frame.delegate() if raised is not None else None
        if raised is not None and inner is not None:
            try:
                if issubclass(raised.value.python_type(), GeneratorExit):
                    self.iteration.close_generator(inner)
                else:
                    value = inner.resume(self, None, raised)
                    if value is not None:
                        return value
                    # The inner generator has returned: the outer one goes on behind its ``yield from``.
                    send = frame.decoded.instructions[frame.index - 2]
                    assert send.target is not None
                    frame.index = frame.end_delegation(inner.returned, send.target)
                    raised = None
            except ObservedException as error:
                raised = error
        if raised is not None:
            try:
                frame.push(ConstantVariable(None))  # in the place of the sent value
                self.errors.chain(raised)  # __context__ is the exception that this frame handles, not the generator
                frame.unwind(raised, frame.current)
            except ObservedException as error:
                self._check_stop_iteration(error)
                raise
        elif sent is not None and inner is None:
            frame.push(sent)
        try:
            while True:
                frame.step()
        except Yielded as result:
            return realized(self, result.value)
        except Returned as result:
            frame.returned = realized(self, result.value)
            return None
        except ObservedException as error:
            if is_equivalent(frame.code) and issubclass(error.value.python_type(), StopIteration):
                frame.returned, frame.stopped = self.getattr(error.value, "value"), True
                return None  # a function called by an iterator written in C may end the iteration
            self._check_stop_iteration(error)
            raise
        finally:
            frame.release_parts()

    def delegate(self) -> GeneratorVariable | None:
        """The generator that this suspended one delegates to by ``yield from`` (Objects/genobject.c, _PyGen_yf)."""
        following = self.decoded.instructions[self.index]
        if following.opname != "RESUME" or following.arg & 3 != 2:  # type: ignore[operator]
            return None
        inner = self.stack[-facts.ITERATOR_SLOTS]
        if not isinstance(inner, GeneratorVariable):
            unsupported("generator_frame", f"throw() into a generator that delegates to {inner.describe()}")
        return inner

    def end_delegation(self, result: VariableTracker, index: int) -> int:
        """Puts the result of the iterator of a ``yield from``, which is on top of the stack, where the instruction at
        `index`, behind the loop of the ``yield from``, expects it."""
        if self.decoded.instructions[index].opname == "END_SEND":
            self.push(result)
        else:
            self.stack[-1] = result
        return index

    def _check_stop_iteration(self, error: ObservedException) -> None:
        """A StopIteration that leaves a generator becomes a RuntimeError (PEP 479)."""
        if issubclass(error.value.python_type(), StopIteration):
            raise ObservedException(self.stop_iteration_error(error.value), chained=True)

    def stop_iteration_error(self, error: VariableTracker) -> VariableTracker:
        """What a generator raises instead of a StopIteration."""
        said = ConstantVariable("generator raised StopIteration")
        raised = self.errors.new_exception(RuntimeError, [said], by_interpreter=True)
        for name, value in (("__cause__", error), ("__context__", error),
                            ("__suppress_context__", ConstantVariable(True))):
            self.output.effects.store_attr(raised, name, value)
        return raised

    def zero_argument_super(self) -> tuple[VariableTracker, VariableTracker]:
        """The class and first argument of ``super()`` (Objects/typeobject.c, super_init_without_args)."""
        cell = self.cells.get("__class__")
        cls = cell.load(self) if cell is not None else None
        if cls is None or not self.code.co_argcount:
            self.raise_error(RuntimeError, "super(): no arguments")
        name = self.code.co_varnames[0]
        owner = self.cells[name].load(self) if name in self.cells else self.locals.get(name)
        if owner is None:
            self.raise_error(RuntimeError, "super(): arg[0] deleted")
        return cls, realized(self, owner)

    # -- names
    def load_global(self, name: str) -> VariableTracker:
        """A global or builtin, lazily."""
        space, source = self.globals
        written = self.output.effects.load_global(self, space, source, name)
        if written is not None and written is not MISSING:
            return written
        if written is None and name in space:
            return LazyVariable(space[name], DictItemSource(source, name))
        if written is None:
            self.guard(source, "dict_lacks", name)
        if name in self.builtins:
            return LazyVariable(self.builtins[name], BuiltinSource(name))
        self.raise_error(NameError, f"name {name!r} is not defined")

    def import_module(self, name: str, names: Any, level: int) -> VariableTracker:
        """The module that ``import`` gives, if it is loaded already: importing again has no effect then."""
        package = self.globals[0].get("__package__") or ""
        if level:
            base = package.rsplit(".", level - 1)[0] if level > 1 else package
            full = f"{base}.{name}" if name else base
        else:
            full = name
        module = sys.modules.get(full)
        if module is None:
            raise ModuleNotLoaded(f"import {full}", full)
        loaded = full if names or level else full.partition(".")[0]
        self.guard(DictItemSource(ConstSource(sys.modules, "sys.modules"), loaded), "is", sys.modules[loaded])
        if not names and not level:
            module = sys.modules[full.partition(".")[0]]
        for wanted in names or ():
            if not hasattr(module, wanted) and f"{full}.{wanted}" not in sys.modules:
                raise ModuleNotLoaded(f"from {full} import {wanted}", f"{full}.{wanted}")
        return self.values.from_result(module, "module")

    def leave_of_native_context(self, manager: VariableTracker) -> VariableTracker:
        """The ``__exit__`` method that ``with`` calls, for a manager that is not an instance of a Python class."""
        if manager.is_constant() and isinstance(manager.constant(), torch.device):
            return DeviceScopeVariable(manager.constant(), self.root_visit())
        if isinstance(manager, (DisabledOverridesVariable, HookHandleVariable)):
            return manager.getattr(self, "__exit__")
        unsupported("unsupported_context_manager", f"with {manager.describe()}")

    def enter_of_native_context(self, manager: VariableTracker, leave: VariableTracker | None) -> VariableTracker:
        """The ``__enter__`` method that ``with`` calls, for such a manager; `leave` is its ``__exit__`` method."""
        if isinstance(leave, DeviceScopeVariable):
            return DeviceEnterVariable(leave)
        if isinstance(manager, (DisabledOverridesVariable, HookHandleVariable)):
            return manager.getattr(self, "__enter__")
        unsupported("unsupported_context_manager", f"with {manager.describe()}")

    def root_visit(self) -> int:
        """The visit (count of evaluated instructions) of the instruction that the root is at."""
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame.visits - 1

    # -- messages
    def user_stack(self) -> list[traceback.FrameSummary]:
        """The stack of the user's program, outermost call first."""
        frames: list[traceback.FrameSummary] = []
        frame: Translator | None = self
        while frame is not None:
            line = frame.current.positions[0] or frame.code.co_firstlineno
            if frame.code.co_filename.startswith(_OWN_FOLDER) and (frames or frame.parent is not None):
                frame = frame.parent
                continue  # a polyfill, which is not the user's code
            frames.append(traceback.FrameSummary(frame.code.co_filename, line, frame.code.co_name, lookup_line=False))
            frame = frame.parent
        return frames[::-1]

    def stack_text(self) -> str:
        """The user's stack as text in the form of tracebacks, for graph nodes."""
        lines = []
        frame: Translator | None = self
        while frame is not None:
            code, line = frame.code, frame.current.positions[0]
            lines.append(self.output.line_text(code.co_filename, line or code.co_firstlineno, code.co_name))
            frame = frame.parent
        return "".join(reversed(lines))


def root_translator(
    code: types.CodeType,
    output: OutputGraph,
    globals: dict[str, Any],
    builtins: dict[str, Any],
    closure: tuple[types.CellType, ...] | None,
    args: tuple[Any, ...],
) -> Translator:
    """The translator of a captured frame. Its arguments and closure are inputs of the trace.

    Args:
        args: the values of the frame's first locals, one per parameter; ``*args`` as a tuple, ``**kwargs`` as a dict.
    """
    locals: dict[str, VariableTracker] = {
        name: LazyVariable(value, LocalSource(name, index))
        for index, (name, value) in enumerate(zip(code.co_varnames, args))
    }
    tx = Translator(code, output, (globals, GlobalsSource()), builtins, locals)
    tx.free_cells = [
        tx.values.wrap_cell(cell, ClosureCellSource(name, i), name)
        for i, (name, cell) in enumerate(zip(code.co_freevars, closure or ()))
    ]
    return tx


__all__ = ["NULL", "BreakPoint", "BreakReached", "Returned", "StackMark", "Translator", "Yielded",
           "root_translator"]
