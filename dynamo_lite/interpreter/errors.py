"""Exceptions of the traced program: raised, caught and chained as CPython does, on trackers.

Invariant: an exception that the program would see is always an :class:`ObservedException`; anything else that comes
out of the evaluator is either ``exc.Unsupported`` or a fault of ours.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..output_graph import OutputGraph
from ..variables.base import ObservedException, VariableTracker, unsupported
from ..variables.classes import ClassVariable
from ..variables.constant import ConstantVariable
from ..variables.functions import GeneratorVariable
from ..variables.objects import ObjectVariable
from ..variables.sequences import TupleVariable

_EXCEPTION_FIELDS = {"__cause__": None, "__context__": None, "__traceback__": None, "__suppress_context__": False}


class Errors:
    """Raising exceptions; a part of the translator."""

    output: OutputGraph
    observed = ObservedException

    def new_exception(self, cls: type, args: list[VariableTracker]) -> ObjectVariable:
        """cls(*args) for an exception class without a constructor of its own."""
        value = ObjectVariable(cls)
        value.new_arguments = list(args)
        self.output.effects.store_attr(value, "args", TupleVariable(list(args)))
        if issubclass(cls, StopIteration):
            self.output.effects.store_attr(value, "value", args[0] if args else ConstantVariable(None))
        return value

    def raise_error(self, cls: type, message: str) -> NoReturn:
        """Raises an exception of the program with a text."""
        raise ObservedException(self.new_exception(cls, [ConstantVariable(message)]))

    def raise_value(self, cls: type, args: list[VariableTracker]) -> NoReturn:
        """Raises an exception of the program with arguments."""
        raise ObservedException(self.new_exception(cls, args))

    def raise_stop_iteration(self, value: VariableTracker) -> NoReturn:
        """Raises StopIteration, with the return value of a generator."""
        nothing = value.is_constant() and value.constant() is None
        self.raise_value(StopIteration, [] if nothing else [value])

    def raise_python(self, error: BaseException) -> NoReturn:
        """Raises in the program what a Python function that was run while tracing has raised."""
        if not all(isinstance(a, (str, int, float, bytes, type(None), bool)) for a in error.args):
            unsupported("python_exception_in_trace", f"{type(error).__name__}: {error}")
        raise ObservedException(self.new_exception(type(error), [ConstantVariable(a) for a in error.args])) from error

    def run_python(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a pure Python function on real values; what it raises, the program sees."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.raise_python(error)

    def exception_to_raise(self, args: list[VariableTracker]) -> ObservedException:
        """The exception of ``raise x`` or ``generator.throw(x)``."""
        value = args[0]
        if isinstance(value, ClassVariable):
            if not issubclass(value.value, BaseException):
                self.raise_error(TypeError, "exceptions must derive from BaseException")
            given = list(args[1:2])
            if given and issubclass(given[0].python_type(), value.value):
                return ObservedException(given[0])  # type: ignore[arg-type]
            if given and given[0].is_constant() and given[0].constant() is None:
                given = []
            value = value.call(self, given, {})
        if not isinstance(value, ObjectVariable) or not issubclass(value.cls, BaseException):
            self.raise_error(TypeError, "exceptions must derive from BaseException")
        return ObservedException(value)

    def current_exception(self) -> VariableTracker | None:
        """The exception that is being handled here or in a caller."""
        frame: Any = self
        while frame is not None:
            for handled in reversed(frame.exceptions):
                if handled is not None:
                    return handled
            frame = frame.parent
        return None

    def exception_attribute(self, owner: ObjectVariable, name: str) -> VariableTracker:
        """An attribute that exceptions store in C."""
        written = self.output.effects.attributes_of(owner)
        if name in written:
            return self.output.effects.load_attr(owner, name)
        if owner.value is None and name in _EXCEPTION_FIELDS:
            if name == "__traceback__":
                unsupported("exception_handling", "__traceback__ of an exception raised while compiling")
            return ConstantVariable(_EXCEPTION_FIELDS[name])
        unsupported("exception_handling", f"{owner.describe()}.{name}")

    def close_generator(self, generator: GeneratorVariable) -> VariableTracker:
        """generator.close() (Objects/genobject.c, gen_close)."""
        if not generator.started or generator.finished:
            generator.finished = True
            return ConstantVariable(None)
        try:
            value = generator.resume(self, None, ObservedException(self.new_exception(GeneratorExit, [])))
        except ObservedException as error:
            if issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
                return ConstantVariable(None)
            raise
        if value is not None:
            self.raise_error(RuntimeError, "generator ignored GeneratorExit")
        return ConstantVariable(None)
