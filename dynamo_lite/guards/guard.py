"""What a guard is, the kinds there are, and the set that a trace collects.

Each kind names an instruction of the guard program (``csrc/guards``), its cost rank (cheap and likely to fail first),
and how the expectation reads in words. Invariant: a (source, kind, expectation) occurs once in a set.
"""
from __future__ import annotations

import dataclasses
import enum
import itertools
import reprlib
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .source import ConstSource, PathKey, Source


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A kind of check: its rank (lower runs earlier) and its wording from the expectation's fields."""

    rank: int
    words: Callable[..., str]


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _tensor_words(*spec: Any) -> str:
    cls, code, bits, device, index, shape, strides, requires_grad, _flags, dtype = spec
    return (f"is a {_type_name(cls)} of {dtype}, shape {dims_in_words(shape)}, strides {dims_in_words(strides)} on "
            f"{_device_words(device, index)}, requires_grad={requires_grad}")


def dims_in_words(dims: Sequence[Any]) -> str:
    """Sizes or strides as a guard of the kind "tensor" has them."""
    words = ["any" if n is None else f"dense over {n[0]}" if type(n) is tuple else str(n) for n in dims]
    return f"[{', '.join(words)}]"


def _device_words(device_type: Any, index: Any) -> str:
    return {1: "cpu", 2: "cuda"}.get(device_type, str(device_type)) + (f":{index}" if device_type != 1 else "")


class _Words(reprlib.Repr):
    """As repr() says it, but for what a class of the program's would say, whose code is not run for a message."""

    def repr_instance(self, x: Any, level: int) -> str:
        says = type(x).__repr__
        home = getattr(says, "__module__", None) or ""
        if not isinstance(says, types.FunctionType) or home.partition(".")[0] in sys.stdlib_module_names:
            return super().repr_instance(x, level)
        if isinstance(x, type):
            return f"<class {_type_name(x)!r}>"
        name = x.__dict__.get("_name_") if isinstance(x, enum.Enum) else None
        return f"{type(x).__qualname__}.{name}" if name is not None else f"a {type(x).__qualname__}"


# A global's container may hold all that a program has: no more of it is written than is shown.
_bounded = _Words()
_bounded.maxlevel = 2
for _kind in ("list", "tuple", "dict", "set", "frozenset", "deque"):
    setattr(_bounded, f"max{_kind}", 30)
_bounded.maxstring = _bounded.maxlong = _bounded.maxother = 80


def _short(value: Any) -> str:
    try:
        text = _bounded.repr(value)
    except Exception as error:  # the user's own __repr__
        text = f"a {type(value).__qualname__} ({type(error).__name__} in its repr)"
    return text if len(text) <= 80 else text[:77] + "..."


BECAUSE = ", because of "


def because(why: str) -> str:
    """The end of a guard's text that says what it is for."""
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


# Guards on which function or class something is: they rarely fail.
_STRUCTURE = frozenset({"is", "code_is", "type_is", "dict_has", "dict_lacks"})


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """One expectation of one value. `expected` are the operands of the check, in the program's order."""

    source: Source
    kind: str
    expected: tuple[Any, ...]

    @property
    def text(self) -> str:
        """The guard in words, such as ``x.k == 3``."""
        return f"{self.source.name} {KINDS[self.kind].words(*self.expected)}"


class GuardSet:
    """The guards of one trace, in the order in which the trace needed them."""

    def __init__(self) -> None:
        self._guards: dict[tuple[Any, ...], Guard] = {}
        self._distinct: dict[PathKey, Source] = {}
        self._class_names: dict[int, tuple[type, dict[str, Any]]] = {}

    def add(self, source: Source, kind: str, *expected: Any) -> None:
        """Requires `kind` of the value at `source`; a repetition changes nothing."""
        assert kind in KINDS, kind
        key = (source.key, kind, tuple([expectation(e) for e in expected]))
        if key not in self._guards:
            self._guards[key] = Guard(source, kind, expected)

    def count(self) -> int:
        """How many guards there are of single values."""
        return len(self._guards)

    def only_structure_since(self, count: int) -> bool:
        """Whether what was added since there were `count` guards fixes no number, size or length."""
        added = itertools.islice(self._guards.values(), count, None)
        return all(guard.kind in _STRUCTURE for guard in added)

    def distinct(self, sources: list[Source]) -> None:
        """Requires all these objects, and those of earlier calls, to be different ones."""
        for source in sources:
            self._distinct.setdefault(source.key, source)

    def class_attribute(self, cls: type, name: str, value: Any) -> None:
        """Requires that looking up `name` in the bases of `cls` finds `value` (or the missing marker) as before."""
        self._class_names.setdefault(id(cls), (cls, {}))[1].setdefault(name, value)

    def class_value(self, cls: type, name: str, default: Any) -> Any:
        """What looking up `name` in the bases of `cls` is required to find; `default` if that is not required."""
        known = self._class_names.get(id(cls))
        return default if known is None else known[1].get(name, default)

    def has_class(self, cls: type) -> bool:
        """Whether anything that looking up a name in the bases of `cls` finds is required."""
        return id(cls) in self._class_names

    def merge(self, other: GuardSet) -> None:
        """Requires all that another set requires."""
        for guard in other._guards.values():
            self.add(guard.source, guard.kind, *guard.expected)
        self.distinct(list(other._distinct.values()))
        for cls, names in other._class_names.values():
            for name, value in names.items():
                self.class_attribute(cls, name, value)

    def all(self) -> list[Guard]:
        """Every guard; class guards gathered, one for a class."""
        guards = list(self._guards.values())
        if len(self._distinct) > 1:
            first, *rest = self._distinct.values()
            guards.append(Guard(first, "all_distinct", tuple(rest)))
        for cls, names in self._class_names.values():
            guards.append(Guard(ConstSource(cls, _type_name(cls)), "class_version", (list(names.items()),)))
        return guards

    def __len__(self) -> int:
        return len(self._guards) + len(self._class_names)


# The classes of most expectations, whose values equal others of the class if they are the same, or are never equal.
_BY_VALUE = frozenset({int, str, bytes, bool, type(None)})
_BY_IDENTITY = frozenset({type, types.CodeType, types.FunctionType, types.BuiltinFunctionType, types.ModuleType})


def expectation(value: Any) -> Any:
    """What is equal for two operands of checks that expect the same."""
    # 1, True and 1.0 are equal but not the same expectation; classes and code objects compare by identity.
    # Not isinstance, which reads __class__ of other values: a class of the user's may define how.
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
