"""The tracer's interface to values: calls, attributes, truth values, raising. Its parts own the other topics.

Invariant: a method returns the result that CPython would give for the real values, raises the exception that CPython
would raise, or breaks the graph.
"""
from __future__ import annotations

import functools
import operator
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ..exc import Unsupported
from ..guards.source import ConstSource, Source, found_in_bases
from ..output.output_graph import OutputGraph
from ..rules.table import decide
from ..runtime import signal_handlers
from ..variables.base import ObservedException, VariableTracker, realized, unsupported
from ..variables.bound import SPECIAL_METHODS, BoundMethodVariable, missing_method
from ..variables.constant import ConstantVariable
from ..variables.functions.functions import (
    METHODS_STAY_BOUND,
    CallableVariable,
    MethodVariable,
)
from ..variables.numbers.rng import draw_by_numpy
from ..variables.objects.objects import ObjectVariable
from ..variables.tensors.tensor import TensorVariable
from ..variables.torch_api.torch_proxies import any_overrides, call_operator, call_override
from .class_checks import ClassChecks
from .classes import Classes
from .construction import Construction
from .copying import deep_copied, reduced, reduced_ex
from .errors import Errors
from .iteration import Iteration
from .operators import BUILTIN_CONTENT, Operators
from .part import Owned
from .texts import Texts
from .values import Values

_ACCESSORS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
# Types of receivers whose methods written in C have no side effects.
_IMMUTABLE = (torch.Size, range, slice, frozenset, tuple, torch.dtype, torch.device, torch.finfo, torch.iinfo,
    re.Pattern, re.Match)


if TYPE_CHECKING:
    from ..variables.protocols import Tracer as _Base
else:
    _Base = object  # a protocol's metaclass would cost each frame


class Evaluator(_Base):
    """The operations on values that the evaluator of a frame offers."""

    output: OutputGraph
    overrides_torch = any_overrides  # type: ignore[assignment]
    call_override = call_override
    call_override_operator = call_operator
    reduced = reduced
    reduced_ex = reduced_ex
    deep_copied = deep_copied
    special_methods = SPECIAL_METHODS

    values = Owned(Values)
    errors = Owned(Errors)
    iteration = Owned(Iteration)
    construction = Owned(Construction)
    classes = Owned(Classes)
    checks = Owned(ClassChecks)
    operators = Owned(Operators)
    texts = Owned(Texts)

    def release_parts(self) -> None:
        """Releases the parts; a part that is needed again is made again."""
        for name in _PARTS:
            self.__dict__.pop(name, None)

    def guard(self, source: Source, kind: str, *expected: Any) -> None:
        """Adds a guard on the value at a source, unless the source is frozen."""
        if not source.is_frozen:
            self.output.guards.add(source, kind, *expected)

    def guard_result(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """Adds a guard that a call of a real function gives this constant again."""
        self.output.guards.add(ConstSource(function, getattr(function, "__qualname__", "function")), "callable_eq",
                               function, args, result)

    def raise_error(self, cls: type, message: str) -> NoReturn:
        """Raises an exception with a message in the traced program."""
        raise ObservedException(self.errors.new_exception(cls, [ConstantVariable(message)], by_interpreter=True))

    def run_python(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a pure Python function on real values; the traced program sees its exceptions."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            signal_handlers.pass_on(error)
            self.errors.raise_python(error)

    def call(
        self, function: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """function(*args, **kwargs)."""
        function = realized(self, function)
        return realized(
            self,
            function.call(self, [realized(self, a) for a in args], {k: realized(self, v) for k, v in kwargs.items()}),
        )

    def call_method(
        self, owner: VariableTracker, name: str, args: list[VariableTracker],
        kwargs: dict[str, VariableTracker] | None = None
    ) -> VariableTracker:
        """owner.name(*args, **kwargs)."""
        args = [realized(self, a) for a in args]
        named = {k: realized(self, v) for k, v in (kwargs or {}).items()}
        return realized(self, realized(self, owner).call_method(self, name, args, named))

    def call_special(self, owner: VariableTracker, name: str, *args: VariableTracker) -> VariableTracker:
        """type(owner).name(owner, *args), TypeError if the type has no such method."""
        method = self.classes.special(owner.python_type(), name)
        if method is None:
            self.raise_error(TypeError, missing_method(name, owner.python_type()))
        if isinstance(method, types.FunctionType):
            return self.classes.call_attribute(owner, owner.python_type(), name, method, list(args), {})
        unsupported("unsupported_method", f"{name} of {owner.describe()}")

    def checked_call(self, handler: Callable[..., VariableTracker], /, *args: Any, **kwargs: Any) -> VariableTracker:
        """Calls a handler with the program's arguments; breaks the graph if they don't fit the handler's signature."""
        try:
            return handler(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                # Raised by the call itself. Eager's message differs, so eager execution has to raise the error.
                raise Unsupported("unsupported_builtin", f"{getattr(handler, '__name__', handler)}: {error}") from error
            raise

    def bind_function(self, function: VariableTracker, owner: VariableTracker) -> VariableTracker:
        """function.__get__(owner)."""
        if isinstance(function, MethodVariable) and METHODS_STAY_BOUND:
            return function
        if not isinstance(function, CallableVariable) or isinstance(function, MethodVariable):
            unsupported("unsupported_method", f"{function.describe()}.__get__()")
        return function if owner.is_none() else MethodVariable(function, owner)

    def builtin_method(self, owner: VariableTracker, name: str) -> VariableTracker:
        """The bound method `name` of a builtin object."""
        return BoundMethodVariable(owner, name)

    def call_opaque(
        self, owner: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls an object whose class is written in C."""
        real = owner.value
        if isinstance(real, _ACCESSORS) and owner.source is not None:
            # Immutable, so that the result of __reduce__ describes it completely.
            self.guard(owner.source, "is", real)
            reduced: Any = real.__reduce__()
            cls, given = reduced
            named: dict[str, Any] = {}
            if isinstance(cls, functools.partial):
                named, cls = cls.keywords, type(real)
            parts = [self.values.from_result(g, "part") for g in given]
            keywords = {k: self.values.from_result(v, "part") for k, v in named.items()}
            return self.call(self.call(self.values.library_function(decide(cls).calls), parts, keywords), args, kwargs)
        number = draw_by_numpy(self, owner, args, kwargs)
        if number is not None:
            return number
        unsupported("call_skipped", f"calling {owner.describe()}, an object written in C")

    def call_unbound(
        self, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls a method read from its class, such as ``list.append(x, y)`` or ``torch.Tensor.add(x, y)``."""
        owner, rest = args[0], args[1:]
        name = method.__name__
        content = owner.content
        held = content or owner
        if isinstance(held, (*BUILTIN_CONTENT, ConstantVariable)) and name != "__new__":
            cls = held.python_type()
            if cls is not method.__objclass__ and found_in_bases(cls, name, method) is not method:
                what = f"{method.__objclass__.__name__}.{name}() of {owner.describe()}, of a class with its own"
                unsupported("unsupported_method", what)
        if isinstance(owner, ObjectVariable):
            return self.construction.call_native_method(owner, name, method, rest, kwargs)
        if content is None and not issubclass(owner.python_type(), method.__objclass__):
            self.raise_error(TypeError,
                f"descriptor {name!r} for {method.__objclass__.__name__!r} objects doesn't apply")
        if isinstance(owner, BUILTIN_CONTENT) and name.startswith("__"):
            return BoundMethodVariable(owner, name).call(self, rest, kwargs)
        return self.call_method(owner, name, rest, kwargs)

    def call_method_of_value(
        self, owner: Any, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Calls a bound method written in C of a constant object."""
        name = getattr(method, "__name__", "")
        if isinstance(owner, (str, bytes, int, float, complex)):
            return self.call_method(self.values.from_result(owner, "receiver"), name, args, kwargs)
        if isinstance(owner, torch.device) and name in ("__enter__", "__exit__"):
            unsupported("unsupported_context_manager", f"torch.device.{name}() by itself")
        if isinstance(owner, _IMMUTABLE):
            plain, named = (
                [self.values.as_plain(a) for a in args],
                {k: self.values.as_plain(v) for k, v in kwargs.items()},
            )
            return self.values.from_result(self.run_python(method, *plain, **named), f"{type(owner).__name__}.{name}()")
        unsupported("call_skipped", f"{name}() of a {type(owner).__qualname__}")

    def getattr(self, owner: VariableTracker, name: str) -> VariableTracker:
        """owner.name."""
        return realized(self, realized(self, owner).getattr(self, name))

    def attribute_or_none(self, owner: VariableTracker, name: str) -> VariableTracker | None:
        """owner.name, read once; None where that raises AttributeError (Objects/object.c, _PyObject_LookupAttr)."""
        try:
            return self.getattr(owner, name)
        except ObservedException as error:
            if issubclass(error.value.python_type(), AttributeError):
                return None
            raise

    def has_attribute(self, owner: VariableTracker, name: str) -> bool:
        """hasattr(owner, name)."""
        try:
            return self.attribute_or_none(owner, name) is not None
        except Unsupported as error:
            # The attribute exists but its value can't be traced: the answer is known all the same.
            if error.kind == "unsupported_attribute" and isinstance(owner, TensorVariable):
                return True
            raise

    def truth(self, value: VariableTracker) -> bool:
        """bool(value)."""
        return realized(self, value).truth(self)


_PARTS = tuple(name for name, value in vars(Evaluator).items() if isinstance(value, Owned))
