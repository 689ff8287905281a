"""Whether the guards of one cache entry admit every call that the guards of another entry admit.

A function that was compiled for one size and later for a symbolic size has two entries that fit the first size. This
can be concluded from the guards, as they are data: each guard of the newer entry also is a guard of the older one, or
it restricts a size, a stride or an int that the older entry fixes to a number or confines to narrower limits.

Invariant: :func:`covers` answers yes only where this follows from the guards alone, for every call; where it can't
tell, it answers no.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .guard import Guard, expectation
from .sizes import SizeCondition
from .source import PathKey, SizeSource, Source, StrideSource

_SHAPE, _STRIDES = 5, 6  # positions among the expected values of a guard of the kind "tensor"


class GuardFacts:
    """The requirements of an entry's guards, indexed by path.

    Args:
        guards: the entry's guards.
        state: the global state of torch that the entry requires, as operands of the step "global_state"; None if it
            requires none.
    """

    def __init__(self, guards: Iterable[Guard], state: tuple[Any, ...] | None) -> None:
        self.guards = list(guards)
        self.state = state
        self._same: set[Any] = set()
        self._tensors: dict[PathKey, Guard] = {}
        self._classes: dict[PathKey, dict[str, Any]] = {}
        self._distinct: set[PathKey] = set()
        self._limits: dict[PathKey, tuple[int, int]] = {}
        self._consts: dict[PathKey, Any] = {}
        for guard in self.guards:
            self._add(guard)

    def _add(self, guard: Guard) -> None:
        key = guard.source.key
        if guard.kind == "tensor":
            self._tensors[key] = guard
        elif guard.kind == "class_version":
            self._classes[key] = dict(guard.expected[0])
        elif guard.kind == "all_distinct":
            self._distinct = {key, *(other.key for other in guard.expected)}
        elif guard.kind == "int_range":
            self._limits[key] = guard.expected[:2]
        else:
            self._same.add(_compared(guard))
            if guard.kind == "const":
                self._consts[key] = guard.expected[0]

    def imply(self, guard: Guard) -> bool:
        """Whether `guard` holds in every call in which the guards of this entry hold."""
        key = guard.source.key
        if guard.kind == "tensor":
            known = self._tensors.get(key)
            return known is not None and self._implies_tensor(known, guard)
        if guard.kind == "class_version":
            found = self._classes.get(key, {})
            return all(name in found and found[name] is value for name, value in guard.expected[0])
        if guard.kind == "all_distinct":
            return {key, *(other.key for other in guard.expected)} <= self._distinct
        if guard.kind == "int_range":
            low, high = self._between(guard.source) or (None, None)
            return low is not None and high is not None and guard.expected[0] <= low and high <= guard.expected[1]
        if _compared(guard) in self._same:
            return True
        if guard.kind == "relation":
            return self._implies_relation(guard)
        return guard.kind == "type_is" and key in self._consts and type(self._consts[key]) is guard.expected[0]

    # -- sizes and numbers
    def _between(self, source: Source) -> tuple[int, int] | None:
        """Lowest and highest int that the value at a source can be; None if unknown."""
        number: Any = None
        if isinstance(source, (SizeSource, StrideSource)):
            known = self._tensors.get(source.base.key)
            if known is not None and source.part < len(known.expected[_SHAPE]):
                number = (_size if isinstance(source, SizeSource) else _stride)(known, source.part)
        else:
            number = self._consts.get(source.key)
        return (number, number) if type(number) is int else self._limits.get(source.key)

    def _implies_relation(self, guard: Guard) -> bool:
        condition, *others = guard.expected
        bounds = [self._between(source) for source in (guard.source, *others)]
        values = [b[0] for b in bounds if b is not None and b[0] == b[1]]
        return len(values) == len(bounds) and condition.holds(values)

    @staticmethod
    def _implies_tensor(older: Guard, newer: Guard) -> bool:
        for place, (a, b) in enumerate(zip(older.expected, newer.expected)):
            if place not in (_SHAPE, _STRIDES) and expectation(a) != expectation(b):
                return False
        if len(older.expected[_SHAPE]) != len(newer.expected[_SHAPE]):
            return False
        if any(b is not None and a != b for a, b in zip(older.expected[_SHAPE], newer.expected[_SHAPE])):
            return False
        if newer.expected[_STRIDES] is None or older.expected[_STRIDES] is None:
            return newer.expected[_STRIDES] is None
        for dim, (a, b) in enumerate(zip(older.expected[_STRIDES], newer.expected[_STRIDES])):
            if b is None or a == b and type(a) is type(b):
                continue
            stride = _stride(older, dim)
            if type(b) is tuple:
                size, inner = _size(older, b[0]), _stride(older, b[0])
                b = None if size is None or inner is None else size * inner
            if stride is None or stride != b:
                return False
        return True


def _size(tensor: Guard, dim: int) -> int | None:
    """The size of a dimension that a guard of the kind "tensor" requires; None if the guard leaves it open."""
    size: int | None = tensor.expected[_SHAPE][dim]
    return size


def _stride(tensor: Guard, dim: int) -> int | None:
    """The stride that a guard of the kind "tensor" requires, as a number; None if the guard leaves it open, or derives
    it from a size that is open."""
    strides = tensor.expected[_STRIDES]
    stride = None if strides is None else strides[dim]
    if type(stride) is tuple:
        of, inner = _size(tensor, stride[0]), _stride(tensor, stride[0])
        return None if of is None or inner is None else of * inner
    return stride


def _compared(guard: Guard) -> Any:
    """A key that is equal for two guards that require the same of the same value."""
    expected = guard.expected
    if guard.kind == "relation":
        condition: SizeCondition = expected[0]
        expected = (condition.program, condition.comparison, *expected[1:])
    return (guard.source.key, guard.kind, expectation(expected))


def covers(newer: GuardFacts, older: GuardFacts) -> bool:
    """Whether every call that fits the older entry fits the newer entry, too."""
    return newer.state == older.state and all(map(older.imply, newer.guards))
