"""Ranges and slices.

Invariant: all numbers of a range are known; the parts of a slice may be any values.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ...bytecode.emit import in_order
from ...guards.source import Source
from ..base import IteratorVariable, VariableTracker, wraps_type
from ..constant import ConstantVariable
from .slice_bounds import is_between, is_plain_int, is_symbolic_int, slice_indices

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class RangeVariable(VariableTracker):
    """A range of known bounds."""

    def __init__(self, value: range, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return range

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def hash_key(self) -> Any:
        return self.value

    def as_argument(self, tx: Tracer) -> Any:
        return list(self.value)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.value)

    def length(self, tx: Tracer) -> VariableTracker:
        return ConstantVariable(tx.run_python(len, self.value))

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        result = tx.run_python(operator.getitem, self.value, tx.operators.as_index(key, "range"))
        return RangeVariable(result) if isinstance(result, range) else ConstantVariable(result)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        if is_symbolic_int(item) and is_plain_int(item):
            start, stop = (ConstantVariable(n) for n in (self.value.start, self.value.stop))
            return is_between(tx, item, start, stop, self.value.step)
        return item.constant() in self.value

    def iterator(self, tx: Tracer) -> VariableTracker:
        return RangeIteratorVariable(self.value)

    def reversed(self, tx: Tracer) -> VariableTracker:
        return RangeIteratorVariable(self.value[::-1])

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.values.from_result(tx.run_python(getattr, self.value, name), f"range.{name}")

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op in ("==", "!=") and isinstance(other, RangeVariable):
            return ConstantVariable((self.value == other.value) == (op == "=="))
        return None

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.load_const(self.value)


_AS_KEY = object()  # distinguishes a slice from a tuple of its parts in hash keys


class SliceVariable(VariableTracker):
    """A slice; its parts may be any values."""

    def __init__(self, parts: list[VariableTracker], source: Source | None = None) -> None:
        super().__init__(source)
        self.parts = parts  # start, stop, step

    def python_type(self) -> type:
        return slice

    def is_constant(self) -> bool:
        return all(part.is_constant() for part in self.parts)

    def constant(self) -> Any:
        return slice(*(part.constant() for part in self.parts))

    def as_index(self, tx: Tracer) -> Any:
        return slice(*(None if part.is_none() else tx.operators.as_index(part) for part in self.parts))

    def as_argument(self, tx: Tracer) -> Any:
        return slice(*(part.as_argument(tx) for part in self.parts))

    def contains_tensor(self) -> bool:
        return any(part.contains_tensor() for part in self.parts)

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        if name == "indices":
            return tx.builtin_method(self, name)
        return super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name != "indices":
            return super().call_method(tx, name, args, kwargs)
        found = slice_indices(tx, self.parts, args[0]) if len(args) == 1 and not kwargs else None
        if found is not None:
            return found
        plain = [tx.operators.as_index(a) for a in args]
        named = {k: tx.values.as_plain(v) for k, v in kwargs.items()}
        return tx.values.from_result(tx.run_python(self.constant().indices, *plain, **named), "slice.indices()")

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(other, SliceVariable):
            return None
        return tx.operators.compare(op, tx.values.new_tuple(list(self.parts)), tx.values.new_tuple(list(other.parts)))

    def same_object(self, other: VariableTracker) -> bool | None:
        return self.may_be_the_same(other)

    def hash_key(self) -> Any:
        if slice.__hash__ is None:  # up to Python 3.11
            raise TypeError("unhashable type: 'slice'")
        return (_AS_KEY, *(part.hash_key() for part in self.parts))

    def guard_hash(self, tx: Tracer) -> None:
        for part in self.parts:
            part.guard_hash(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(
            self, in_order(lambda: cg.push_all(self.parts), lambda: cg.emit.build_slice(3)), lambda: None,
            refers_only=True
        )


class RangeIteratorVariable(IteratorVariable):
    """An iterator of a range; `rest` holds the numbers that it has not given yet."""

    def __init__(self, rest: range) -> None:
        super().__init__()
        self.rest = rest

    def python_type(self) -> type:
        return type(iter(range(0)))

    def next(self, tx: Tracer) -> VariableTracker | None:
        if not self.rest:
            return None
        tx.output.effects.advance(self)
        value, self.rest = self.rest[0], self.rest[1:]
        return ConstantVariable(value)

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.call_constant(iter, lambda: cg.emit.load_const(self.rest)), lambda: None)


# ---------------------------------------------------------------- wrapping
@wraps_type(range)
def _wrap_range(tx: Tracer, value: range, source: Source) -> VariableTracker:
    tx.guard(source, "const", value)
    return RangeVariable(value, source)


@wraps_type(slice)
def _wrap_slice(tx: Tracer, value: slice, source: Source) -> VariableTracker:
    from_attr = [tx.values.wrap_slot(source, slice, value, name) for name in ("start", "stop", "step")]
    tx.guard(source, "type_is", slice)
    return SliceVariable(from_attr, source)
