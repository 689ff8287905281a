"""The guard, the table of its kinds, and the set of guards that a trace collects.

Each kind names an instruction of the guard program (``csrc/guards``) and has a cost rank (checks that are cheap and
likely to fail run first) and a wording for the expected values. Invariant: a triple (source, kind, expectation) occurs
once in a set.
"""
from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import numbers
import reprlib
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .source import ConstSource, PathKey, Source


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A kind of check: its rank (lower ranks run earlier) and a function that words the expected values."""

    rank: int
    words: Callable[..., str]


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _tensor_words(*spec: Any) -> str:
    cls, code, bits, device, index, shape, strides, requires_grad, _flags, dtype = spec
    return (f"is a {_type_name(cls)} of {dtype}, shape {dims_in_words(shape)}, strides {dims_in_words(strides)} on "
            f"{_device_words(device, index)}, requires_grad={requires_grad}")


def dims_in_words(dims: Sequence[Any]) -> str:
    """Text for the sizes or strides that a guard of the kind "tensor" expects."""
    words = ["any" if n is None else f"dense over {n[0]}" if type(n) is tuple else str(n) for n in dims]
    return f"[{', '.join(words)}]"


def _device_words(device_type: Any, index: Any) -> str:
    return {1: "cpu", 2: "cuda"}.get(device_type, str(device_type)) + (f":{index}" if device_type != 1 else "")


class _Words(reprlib.Repr):
    """Like ``repr()``, but without running code that the user's program defines: neither a ``__repr__``, nor methods
    that a ``__repr__`` of the library calls, on the object or on what it holds."""

    def repr1(self, x: Any, level: int) -> str:
        # The base class goes by the name of the type alone.
        return super().repr1(x, level) if type(x).__module__ in _LIBRARY else self.repr_instance(x, level)

    def repr_instance(self, x: Any, level: int) -> str:
        cls, says = type(x), type(x).__repr__
        if isinstance(x, type):
            return super().repr_instance(x, level) if says is type.__repr__ else f"<class {_type_name(x)!r}>"
        if says is object.__repr__ or cls in _FLAT or _is_of_library(cls) and not issubclass(cls, _HOLDERS):
            return super().repr_instance(x, level)
        if cls is types.MethodType:
            return f"<bound method {getattr(x.__func__, '__qualname__', '?')} of a {type(x.__self__).__qualname__}>"
        name = x.__dict__.get("_name_") if isinstance(x, enum.Enum) else None
        return f"{cls.__qualname__}.{name}" if name is not None else f"a {cls.__qualname__}"


_LIBRARY = ("builtins", "collections", "array")
_FLAT = (range, bytes, bytearray, torch.Size)
# Their texts contain those of other objects.
_HOLDERS = (
    Iterable, BaseException, slice, functools.partial, functools.partialmethod, types.MethodType, types.SimpleNamespace)


def _is_of_library(cls: type) -> bool:
    """Whether a class and its ``__repr__`` are Python's, or written in C for torch or NumPy."""
    if isinstance(cls.__repr__, types.FunctionType):
        return cls.__module__.partition(".")[0] in sys.stdlib_module_names and issubclass(cls, numbers.Number)
    return cls.__module__.partition(".")[0] in (*sys.stdlib_module_names, "torch", "numpy")


# A global container may hold very many objects, so the text is bounded while it is made, not shortened afterwards.
_bounded = _Words()
_bounded.maxlevel = 2
for _kind in ("list", "tuple", "dict", "set", "frozenset", "deque"):
    setattr(_bounded, f"max{_kind}", 30)
_bounded.maxstring = _bounded.maxlong = _bounded.maxother = 80


def _short(value: Any) -> str:
    try:
        text = _bounded.repr(value)
    except Exception as error:  # raised by a __repr__ that the user's program defines
        text = f"a {type(value).__qualname__} ({type(error).__name__} in its repr)"
    return text if len(text) <= 80 else text[:77] + "..."


BECAUSE = ", because of "


def because(why: str) -> str:
    """The end of a guard's text, which names the reason for the guard."""
    return BECAUSE + why if why else ""


KINDS: dict[str, Kind] = {
    "type_is": Kind(0, lambda cls: f"is of type {_type_name(cls)}"),
    "is": Kind(0, lambda value: f"is {_short(value)}"),
    "is_not": Kind(0, lambda value: f"is not {_short(value)}"),
    "const": Kind(1, lambda value: f"== {_short(value)}"),
    "int_range": Kind(1, lambda low, high, why: f"lies between {low} and {high}{because(why)}"),
    "len": Kind(1, lambda n: f"has length {n}"),
    "cell_empty": Kind(0, lambda: "is not bound"),
    "code_is": Kind(1, lambda code: f"is the function {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"),
    "tensor": Kind(2, _tensor_words),
    "tensor_data": Kind(3, lambda data: f"has the values that it had when compiled ({len(data)} bytes)"),
    "dict_has": Kind(2, lambda key: f"has the key {key!r}"),
    "dict_lacks": Kind(2, lambda key: f"has no {key!r} of its own"),
    "dict_keys": Kind(3, lambda keys: f"has the keys {_short(list(keys))}"),
    "set_items": Kind(3, lambda items: f"is the set {_short(set(items))}"),
    "no_hooks": Kind(3, lambda names: "has no hooks"),
    "set_order": Kind(3, lambda items: f"gives its elements in the order {_short(list(items))}"),
    "set_table": Kind(3, lambda held: f"is the set {_short(held)} with the same history of additions and removals"),
    "class_version": Kind(3, lambda pairs: f"defines {', '.join(name for name, _ in pairs)} as when compiled"),
    "tensor_same": Kind(4, lambda other: f"is the same tensor as {other}"),
    "not_same": Kind(4, lambda other: f"is another object than {other}"),
    "apart": Kind(4, lambda n, *others: f"and {', '.join(o.name for o in others)} are no dict under two names"),
    "all_distinct": Kind(4, lambda *others: f"and {', '.join(o.name for o in others)} are all different objects"),
    "disjoint": Kind(4, lambda n, *others: f"and {', '.join(o.name for o in others)} lie apart in memory"),
    "memory_offset": Kind(4, lambda other, n: f"lies {n} bytes before {other}"),
    "relation": Kind(3, lambda condition, *sources: condition.words),
    "global_state": Kind(
        0, lambda *state: "torch's grad mode, autocast, default dtype and device, modes are as when compiled"
    ),
    "callable_eq": Kind(5, lambda fn, args, value: f"{getattr(fn, '__qualname__', fn)}{args} == {_short(value)}"),
}


# Guards on the identity of a function or class and on the presence of keys: they rarely fail.
_STRUCTURE = frozenset({"is", "code_is", "type_is", "dict_has", "dict_lacks"})


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """One expectation of one value. `expected` holds the operands of the check, in the order of the program's step."""

    source: Source
    kind: str
    expected: tuple[Any, ...]

    @property
    def text(self) -> str:
        """The guard as readable text, such as ``x.k == 3``."""
        return f"{self.source.name} {KINDS[self.kind].words(*self.expected)}"


class GuardSet:
    """The guards of one trace, in the order in which the trace needed them."""

    def __init__(self) -> None:
        self._guards: dict[tuple[Any, ...], Guard] = {}
        self._distinct: dict[PathKey, Source] = {}
        self._class_names: dict[int, tuple[type, dict[str, Any]]] = {}

    def add(self, source: Source, kind: str, *expected: Any) -> None:
        """Requires that the check `kind` holds for the value at `source`; adding the same guard again has no effect."""
        assert kind in KINDS, kind
        key = (source.key, kind, tuple([expectation(e) for e in expected]))
        if key not in self._guards:
            self._guards[key] = Guard(source, kind, expected)

    def count(self) -> int:
        """Number of guards of single values."""
        return len(self._guards)

    def only_structure_since(self, count: int) -> bool:
        """Whether none of the guards added since there were `count` of them fixes a number, size or length."""
        added = itertools.islice(self._guards.values(), count, None)
        return all(guard.kind in _STRUCTURE for guard in added)

    def distinct(self, sources: list[Source]) -> None:
        """Requires that all these objects and those of earlier calls of this method are pairwise different objects."""
        for source in sources:
            self._distinct.setdefault(source.key, source)

    def class_attribute(self, cls: type, name: str, value: Any) -> None:
        """Requires that looking up `name` in the bases of `cls` still finds `value` (or the marker for "missing")."""
        self._class_names.setdefault(id(cls), (cls, {}))[1].setdefault(name, value)

    def class_value(self, cls: type, name: str, default: Any) -> Any:
        """The value that a lookup of `name` in the bases of `cls` is required to find; `default` if none is
        required."""
        known = self._class_names.get(id(cls))
        return default if known is None else known[1].get(name, default)

    def has_class(self, cls: type) -> bool:
        """Whether the set requires the outcome of looking up some name in the bases of `cls`."""
        return id(cls) in self._class_names

    def merge(self, other: GuardSet) -> None:
        """Adds all requirements of another set."""
        for guard in other._guards.values():
            self.add(guard.source, guard.kind, *guard.expected)
        self.distinct(list(other._distinct.values()))
        for cls, names in other._class_names.values():
            for name, value in names.items():
                self.class_attribute(cls, name, value)

    def all(self) -> list[Guard]:
        """All guards. The requirements on one class are combined into one guard."""
        guards = list(self._guards.values())
        if len(self._distinct) > 1:
            first, *rest = self._distinct.values()
            guards.append(Guard(first, "all_distinct", tuple(rest)))
        for cls, names in self._class_names.values():
            guards.append(Guard(ConstSource(cls, _type_name(cls)), "class_version", (list(names.items()),)))
        return guards

    def __len__(self) -> int:
        return len(self._guards) + len(self._class_names)


# The most frequent classes of expected values. Two values of a class in the first set require the same if they are
# equal; two objects of a class in the second set only if they are the same object.
_BY_VALUE = frozenset({int, str, bytes, bool, type(None)})
_BY_IDENTITY = frozenset({type, types.CodeType, types.FunctionType, types.BuiltinFunctionType, types.ModuleType})


def expectation(value: Any) -> Any:
    """A key that is equal for two operands of checks if and only if they expect the same."""
    # 1, True and 1.0 are equal but different expectations, so the class is part of the key. Classes and code objects
    # compare by identity. No isinstance(), which may read ``__class__``: a class of the user's may define that
    # property.
    cls = type(value)
    if cls in _BY_VALUE:
        return (cls, value)
    if cls in _BY_IDENTITY:
        return id(value)
    if issubclass(cls, (int, float, complex, str, bytes, bool, type(None))):
        return (cls, repr(value))
    if issubclass(cls, (tuple, frozenset)):
        return (cls, tuple(expectation(v) for v in value))
    if issubclass(cls, Source):
        return value.key
    return id(value)
