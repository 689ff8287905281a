"""Lists, tuples, named tuples and torch.Size.

Elements may be lazy: for a list from outside its type and length are guarded, and each element when it is first read.
Invariant: `items` holds the elements that the real sequence would have at this point of the program; a sequence is
marked as mutated before its elements change.
"""
from __future__ import annotations

import collections
import operator
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ...bytecode.emit import in_order
from ...guards.source import SequenceItemSource, Source
from .. import error_texts
from ..base import LazyVariable, VariableTracker, realized, type_name, unsupported, wraps_if, wraps_type
from ..bound import BoundMethodVariable
from ..constant import ConstantVariable
from .sequence_iterators import ReversedVariable, SequenceIteratorVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


MAX_LENGTH = 1 << 20


class SequenceVariable(VariableTracker):
    """The base class of lists and tuples.

    Args:
        items: the elements.
        cls: the exact Python type.
    """

    base_type: type = object

    def __init__(self, items: list[VariableTracker], cls: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.items = items
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        name = f" {self.source.name!r}" if self.source is not None else ""
        return f"{self.cls.__name__}{name} of {len(self.items)}"

    def known_items(self) -> list[VariableTracker]:
        return self.items

    def item(self, tx: Tracer, index: int) -> VariableTracker:
        """The element at an index, realized."""
        value = self.items[index] = realized(tx, self.items[index])
        return value

    def contains_tensor(self) -> bool:
        return any(item.contains_tensor() for item in self.items)

    def as_argument(self, tx: Tracer) -> Any:
        values = [self.item(tx, i).as_argument(tx) for i in range(len(self.items))]
        return tuple(values) if self.base_type is tuple else values

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def to_plain(self, tx: Tracer) -> Any:
        if self.is_constant():
            self.check_plain(tx)
            return self.constant()
        return self.cls([tx.values.as_plain(item) for item in self.iterate(tx)])

    def length(self, tx: Tracer) -> VariableTracker:
        return ConstantVariable(len(self.items))

    def iterator(self, tx: Tracer) -> VariableTracker:
        return SequenceIteratorVariable(self)

    def iterate(self, tx: Tracer) -> Iterable[VariableTracker]:
        index = 0
        while index < len(self.items):
            yield self.item(tx, index)
            index += 1

    def reversed(self, tx: Tracer) -> VariableTracker:
        return ReversedVariable(self)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        index = tx.operators.as_index(key, self.base_type.__name__)
        if isinstance(index, slice):
            if self.cls is tuple and range(len(self.items))[index] == range(len(self.items)):
                return self
            return self.like(tx, tx.run_python(operator.getitem, self.items, index))
        position = tx.run_python(operator.index, index) if not isinstance(index, int) else index
        if not -len(self.items) <= position < len(self.items):
            tx.raise_error(IndexError, f"{self.base_type.__name__} index out of range")
        return self.item(tx, position % len(self.items))

    def like(self, tx: Tracer, items: list[VariableTracker]) -> VariableTracker:
        """A new sequence of the class that slicing and concatenation of this one give."""
        raise NotImplementedError

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op == "+" and isinstance(other, SequenceVariable) and other.base_type is self.base_type:
            first, second = (other, self) if reflected else (self, other)
            return first.like(tx, first.items + second.items)
        if op == "*" and issubclass(other.python_type(), torch.Tensor):
            other = ConstantVariable(tx.operators.as_index(other))
        if op == "*" and isinstance(other, ConstantVariable) and isinstance(other.value, int):
            if other.value * len(self.items) > MAX_LENGTH:
                unsupported("unsupported_operator", f"{self.describe()} * {other.value} is too large to follow")
            if other.value == 1 and self.cls is tuple:
                return self
            return self.like(tx, self.items * other.value)
        return None

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(other, SequenceVariable) or other.base_type is not self.base_type:
            return None
        if op in ("==", "!=") and len(self.items) != len(other.items):
            return ConstantVariable(op == "!=")
        i = 0
        while i < len(self.items) and i < len(other.items):  # comparing may change the lists
            mine, theirs = self.item(tx, i), other.item(tx, i)
            if not tx.operators.same_or_equal(mine, theirs):
                if i >= len(self.items) or i >= len(other.items):
                    break
                if op in ("==", "!="):
                    return ConstantVariable(op == "!=")
                return tx.operators.compare(op, self.item(tx, i), other.item(tx, i))
            i += 1
        return tx.operators.compare(op, ConstantVariable(len(self.items)), ConstantVariable(len(other.items)))

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = self.methods.get(name)
        if method is None or kwargs and name != "sort":
            return super().call_method(tx, name, args, kwargs)
        return tx.checked_call(method, self, tx, *args, **kwargs)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in self.methods:
            return BoundMethodVariable(self, name)
        if name == "__class__":
            return tx.values.from_result(self.cls, "class")
        return tx.classes.builtin_attribute(self, self.cls, name)

    # -- methods that lists and tuples share
    def _index(self, tx: Tracer, item: VariableTracker, start: Any = None, stop: Any = None) -> VariableTracker:
        bounds = slice(tx.values.as_plain(start) if start else None, tx.values.as_plain(stop) if stop else None)
        for i in range(*bounds.indices(len(self.items))):
            if i >= len(self.items):  # comparing may change the list
                break
            if tx.operators.same_or_equal(self.item(tx, i), item):
                return ConstantVariable(i)
        shown = "" if self.base_type is tuple else tx.texts.to_text(item, "r").constant()
        tx.raise_error(ValueError, error_texts.not_found(f"{self.base_type.__name__}.index", shown))

    def _count(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        return ConstantVariable(sum(tx.operators.same_or_equal(candidate, item) for candidate in self.iterate(tx)))

    methods: dict[str, Any] = {"index": _index, "count": _count}


def _bounds_come_last() -> bool:
    """Whether assignment to a slice of a list collects all assigned elements before it computes the slice's bounds."""
    try:
        [][:] = 5  # type: ignore[call-overload]
    except TypeError as error:
        return "extended" in str(error)
    raise AssertionError("unreachable")


_BOUNDS_COME_LAST = _bounds_come_last()


class ListVariable(SequenceVariable):
    """A list."""

    base_type: type = list
    has_identity = True

    def __init__(self, items: list[VariableTracker], source: Source | None = None, cls: type = list) -> None:
        super().__init__(items, cls, source)

    def like(self, tx: Tracer, items: list[VariableTracker]) -> VariableTracker:
        return ListVariable(list(items))

    def initialize(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        super().initialize(tx, args, kwargs)
        self.call_method(tx, "clear", [], {})
        if args:
            self.call_method(tx, "extend", args, {})

    def hash_key(self) -> Any:
        raise TypeError(f"unhashable type: {type_name(self.python_type())!r}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.emit.build_list(0), lambda: self.fill(cg))

    def fill(self, cg: Codegen) -> None:
        """Emits code that stores the elements in the empty list on top of the stack, and leaves it there."""
        if self.items:
            cg.push_all(self.items)
            cg.emit.build_list(len(self.items))
            cg.emit.list_extend()

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        index = tx.operators.as_index(key, "list")
        if isinstance(index, slice):
            self._set_slice(tx, index, value)
            return
        if not -len(self.items) <= index < len(self.items):
            tx.raise_error(IndexError, "list assignment index out of range")
        tx.output.effects.mutate(self)
        self.items[index] = value

    def _set_slice(self, tx: Tracer, index: slice, value: VariableTracker) -> None:
        """self[index] = value (Objects/listobject.c, list_ass_subscript). Iteration over the value may change the list:
        the bounds are computed before the iteration, or after it since Python 3.12.5."""
        if _BOUNDS_COME_LAST:
            value = ListVariable(tx.iteration.fast_sequence(value, "must assign iterable to extended slice", self))
        size = len(self.items)
        start, stop, step = tx.run_python(index.indices, size)
        if step == 1:
            new = tx.iteration.fast_sequence(value, "can only assign an iterable", self)
            start = min(start, len(self.items))
            stop = min(max(stop, start), len(self.items))
            if new or stop > start:
                tx.output.effects.mutate(self)
                self.items[start:stop] = new
            return
        new = tx.iteration.fast_sequence(value, "must assign iterable to extended slice", self)
        wanted = len(range(start, stop, step))
        if len(new) != wanted:
            tx.raise_error(
                ValueError, f"attempt to assign sequence of size {len(new)} to extended slice of size {wanted}")
        if len(self.items) < size:
            unsupported("unsupported_iteration", f"a slice of {self.describe()}, which has become shorter meanwhile")
        tx.output.effects.mutate(self)
        for position, item in zip(range(start, stop, step), new):
            self.items[position] = item

    def delitem(self, tx: Tracer, key: VariableTracker) -> None:
        index = tx.operators.as_index(key, "list")
        tx.output.effects.mutate(self)
        tx.run_python(operator.delitem, self.items, index)

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op == "+":
            self._extend(tx, other)
            return self
        if op == "*" and issubclass(other.python_type(), torch.Tensor):
            other = ConstantVariable(tx.operators.as_index(other))
        if op == "*" and isinstance(other, ConstantVariable) and isinstance(other.value, int):
            if other.value * len(self.items) > MAX_LENGTH:
                unsupported("unsupported_operator", f"{self.describe()} *= {other.value} is too large to follow")
            if self.items:
                tx.output.effects.mutate(self)
                self.items[:] = self.items * other.value
            return self
        return None

    def _append(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        tx.output.effects.mutate(self)
        self.items.append(item)
        return ConstantVariable(None)

    def _extend(self, tx: Tracer, other: VariableTracker) -> VariableTracker:
        """Stores each element when it is taken, so that the code that yields the elements observes it; the elements of
        a list or tuple are stored at once."""
        if is_plain_sequence(other) or other is self or other is self.holder:
            new = list(other.iterate(tx))
            if new:
                tx.output.effects.mutate(self)
                self.items.extend(new)
            return ConstantVariable(None)
        for item in tx.iteration.steps_with_hint(other):
            tx.output.effects.mutate(self)
            self.items.append(item)
        return ConstantVariable(None)

    def _insert(self, tx: Tracer, index: VariableTracker, item: VariableTracker) -> VariableTracker:
        tx.output.effects.mutate(self)
        self.items.insert(tx.operators.as_index(index), item)
        return ConstantVariable(None)

    def _pop(self, tx: Tracer, index: VariableTracker | None = None) -> VariableTracker:
        position = -1 if index is None else tx.operators.as_index(index)
        if not self.items:
            tx.raise_error(IndexError, "pop from empty list")
        if not -len(self.items) <= position < len(self.items):
            tx.raise_error(IndexError, "pop index out of range")
        value = self.item(tx, position % len(self.items))
        tx.output.effects.mutate(self)
        self.items.pop(position)
        return value

    def _remove(self, tx: Tracer, item: VariableTracker) -> VariableTracker:
        for i, candidate in enumerate(self.iterate(tx)):
            if tx.operators.same_or_equal(candidate, item):
                tx.output.effects.mutate(self)
                del self.items[i : i + 1]  # comparing may have made the list shorter
                return ConstantVariable(None)
        tx.raise_error(ValueError, "list.remove(x): x not in list")

    def _clear(self, tx: Tracer) -> VariableTracker:
        if self.items:
            tx.output.effects.mutate(self)
            self.items.clear()
        return ConstantVariable(None)

    def _reverse(self, tx: Tracer) -> VariableTracker:
        if self.items:
            tx.output.effects.mutate(self)
            self.items.reverse()
        return ConstantVariable(None)

    def _copy(self, tx: Tracer) -> VariableTracker:
        return ListVariable(list(self.items))

    def _sort(
        self, tx: Tracer, key: VariableTracker | None = None, reverse: VariableTracker | None = None
    ) -> VariableTracker:
        """The list is empty while it is sorted; elements that are added meanwhile are lost (Objects/listobject.c,
        list_sort_impl)."""
        effects = tx.output.effects
        ordered = list(self.iterate(tx))
        if not ordered:
            return ConstantVariable(None)
        effects.mutate(self)
        self.items = []
        before = effects.change_count()
        changed = True
        try:
            sort_items(tx, ordered, key, reverse)
            since = effects.changed_since(before)
            changed = since is None or any(value is self for value in since)
        finally:
            effects.mutate(self)
            self.items = ordered
        if changed:
            tx.raise_error(ValueError, "list modified during sort")
        return ConstantVariable(None)

    methods = {
        **SequenceVariable.methods, "append": _append, "extend": _extend, "insert": _insert, "pop": _pop,
        "remove": _remove, "clear": _clear, "reverse": _reverse, "copy": _copy, "sort": _sort,
    }


def is_plain_sequence(value: VariableTracker) -> bool:
    """Whether a value is exactly a list or a tuple, so that its elements can be taken all at once."""
    return isinstance(value, (ListVariable, TupleVariable)) and value.cls in (list, tuple) and value.holder is None


def sort_items(
    tx: Tracer, items: list[VariableTracker], key: VariableTracker | None, reverse: VariableTracker | None
) -> None:
    """The stable in-place sort of list.sort and sorted(), with the same comparisons by ``<``. Where a comparison
    raises, the items are left in the same order as by these."""
    descending = reverse is not None and tx.truth(reverse)
    use_key = key is not None and not key.is_none()
    keys = [tx.call(key, [item], {}) for item in items] if use_key and key is not None else items

    class _Entry:
        __slots__ = ("item", "key")

        def __init__(self, key: VariableTracker, item: VariableTracker) -> None:
            self.key = key
            self.item = item

        def __lt__(self, other: _Entry) -> bool:
            return tx.truth(tx.operators.compare("<", self.key, other.key))

    entries = [_Entry(key, item) for key, item in zip(keys, items)]
    try:
        entries.sort(reverse=descending)
    finally:
        items[:] = [entry.item for entry in entries]


class TupleVariable(SequenceVariable):
    """A tuple, torch.Size included."""

    base_type: type = tuple

    def __init__(self, items: list[VariableTracker], source: Source | None = None, cls: type = tuple) -> None:
        super().__init__(items, cls, source)
        self.real: Any = None  # the tuple itself, if it came in from outside or is a constant of the code

    def like(self, tx: Tracer, items: list[VariableTracker]) -> VariableTracker:
        return TupleVariable(list(items), cls=torch.Size if self.cls is torch.Size else tuple)

    def is_constant(self) -> bool:
        return self.cls in (tuple, torch.Size) and all(item.is_constant() for item in self.items)

    def constant(self) -> Any:
        return self.cls(item.constant() for item in self.items)

    def fix(self, tx: Tracer) -> None:
        for item in self.items:
            item.fix(tx)

    def asks_own(self, tx: Tracer, *names: str) -> bool:
        return any(item.asks_own(tx, *names) for item in self.items)

    def check_plain(self, tx: Tracer, texts: bool = True) -> None:
        for item in self.items:
            item.check_plain(tx, texts)

    def hash_key(self) -> Any:
        return tuple(item.hash_key() for item in self.items)

    def guard_hash(self, tx: Tracer) -> None:
        for index in range(len(self.items)):
            self.item(tx, index).guard_hash(tx)

    def same_object(self, other: VariableTracker) -> bool | None:
        if self is other:
            return True
        if isinstance(other, TupleVariable) and not self.items and not other.items:
            return None
        if isinstance(other, TupleVariable) and self.real is not None:
            return self.real is other.real
        return False

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "numel" and self.cls is torch.Size:
            return BoundMethodVariable(self, name)
        return super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name == "numel" and self.cls is torch.Size:
            count: VariableTracker = ConstantVariable(1)
            for item in self.iterate(tx):
                count = tx.operators.binary("*", count, item)
            return count
        return super().call_method(tx, name, args, kwargs)

    def as_argument(self, tx: Tracer) -> Any:
        values = super().as_argument(tx)
        plain = all(isinstance(value, int) for value in values)
        return torch.Size(values) if self.cls is torch.Size and plain else values

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: self._make(cg), lambda: None, refers_only=True)

    def _make(self, cg: Codegen) -> None:
        if self.cls is tuple:
            cg.push_all(self.items)
            cg.emit.build_tuple(len(self.items))
        else:
            cg.call_constant(self.cls, in_order(
                lambda: cg.push_all(self.items), lambda: cg.emit.build_tuple(len(self.items))))


# The class of the descriptors that read the fields of a namedtuple.
FIELD = type(vars(collections.namedtuple("_Fields", "first"))["first"])


class NamedTupleVariable(TupleVariable):
    """An instance of a namedtuple class, or of a structseq such as torch.return_types.max."""

    def field_names(self) -> tuple[str, ...]:
        fields = getattr(self.cls, "_fields", None)
        if fields is None:
            fields = tuple(n for n in dir(self.cls) if type(getattr(self.cls, n)).__name__ == "member_descriptor")
            order = {getattr(self.cls(range(len(self.items))), n): n for n in fields}
            fields = tuple(order[i] for i in range(len(self.items)))
        return fields

    def to_plain(self, tx: Tracer) -> Any:
        if self.is_constant() or not hasattr(self.cls, "_fields"):
            return super().to_plain(tx)
        return tuple.__new__(self.cls, [tx.values.as_plain(item) for item in self.iterate(tx)])

    def is_constant(self) -> bool:
        return False

    def like(self, tx: Tracer, items: list[VariableTracker]) -> VariableTracker:
        return TupleVariable(list(items))

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        names = self.field_names()
        if name in names:
            found = tx.classes.lookup(self.cls, name) if hasattr(self.cls, "_fields") else None
            if found is None or isinstance(found, FIELD):
                return self.item(tx, names.index(name))
        return super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name in self.methods:
            return super().call_method(tx, name, args, kwargs)
        return tx.call(self.getattr(tx, name), args, kwargs)

    def _make(self, cg: Codegen) -> None:
        if hasattr(self.cls, "_fields"):
            # As _make() does it, so that a __new__ of the user's does not run a second time.
            def args() -> None:
                cg.load_class(self.cls)
                cg.push_all(self.items)
                cg.emit.build_tuple(len(self.items))

            cg.call_constant(tuple.__new__, args, count=2)
        else:
            super()._make(cg)


# ---------------------------------------------------------------- wrapping
def lazy_items(value: Any, source: Source, is_list: bool) -> list[VariableTracker]:
    """Lazy trackers of the elements of a sequence at `source`."""
    raw = list.__iter__(value) if is_list else tuple.__iter__(value)
    return [LazyVariable(item, SequenceItemSource(source, i, is_list)) for i, item in enumerate(raw)]


@wraps_type(list)
def _wrap_list(tx: Tracer, value: list[Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", list)
    tx.guard(source, "len", len(value))
    return ListVariable(lazy_items(value, source, True), source)


@wraps_type(tuple)
def _wrap_tuple(tx: Tracer, value: tuple[Any, ...], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", tuple)
    tx.guard(source, "len", len(value))
    wrapped = TupleVariable(lazy_items(value, source, False), source)
    wrapped.real = value
    return wrapped


@wraps_type(torch.Size)
def _wrap_size(tx: Tracer, value: torch.Size, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", torch.Size)
    tx.guard(source, "len", len(value))
    wrapped = TupleVariable(lazy_items(value, source, False), source, torch.Size)
    wrapped.real = value
    return wrapped


@wraps_if(lambda value: issubclass(type(value), tuple) and is_named_tuple(type(value)), rank=5)
def _wrap_named_tuple(tx: Tracer, value: tuple[Any, ...], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    tx.guard(source, "len", len(value))
    wrapped = NamedTupleVariable(lazy_items(value, source, False), source, type(value))
    wrapped.real = value
    return wrapped


def is_named_tuple(cls: type) -> bool:
    """Whether a class is a structseq, or a namedtuple that defines no special methods of its own and so behaves like a
    tuple."""
    if not issubclass(cls, tuple):
        return False
    if cls.__module__ == "torch.return_types" or (hasattr(cls, "n_fields") and cls.__mro__[1:] == (tuple, object)):
        return True
    if not hasattr(cls, "_fields") or tuple not in cls.__bases__ or "__dict__" in dir(cls):
        return False
    own = (name for name, value in cls.__dict__.items() if isinstance(value, types.FunctionType))
    return not any(name.startswith("__") and name not in _OF_NAMED_TUPLES for name in own)


# Functions that every namedtuple class has.
_OF_NAMED_TUPLES = frozenset({
    "__new__", "__repr__", "__getnewargs__", "__replace__", "__annotate__", "__annotate_func__"})
