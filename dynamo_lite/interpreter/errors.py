"""Exceptions of the traced program: raised, caught and chained as CPython does, on trackers.

Invariant: an exception that the program would see is always an :class:`ObservedException`; anything else that comes
out of the evaluator is either ``exc.Unsupported`` or a fault of ours.
"""
from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any, NoReturn

from ..rules.table import handles
from ..variables.base import ObservedException, VariableTracker, unsupported
from ..variables.class_calls import allocates, constructs
from ..variables.constant import ConstantVariable
from ..variables.containers.sequences import ListVariable, TupleVariable
from ..variables.objects.classes import ClassVariable, derives, native_base
from ..variables.objects.exception_state import ExceptionState, TracebackVariable
from ..variables.objects.objects import ObjectVariable
from .part import Part

if TYPE_CHECKING:
    from ..variables.protocols import Tracer

_EXCEPTION_FIELDS = {"__cause__": None, "__context__": None, "__traceback__": None, "__suppress_context__": False}


class Errors(Part):
    """Raising exceptions, and their state; a part of the tracer."""

    def new_exception(
        self, cls: type, args: list[VariableTracker], initialize: bool = True, by_interpreter: bool = False
    ) -> ObjectVariable:
        """cls.__new__(cls, *args) for an exception class without a constructor of its own.

        Args:
            initialize: whether ``__init__`` is the builtin base's, too.
            by_interpreter: whether it is the interpreter that raises it.
        """
        value = ObjectVariable(cls)
        value.exception = ExceptionState(by_interpreter=by_interpreter)
        value.new_arguments = list(args)
        if issubclass(cls, BaseExceptionGroup):
            unsupported("exception_handling", f"{cls.__qualname__}()")
        if initialize:
            self.init_exception(value, args)
        else:
            kept = self._kept_by_os_error(value) if issubclass(cls, OSError) else list(args)
            self.tx.output.effects.store_attr(value, "args", TupleVariable(kept))
        return value

    def init_exception(self, value: ObjectVariable, args: list[VariableTracker]) -> None:
        """Evaluates the builtin base's ``__init__`` for an exception."""
        assert value.exception is not None
        value.exception.arguments = list(args)
        kept: list[VariableTracker] = list(args)
        if issubclass(value.cls, OSError) and (args or value.new_arguments):
            kept = self._kept_by_os_error(value)
        self.tx.output.effects.store_attr(value, "args", TupleVariable(kept))
        if issubclass(value.cls, StopIteration):
            self.tx.output.effects.store_attr(value, "value", args[0] if args else ConstantVariable(None))

    def _kept_by_os_error(self, value: ObjectVariable) -> list[VariableTracker]:
        """The arguments that stay in `args`, without errno, strerror and filename; its class goes by its number."""
        real = self._real_exception(value)
        if value.cls is OSError:
            value.cls = type(real)
        return [self.tx.values.from_result(a, "argument") for a in real.args]

    def _real_exception(self, value: ObjectVariable) -> BaseException:
        """A real exception of the builtin base with the same arguments, from which its attributes are read."""
        state = value.exception
        base: Any = native_base(value.cls)
        if state is None or state.by_interpreter:
            unsupported("exception_handling", f"what {value.describe()} holds, raised by the interpreter")
        new = [self.tx.values.as_plain(a) for a in value.new_arguments]
        if issubclass(base, OSError):
            # One of the two methods takes the arguments: __init__ if the class defines that alone
            # (Objects/exceptions.c, oserror_use_init).
            lookup = self.tx.classes.lookup
            if lookup(value.cls, "__init__") is not vars(OSError)["__init__"]:
                if lookup(value.cls, "__new__") is vars(OSError)["__new__"]:
                    new = [self.tx.values.as_plain(a) for a in state.arguments or ()]
            return self.tx.run_python(base.__new__, base, *new)
        made = self.tx.run_python(base.__new__, base, *new)
        if state.arguments is not None:
            self.tx.run_python(base.__init__, made, *(self.tx.values.as_plain(a) for a in state.arguments))
        return made

    def raise_value(self, cls: type, args: list[VariableTracker]) -> NoReturn:
        """Raises an exception with arguments in the traced program."""
        raise ObservedException(self.new_exception(cls, args, by_interpreter=cls is not StopIteration))

    def raise_stop_iteration(self, value: VariableTracker) -> NoReturn:
        """Raises StopIteration, with the return value of a generator."""
        self.raise_value(StopIteration, [] if value.is_none() else [value])

    def raise_python(self, error: BaseException) -> NoReturn:
        """Raises in the traced program an exception that a Python function has raised during tracing."""
        if not all(isinstance(a, (str, int, float, bytes, type(None), bool)) for a in error.args):
            unsupported("python_exception_in_trace", f"{type(error).__name__}: {error}")
        args: list[VariableTracker] = [ConstantVariable(a) for a in error.args]
        raise ObservedException(self.new_exception(type(error), args, by_interpreter=True)) from error

    def exception_to_raise(self, args: list[VariableTracker]) -> ObservedException:
        """The exception of ``raise x`` or ``generator.throw(x)``."""
        value = args[0]
        if isinstance(value, ClassVariable):
            if not issubclass(value.value, BaseException):
                self.tx.raise_error(TypeError, "exceptions must derive from BaseException")
            given = list(args[1:2])
            if given and derives(self.tx, given[0].python_type(), value.value):
                return ObservedException(given[0])
            if given and given[0].is_none():
                given = []
            value = value.call(self.tx, given, {})
        if not isinstance(value, ObjectVariable) or not issubclass(value.cls, BaseException):
            self.tx.raise_error(TypeError, "exceptions must derive from BaseException")
        if value.exception is not None:
            value.exception.raised = True
        return ObservedException(value)

    def current_exception(self) -> VariableTracker | None:
        """The exception that is being handled here or in a caller.

        Raises:
            Unsupported: the frame was called from a handler outside of the trace, and nothing is handled inside.
        """
        handled = self._handled_in_trace()
        if handled is None:
            self._require_nothing_handled()
        return handled

    def _handled_in_trace(self) -> VariableTracker | None:
        """The topmost exception that the trace handles (Python/errors.c, _PyErr_GetTopmostException)."""
        frame: Any = self.tx
        while frame is not None:
            for handled in reversed(frame.exceptions):
                if handled is not None:
                    return handled
            frame = frame.parent
        return None

    def _require_nothing_handled(self) -> None:
        """Guards that no caller of the frame is handling an exception, which this trace would see."""
        if self.tx.output.called_from_handler:
            unsupported("exception_handling", "the exception that a caller of the compiled function handles")
        self.tx.guard_result(sys.exception, (), None)

    def chain(self, error: ObservedException) -> None:
        """Sets the context of an exception that has just been raised (Python/errors.c, _PyErr_SetObject)."""
        value = error.value
        if error.chained:
            return
        error.chained = True
        if value.source is not None or not isinstance(value, ObjectVariable) or value.exception is None:
            return
        handled = self._handled_in_trace()
        if handled is value:
            return
        value.exception.outer_context = handled is None
        if handled is None:
            return
        effects = self.tx.output.effects
        link, seen = handled, {id(handled)}
        while (context := effects.attributes_of(link).get("__context__")) is not None and id(context) not in seen:
            if context is value:  # an exception must not be in its own chain
                effects.store_attr(link, "__context__", ConstantVariable(None))
                break
            seen.add(id(context))
            link = context
        effects.store_attr(value, "__context__", handled)

    def exception_attribute(self, owner: ObjectVariable, name: str) -> VariableTracker:
        """Reads an attribute that exceptions store in C."""
        written = self.tx.output.effects.attributes_of(owner)
        if name == "__traceback__" and owner.exception is not None and owner.exception.raised:
            unsupported("exception_handling", "__traceback__ of an exception raised while compiling")
        if name == "__context__" and owner.exception is not None and owner.exception.outer_context:
            self._require_nothing_handled()  # an exception that a caller was handling at the raise would be its context
        if name in written:
            return self.tx.output.effects.load_attr(owner, name)
        if owner.value is None and name in _EXCEPTION_FIELDS:
            if name == "__traceback__":
                unsupported("exception_handling", "__traceback__ of an exception made while compiling")
            return ConstantVariable(_EXCEPTION_FIELDS[name])
        if owner.value is None and owner.exception is not None:
            if not any(name in base.__dict__ for base in BaseException.__mro__):
                return self.tx.values.from_result(self.tx.run_python(getattr, self._real_exception(owner), name), name)
        unsupported("exception_handling", f"{owner.describe()}.{name}")

    def exception_text(self, value: ObjectVariable, conversion: str) -> VariableTracker:
        """str() or repr() of an exception whose class does not define them."""
        base: Any = native_base(value.cls)
        args = self.tx.getattr(value, "args")
        if conversion == "r":
            if base.__repr__ is not BaseException.__repr__:
                unsupported("exception_handling", f"text of {value.describe()}")
            texts = [self.tx.texts.to_text(a, "r").constant() for a in args.iterate(self.tx)]
            return ConstantVariable(f"{value.cls.__name__}({', '.join(texts)})")
        if base.__str__ in (BaseException.__str__, KeyError.__str__):
            items = list(args.iterate(self.tx))
            if len(items) == 1:
                return self.tx.texts.to_text(items[0], "s" if base.__str__ is BaseException.__str__ else "r")
            return self.tx.texts.to_text(args, "s") if items else ConstantVariable("")
        state = value.exception
        if state is not None and state.by_interpreter:  # of ImportError, UnicodeError and OSError
            return ConstantVariable(self.tx.run_python(str, self.tx.run_python(base, *self.tx.values.as_plain(args))))
        return ConstantVariable(self.tx.run_python(str, self._real_exception(value)))


# ---------------------------------------------------------------- exceptions that the program makes
@constructs(BaseException)
def _exception(
    tx: Tracer, cls: ClassVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    new, init = cls.value.__new__, cls.value.__init__  # type: ignore[misc]
    if isinstance(new, types.FunctionType) or isinstance(init, types.FunctionType):
        return None
    if kwargs:
        unsupported("unsupported_builtin", f"{cls.value.__qualname__} with keyword arguments")
    return tx.errors.new_exception(cls.value, args)


@allocates(BaseException, derived=True)
def _new_exception(
    tx: Tracer, cls: type, native: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    return tx.errors.new_exception(cls, args, initialize=False)


@handles(BaseException.with_traceback)
def _with_traceback(tx: Tracer, owner: VariableTracker, traceback: VariableTracker) -> VariableTracker:
    state = owner.exception if isinstance(owner, ObjectVariable) else None
    raised = state is None or state.raised
    fresh = owner.value is None and not raised and "__traceback__" not in tx.output.effects.attributes_of(owner)
    if isinstance(traceback, TracebackVariable) and traceback.exception is not owner:
        unsupported("exception_handling", "the traceback of another exception that was raised while tracing")
    # The traceback of an exception that was raised in the trace is the trace's own, and one that is new has none.
    if not isinstance(traceback, TracebackVariable) and not (fresh and traceback.is_none()):
        owner.setattr(tx, "__traceback__", traceback)
    return owner


@handles(BaseException.add_note)
def _add_note(tx: Tracer, owner: VariableTracker, note: VariableTracker) -> VariableTracker:
    if not issubclass(note.python_type(), str):
        unsupported("exception_handling", f"{owner.describe()}.add_note()")
    if "__notes__" not in tx.output.effects.attributes_of(owner):
        if owner.value is not None:
            unsupported("exception_handling", f"{owner.describe()}.add_note()")
        tx.output.effects.store_attr(owner, "__notes__", ListVariable([]))
    tx.call_method(tx.output.effects.load_attr(owner, "__notes__"), "append", [note])
    return ConstantVariable(None)
