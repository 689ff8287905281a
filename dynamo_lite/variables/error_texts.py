"""Error messages that differ between versions of Python, obtained from the running interpreter.

Each function makes the interpreter raise the error for a placeholder (probe) and replaces the placeholder in the
message by the program's value. Invariant: no message of a particular version is written here, so that the messages of
a new version are right without a change.
"""
from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from dynamo_lite.variables.base import type_name


class _Probe:
    """A value that no container holds, and whose repr and type name can be recognized in a message."""

    __hash__ = None  # type: ignore[assignment]
    __bool__ = None

    def __repr__(self) -> str:
        return "<probe>"


_PROBE: Any = _Probe()


class _Giver:
    """An object whose special methods return the probe, which none of them is allowed to return."""

    def __index__(self) -> Any:
        return _PROBE

    __iter__ = __length_hint__ = __int__ = __float__ = __complex__ = __bytes__ = __str__ = __repr__ = __index__
    __bool__ = __index__

    def __format__(self, spec: str) -> Any:
        return _PROBE


class _Negative:
    """An object whose ``__length_hint__`` is negative."""

    def __iter__(self) -> Any:
        return iter(())

    def __length_hint__(self) -> int:
        return -1


def _text(provoke: Callable[[], Any]) -> str:
    try:
        provoke()
    except Exception as error:
        return str(error)
    raise AssertionError("the interpreter accepts what it refused in all versions that are known")


@functools.cache
def _asked(method: str) -> str:
    return _text(_METHODS[method])


_METHODS: dict[str, Callable[[], Any]] = {
    "list.index": lambda: [].index(_PROBE),
    "tuple.index": lambda: ().index(_PROBE),
    "deque.index": lambda: collections.deque().index(_PROBE),
    "deque.remove": lambda: collections.deque().remove(_PROBE),
    "bool": lambda: bool(_PROBE),
    "dict key": lambda: {}[_PROBE],
    "set element": lambda: _PROBE in set(),
    "hash": lambda: hash(_PROBE),
    "mapping": lambda: (lambda **named: None)(**_PROBE),
    "iterable": lambda: (lambda *values: None)(*_PROBE),
    "no mapping": lambda: {**_PROBE},
    "no container": lambda: 0 in _PROBE,
    "__iter__": lambda: iter(_Giver()),
    "__index__": lambda: operator.index(_Giver()),
    "__length_hint__": lambda: operator.length_hint(_Giver()),
    "__int__": lambda: int(_Giver()),
    "__float__": lambda: float(_Giver()),
    "__complex__": lambda: complex(_Giver()),
    "__bytes__": lambda: bytes(_Giver()),
    "__str__": lambda: str(_Giver()),
    "__repr__": lambda: repr(_Giver()),
    "__format__": lambda: format(_Giver()),
    "__bool__": lambda: bool(_Giver()),
    "negative length": lambda: list(_Negative()),
    "tee": lambda: itertools.tee((), -1),
}


def not_found(method: str, shown: str) -> str:
    """The message of the ValueError of a search such as ``list.index`` for a value whose repr is `shown`."""
    return _asked(method).replace(repr(_PROBE), shown)


def _of_class(text: str, cls: type, probe: type = _Probe) -> str:
    """A message with the name of `cls` in place of the probe's; some messages include the module and outer names."""
    own = f"{probe.__module__}.{probe.__qualname__}"
    outer = "" if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}."
    return text.replace(own, f"{outer}{cls.__qualname__}").replace(probe.__name__, type_name(cls))


def wrong_result(method: str, owner: type, given: type) -> str:
    """The message of the TypeError where a special method ("__iter__", "__index__", ..) of class `owner` returns an
    object of class `given`, which it must not return."""
    return _of_class(_of_class(_asked(method), given), owner, _Giver)


def negative_length(owner: type) -> str:
    """The message of the ValueError where ``__length_hint__`` of a class returns a negative number."""
    return _of_class(_asked("negative length"), owner, _Negative)


def no_mapping(cls: type) -> str:
    """The message of the TypeError of ``{**value}`` where the class of the value is no mapping."""
    return _of_class(_asked("no mapping"), cls)


def no_container(cls: type) -> str:
    """The message of the TypeError of ``in`` where a class has no ``__contains__`` and its objects no iterator."""
    return _of_class(_asked("no container"), cls)


def negative_count() -> str:
    """The message of the ValueError of ``itertools.tee`` for a negative number of iterators."""
    return _asked("tee")


def no_truth(cls: type) -> str:
    """The message of the TypeError of ``bool()`` for an object of a class whose ``__bool__`` is None."""
    return _of_class(_asked("bool"), cls)


def unhashable(said: str, cls: type, place: str) -> str:
    """The message of the TypeError for a "dict key" or "set element" (`place`) of class `cls`, whose hashing raised a
    TypeError with the message `said`."""
    before, own, after = _asked(place).partition(_asked("hash"))
    return _of_class(before, cls) + said + after if own else said


def unpacked(place: str, function: str, cls: type) -> str:
    """The message of the TypeError where a call unpacks (``*`` or ``**``) an object of class `cls` that is no
    "iterable" or "mapping" (`place`); `function` is the called function's text with its parentheses."""
    before, after, rest = _asked(place).partition(" argument after ")
    return _of_class(f"{function}{after}{rest}" if after else before, cls)


@functools.cache
def _too_many(kind: type) -> str:
    def unpack() -> None:
        _, _ = kind((7, 8, 9)) if kind is not dict else {7: 0, 8: 0, 9: 0}

    return _text(unpack)


def too_many(expected: int, kind: type, length: int | None) -> str:
    """The message of the ValueError where `expected` names are unpacked from a value of type `kind` with more elements
    (`length`, None if that is not known)."""
    text = _too_many(kind if kind in (list, tuple, dict) else iter).replace("expected 2", f"expected {expected}")
    return text if length is None else text.replace("got 3", f"got {length}")


@functools.cache
def _no_pair() -> tuple[str, tuple[str, ...]]:
    try:
        dict([3])  # type: ignore[arg-type]
    except TypeError as error:
        return str(error), tuple(getattr(error, "__notes__", ()))
    raise AssertionError("dict([3]) is an error in all versions that are known")


def no_pair(number: int) -> tuple[str, list[str]]:
    """Message and notes of the TypeError of ``dict()`` for an iterable whose element `number` can't be iterated
    over."""
    text, notes = _no_pair()
    return text.replace("#0", f"#{number}"), [note.replace("#0", f"#{number}") for note in notes]
