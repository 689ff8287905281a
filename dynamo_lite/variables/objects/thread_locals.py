"""``threading.local``: objects whose attributes are separate for each thread.

Invariant: the trace reads the dict of the compiling thread; guards and generated code read that of the calling thread.
In a thread without a dict, reading it runs the class's ``__init__``, so a class that defines ``__init__`` is left to
Python.
"""
from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ...guards.source import ComputedSource, Source
from ..base import MISSING, VariableTracker, unsupported, wraps_if
from ..constant import ConstantVariable
from ..containers.mappings import DictVariable
from ..containers.spaces import read_own, space_at
from .objects import ObjectVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

_ACCESS = ("__getattribute__", "__setattr__", "__delattr__")


def _of_thread(value: threading.local) -> dict[str, Any]:
    """The dict of the attributes that the running thread has set."""
    return value.__dict__


def _is_plain(cls: type) -> bool:
    """Whether neither reading nor writing an attribute runs Python code."""
    return cls.__init__ is object.__init__ and all(  # type: ignore[misc]
        getattr(cls, name) is getattr(threading.local, name) for name in _ACCESS)


class ThreadLocalVariable(ObjectVariable):
    """A ``threading.local`` object from outside."""

    def _own(self) -> tuple[dict[str, Any], Source]:
        assert self.source is not None
        words = f"the attributes that the thread has set on {self.source.name}"
        return _of_thread(self.value), ComputedSource(self.source, _of_thread, words)

    def own_attribute(self, tx: Tracer, name: str) -> VariableTracker | None:
        return read_own(tx, self, *self._own(), name)

    def write_own(self, tx: Tracer, name: str, value: Any) -> None:
        space = self._dict_variable(tx)
        if value is MISSING:
            space.delitem(tx, ConstantVariable(name))
        else:
            space.store(tx, ConstantVariable(name), value)

    def _dict_variable(self, tx: Tracer) -> DictVariable:
        return space_at(tx, *self._own())

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        tx.classes.lookup(self.cls, "__getattribute__")
        if name == "__dict__":
            return self._dict_variable(tx)
        value = self.found_or_fallback(tx, name)
        if value is None:
            tx.raise_error(AttributeError, f"{_name(self.cls)!r} object has no attribute {name!r}")
        return value

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        self._check_write(tx, "__setattr__", name)
        self.write_own(tx, name, value)

    def delattr(self, tx: Tracer, name: str) -> None:
        self._check_write(tx, "__delattr__", name)
        if self.own_attribute(tx, name) is None:
            unsupported("side_effect_unsupported", f"deleting {name!r} of {self.describe()}, which has none")
        self.write_own(tx, name, MISSING)

    def _check_write(self, tx: Tracer, method: str, name: str) -> None:
        tx.classes.lookup(self.cls, method)
        if name == "__dict__" or tx.classes.lookup(self.cls, name) is not None:
            unsupported("side_effect_unsupported", f"{name!r} of {self.describe()}, which its class defines, too")


def _name(cls: type) -> str:
    return "_thread._local" if cls is threading.local else cls.__name__


@wraps_if(lambda value: issubclass(type(value), threading.local) and _is_plain(type(value)), rank=900)
def _wrap_thread_local(tx: Tracer, value: threading.local, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    tx.classes.lookup(type(value), "__init__")
    return ThreadLocalVariable(type(value), value, source)
