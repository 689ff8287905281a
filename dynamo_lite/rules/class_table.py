"""Tables in which functions are registered by class, next to their implementation: functions that read an attribute,
construct an object, or wrap a value.

Invariant: a table has one function for a class. A second one is refused when its module is imported, so that the order
of imports has no influence.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .table import RuleError

Function = TypeVar("Function", bound=Callable[..., Any])
F = TypeVar("F", bound=Callable[..., Any])


class ClassTable(Generic[Function]):
    """A table of functions by class.

    Args:
        what: what the functions do to a class's objects, for the message of a duplicate, such as "constructed".
    """

    def __init__(self, what: str) -> None:
        self.rows: dict[Any, Function] = {}
        self._what = what

    def register(self, *classes: Any) -> Callable[[F], F]:
        """Decorator: registers a function for these classes.

        Raises:
            RuleError: one of them has another function already.
        """

        def add(function: F) -> F:
            for cls in classes:
                known: Any = self.rows.setdefault(cls, function)  # type: ignore[arg-type]
                if known is not function:
                    raise RuleError(f"{cls.__qualname__} is {self._what} twice: by {_name(known)} and by "
                                    f"{_name(function)}")
            return function

        return add

    def exact(self, cls: type) -> Function | None:
        """The function registered for exactly this class; None if there is none."""
        return self.rows.get(cls)

    def of(self, cls: type) -> Function | None:
        """The function of the first class in the method resolution order that has one; None if there is none."""
        for base in cls.__mro__:
            if base in self.rows:
                return self.rows[base]
        return None

    def unless(self, cls: type, method: str) -> Function | None:
        """Like :meth:`of`, but None if a class earlier in the method resolution order overrides `method`."""
        for base in cls.__mro__:
            if base in self.rows:
                return self.rows[base]
            if method in base.__dict__:
                return None
        return None


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"
