"""Dicts, ordered dicts, default dicts, their views, and sets.

Keys are compared as Python compares them: a constant by value, an object by identity, through ``hash_key()``. Values may be
lazy; the keys of a dict that came in from outside are guarded together. Invariant: `items` holds the entries in insertion
order as the real dict would at this point of the program.
"""
from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..source import DictItemSource, DictKeySource, FrozenSource, Source
from .base import LazyVariable, VariableTracker, realized, unsupported, wraps_if, wraps_type
from .bound import BoundMethodVariable
from .constant import ConstantVariable, is_constant_value
from .sequences import ListVariable, SequenceVariable, TupleVariable

if TYPE_CHECKING:
    from ..codegen import Codegen

_KEY_TYPES = (str, int, float, bool, bytes, type(None), tuple, frozenset, complex)


class DictVariable(VariableTracker):
    """A dict or one of its standard subclasses.

    Args:
        items: hash key -> (key, value).
        cls: dict, OrderedDict, defaultdict, Counter or MappingProxyType.
        default_factory: of a defaultdict.
        guard_keys: guards the keys of a dict from outside. While it has not been called, what is known of the dict is what
            lookups of single keys have guarded.
    """

    has_identity = True

    def __init__(
        self,
        items: dict[Any, tuple[VariableTracker, VariableTracker]],
        source: Source | None = None,
        cls: type = dict,
        default_factory: VariableTracker | None = None,
        guard_keys: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(source)
        self._entries = items
        self.structure = 0  # counts changes of which keys there are
        self._guard_keys = guard_keys
        self.cls = cls
        self.default_factory = default_factory

    @property
    def items(self) -> dict[Any, tuple[VariableTracker, VariableTracker]]:
        """All entries. Whoever looks at them relies on which keys there are and on their order."""
        if self._guard_keys is not None:
            guard, self._guard_keys = self._guard_keys, None
            guard()
        return self._entries

    def _entry(self, tx: Any, key: VariableTracker) -> tuple[Any, tuple[VariableTracker, VariableTracker] | None]:
        """The hash key and the entry under a key; relies on this key alone where that is possible."""
        hashed = self.key_of(tx, key)
        if self._guard_keys is None or not (key.is_constant() and is_constant_value(key.constant())):
            return hashed, self.items.get(hashed)
        entry = self._entries.get(hashed)
        tx.guard(self.source, "dict_lacks" if entry is None else "dict_has", key.constant())
        return hashed, entry

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        name = f" {self.source.name!r}" if self.source is not None else ""
        return f"{self.cls.__name__}{name} of {len(self._entries)}"

    def key_of(self, tx: Any, key: VariableTracker) -> Any:
        """The hash key of a tracker, TypeError if it is unhashable."""
        return tx.hash_key(key)

    def lookup(self, tx: Any, key: VariableTracker) -> VariableTracker | None:
        """The value under a key, looked at; None if there is none."""
        hashed, entry = self._entry(tx, key)
        if entry is None:
            return None
        value = realized(tx, entry[1])
        if value is not entry[1]:
            self._entries[hashed] = (entry[0], value)
        return value

    def store(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        """self[key] = value, keeping the key that is there."""
        self._store_hashed(tx, self.key_of(tx, key), key, value)

    def _store_hashed(self, tx: Any, hashed: Any, key: VariableTracker, value: VariableTracker) -> None:
        tx.output.effects.mutate(self)
        old = self.items.get(hashed)
        self.structure += old is None
        self.items[hashed] = (old[0] if old is not None else key, value)

    def keys(self) -> list[VariableTracker]:
        return [key for key, _ in self.items.values()]

    def values(self, tx: Any) -> list[VariableTracker]:
        result = []
        for hashed, (key, value) in list(self.items.items()):
            looked_at = realized(tx, value)
            if looked_at is not value:
                self.items[hashed] = (key, looked_at)
            result.append(looked_at)
        return result

    def is_constant(self) -> bool:
        return False

    def as_argument(self, tx: Any) -> Any:
        values = self.values(tx)
        return {key.constant(): value.as_argument(tx) for key, value in zip(self.keys(), values)}

    def contains_tensor(self) -> bool:
        return any(value.contains_tensor() for _, value in self._entries.values())

    def hash_key(self) -> Any:
        raise TypeError(f"unhashable type: {self.cls.__name__!r}")

    def truth(self, tx: Any) -> bool:
        return bool(self.items)

    def length(self, tx: Any) -> VariableTracker:
        return ConstantVariable(len(self.items))

    def iterator(self, tx: Any) -> VariableTracker:
        return DictIteratorVariable(self, "keys")

    def getitem(self, tx: Any, key: VariableTracker) -> VariableTracker:
        value = self.lookup(tx, key)
        if value is not None:
            return value
        if self.cls is collections.Counter:
            return ConstantVariable(0)
        if self.default_factory is not None and not _is_none(self.default_factory):
            made = tx.call(self.default_factory, [], {})
            self.store(tx, key, made)
            return made
        tx.raise_value(KeyError, [key])

    def setitem(self, tx: Any, key: VariableTracker, value: VariableTracker) -> None:
        if self.cls is MappingProxyType:
            tx.raise_error(TypeError, "'mappingproxy' object does not support item assignment")
        self.store(tx, key, value)

    def delitem(self, tx: Any, key: VariableTracker) -> None:
        hashed = self.key_of(tx, key)
        if hashed not in self.items:
            tx.raise_value(KeyError, [key])
        tx.output.effects.mutate(self)
        self.structure += 1
        del self.items[hashed]

    def contains(self, tx: Any, item: VariableTracker) -> bool:
        return self._entry(tx, item)[1] is not None

    def compare(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if op not in ("==", "!=") or not isinstance(other, DictVariable):
            return None
        equal = self.items.keys() == other.items.keys()
        if equal:
            for key in self.keys():
                a, b = self.lookup(tx, key), other.lookup(tx, key)
                if a is None or b is None or not tx.same_or_equal(a, b):
                    equal = False
                    break
        if equal and self.cls is collections.OrderedDict is other.cls:
            equal = list(self.items) == list(other.items)
        return ConstantVariable(equal == (op == "=="))

    def binary(self, tx: Any, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op != "|" or not isinstance(other, DictVariable):
            return None
        first, second = (other, self) if reflected else (self, other)
        result = first.like(dict(first.items))
        for hashed, (key, value) in second.items.items():
            result.items[hashed] = (result.items.get(hashed, (key, None))[0], value)
        return result

    def inplace(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if op != "|":
            return None
        self._update(tx, other)
        return self

    def like(self, items: dict[Any, tuple[VariableTracker, VariableTracker]]) -> DictVariable:
        cls = dict if self.cls is MappingProxyType else self.cls
        return DictVariable(items, cls=cls, default_factory=self.default_factory)

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        written = tx.output.effects.attributes_of(self)
        if name in written:
            return tx.output.effects.load_attr(self, name)
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.default_factory or ConstantVariable(None)
        if name == "__class__":
            return tx.from_result(self.cls, "class")
        if name in self.methods:
            return BoundMethodVariable(self, name)
        return tx.class_getattr(self, self.cls, name)

    def setattr(self, tx: Any, name: str, value: VariableTracker) -> None:
        if self.cls is not collections.OrderedDict or self.source is not None:
            super().setattr(tx, name, value)
        tx.output.effects.store_attr(self, name, value)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = self.methods.get(name)
        if method is not None and not (name == "update" and self.cls is collections.Counter):
            return tx.checked_call(method, self, tx, *args, **kwargs)
        if self.cls is collections.Counter and (inlined := tx.class_lookup(self.cls, name)) is not None:
            return tx.call_class_attribute(self, self.cls, name, inlined, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    # -- methods
    def _get(self, tx: Any, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        value = self.lookup(tx, key)
        return value if value is not None else default or ConstantVariable(None)

    def _setdefault(self, tx: Any, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        hashed, entry = self._entry(tx, key)
        if entry is None:
            value = default or ConstantVariable(None)
            self._store_hashed(tx, hashed, key, value)
            return value
        value = realized(tx, entry[1])
        self._entries[hashed] = (entry[0], value)
        return value

    def _pop(self, tx: Any, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        hashed, entry = self._entry(tx, key)
        if entry is None:
            if default is None:
                tx.raise_value(KeyError, [key])
            return default
        value = realized(tx, entry[1])
        tx.output.effects.mutate(self)
        self.structure += 1
        del self.items[hashed]
        return value

    def _popitem(self, tx: Any, last: VariableTracker | None = None) -> VariableTracker:
        if not self.items:
            tx.raise_error(KeyError, "popitem(): dictionary is empty")
        hashed = list(self.items)[-1 if last is None or tx.truth(last) else 0]
        key, value = self.items[hashed]
        tx.output.effects.mutate(self)
        self.structure += 1
        del self.items[hashed]
        return TupleVariable([key, value])

    def _update(self, tx: Any, /, *others: VariableTracker, **named: VariableTracker) -> VariableTracker:
        for other in others:
            for key, value in pairs_of(tx, other):
                self.store(tx, key, value)
        for name, value in named.items():
            self.store(tx, ConstantVariable(name), value)
        return ConstantVariable(None)

    def _clear(self, tx: Any) -> VariableTracker:
        tx.output.effects.mutate(self)
        self.structure += 1
        self.items.clear()
        return ConstantVariable(None)

    def _copy(self, tx: Any) -> VariableTracker:
        return self.like(dict(self.items))

    def _keys(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "keys")

    def _values(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "values")

    def _items(self, tx: Any) -> VariableTracker:
        return DictViewVariable(self, "items")

    def _move_to_end(self, tx: Any, key: VariableTracker, last: VariableTracker | None = None) -> VariableTracker:
        hashed = self.key_of(tx, key)
        if hashed not in self.items:
            tx.raise_value(KeyError, [key])
        tx.output.effects.mutate(self)
        self.structure += 1
        entry = self.items.pop(hashed)
        if last is None or tx.truth(last):
            self.items[hashed] = entry
        else:
            rest = dict(self.items)
            self.items.clear()
            self.items[hashed] = entry
            self.items.update(rest)
        return ConstantVariable(None)

    methods: dict[str, Callable[..., VariableTracker]] = {
        "get": _get, "setdefault": _setdefault, "pop": _pop, "popitem": _popitem, "update": _update, "clear": _clear,
        "copy": _copy, "keys": _keys, "values": _values, "items": _items, "move_to_end": _move_to_end,
    }

    # -- generated code
    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is dict:
            cg.build_new(self, lambda: cg.emit.build_map(0), lambda: self.fill(cg))
        elif self.cls is collections.defaultdict:
            cg.build_new(
                self,
                lambda: cg.call_constant(self.cls, lambda: cg.push(self.default_factory or ConstantVariable(None))),
                lambda: self.fill(cg),
            )
        else:
            cg.build_new(
                self, lambda: cg.call_constant(self.cls, lambda: None, count=0),
                lambda: (self.fill(cg), cg.store_attributes(self)),
            )

    def fill(self, cg: Codegen) -> None:
        """With the empty dict on the stack, emits what puts the entries in (keeps the dict on the stack)."""
        for key, value in self.items.values():
            cg.emit.dup()
            cg.push(value)
            cg.emit.swap(2)
            cg.push(key)
            cg.emit.store_subscr()


class MappingProxyVariable(DictVariable):
    """A read-only view of a mapping made in the trace: its entries are the mapping's own."""

    def __init__(self, mapping: VariableTracker, content: DictVariable) -> None:
        super().__init__(content.items, cls=MappingProxyType)
        self.mapping = mapping

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.call_constant(MappingProxyType, lambda: cg.push(self.mapping)), lambda: None)


def _is_none(value: VariableTracker) -> bool:
    return value.is_constant() and value.constant() is None


def pairs_of(tx: Any, value: VariableTracker) -> Iterable[tuple[VariableTracker, VariableTracker]]:
    """The (key, value) pairs that dict(value) and update(value) see."""
    content = tx.dict_content(value)
    if content is not None:
        keys = content.keys()
        return list(zip(keys, content.values(tx)))
    if tx.has_attribute(value, "keys"):
        keys = list(tx.call_method(value, "keys", []).iterate(tx))
        return [(key, value.getitem(tx, key)) for key in keys]
    pairs = []
    for element in value.iterate(tx):
        pair = list(element.iterate(tx))
        if len(pair) != 2:
            tx.raise_error(ValueError, "dictionary update sequence element has the wrong length; 2 is required")
        pairs.append((pair[0], pair[1]))
    return pairs


class DictIteratorVariable(VariableTracker):
    """An iterator over a dict's keys, values or items."""

    has_identity = True
    _types = {"keys": type(iter({})), "values": type(iter({}.values())), "items": type(iter({}.items()))}

    def __init__(self, owner: DictVariable, what: str, backwards: bool = False) -> None:
        super().__init__()
        self.owner = owner
        self.what = what
        self.backwards = backwards
        self.rest = list(owner.items)[:: -1 if backwards else 1]
        self.size = len(self.rest)
        self.structure = owner.structure

    def python_type(self) -> type:
        return self._types[self.what]

    def iterator(self, tx: Any) -> VariableTracker:
        return self

    def truth(self, tx: Any) -> bool:
        return True

    def next(self, tx: Any) -> VariableTracker | None:
        if len(self.owner.items) != self.size:
            tx.raise_error(RuntimeError, "dictionary changed size during iteration")
        if self.owner.structure != self.structure:
            unsupported("unsupported_iteration", "a dict whose keys change while it is iterated")
        if not self.rest:
            return None
        tx.output.effects.advance(self)
        hashed = self.rest.pop(0)
        if hashed not in self.owner.items:
            unsupported("unsupported_iteration", "a dict whose keys change while it is iterated")
        key, value = self.owner.items[hashed]
        if self.what == "keys":
            return key
        looked_at = realized(tx, value)
        self.owner.items[hashed] = (key, looked_at)
        return looked_at if self.what == "values" else TupleVariable([key, looked_at])

    def reconstruct(self, cg: Codegen) -> None:
        unstarted = list(self.owner.items)[:: -1 if self.backwards else 1] == self.rest
        if unstarted and not self.backwards:
            view = DictViewVariable(self.owner, self.what)
            cg.build_new(self, lambda: cg.call_constant(iter, lambda: cg.push(view)), lambda: None)
            return
        if self.owner.structure != self.structure:
            unsupported("unsupported_iteration", "a dict whose keys change while it is iterated")
        view = DictViewVariable(self.owner, self.what)
        steps = ConstantVariable(self.size - len(self.rest))
        cg.build_new(
            self,
            lambda: cg.call_function(started_iterator, [view, steps, ConstantVariable(self.backwards)], {}),
            lambda: None,
        )


def started_iterator(view: Any, steps: int, backwards: bool) -> Any:
    """Generated code makes an iterator over a dict with this, from which `steps` elements have been taken."""
    iterator = reversed(view) if backwards else iter(view)
    for _ in range(steps):
        next(iterator)
    return iterator


class DictViewVariable(VariableTracker):
    """keys(), values() or items() of a dict."""

    _types = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}

    def __init__(self, owner: DictVariable, what: str) -> None:
        super().__init__()
        self.owner = owner
        self.what = what

    def python_type(self) -> type:
        return self._types[self.what]

    def length(self, tx: Any) -> VariableTracker:
        return ConstantVariable(len(self.owner.items))

    def truth(self, tx: Any) -> bool:
        return bool(self.owner.items)

    def contains_tensor(self) -> bool:
        return self.what != "keys" and self.owner.contains_tensor()

    def iterator(self, tx: Any) -> VariableTracker:
        return DictIteratorVariable(self.owner, self.what)

    def contains(self, tx: Any, item: VariableTracker) -> bool:
        if self.what == "keys":
            return self.owner.contains(tx, item)
        return super().contains(tx, item)

    def as_set(self, tx: Any) -> SetVariable:
        return SetVariable.of(tx, list(self.iterate(tx)))

    def binary(self, tx: Any, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if self.what == "values" or op not in ("&", "|", "-", "^"):
            return None
        mine, theirs = self.as_set(tx), SetVariable.of(tx, list(other.iterate(tx)))
        first, second = (theirs, mine) if reflected else (mine, theirs)
        return first.binary(tx, op, second, False)

    def compare(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if self.what == "values" or not isinstance(other, (DictViewVariable, SetVariable)):
            return None
        theirs = other.as_set(tx) if isinstance(other, DictViewVariable) else other
        return self.as_set(tx).compare(tx, op, theirs)

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        if name == "isdisjoint":
            return BoundMethodVariable(self.as_set(tx), name)
        if name == "mapping":
            return MappingProxyVariable(self.owner, self.owner)
        return super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.emit.call_prepare()
        cg.push(self.owner)
        cg.emit.load_attr(self.what)
        cg.emit.call(0)


# ---------------------------------------------------------------- sets
class SetVariable(VariableTracker):
    """A set or frozenset; `members` is hash key -> member."""

    has_identity = True

    def __init__(self, members: dict[Any, VariableTracker], source: Source | None = None, cls: type = set) -> None:
        super().__init__(source)
        self.members = members
        self.cls = cls

    @classmethod
    def of(cls, tx: Any, items: list[VariableTracker], python_class: type = set) -> SetVariable:
        members: dict[Any, VariableTracker] = {}
        for item in items:
            members.setdefault(tx.hash_key(item), item)
        return cls(members, cls=python_class)

    def python_type(self) -> type:
        return self.cls

    def is_constant(self) -> bool:
        return self.cls is frozenset and all(m.is_constant() for m in self.members.values())

    def constant(self) -> Any:
        return self.cls(m.constant() for m in self.members.values())

    def hash_key(self) -> Any:
        if self.cls is set:
            raise TypeError("unhashable type: 'set'")
        return frozenset(self.members)

    def contains_tensor(self) -> bool:
        return any(m.contains_tensor() for m in self.members.values())

    def truth(self, tx: Any) -> bool:
        return bool(self.members)

    def length(self, tx: Any) -> VariableTracker:
        return ConstantVariable(len(self.members))

    def ordered(self) -> list[VariableTracker]:
        """The members in the order in which the real set gives them."""
        if all(m.is_constant() for m in self.members.values()):
            by_value = {m.constant(): m for m in self.members.values()}
            return [by_value[value] for value in set(by_value)]
        if len(self.members) > 1:
            unsupported("unsupported_iteration", "the order of a set of objects")
        return list(self.members.values())

    def iterator(self, tx: Any) -> VariableTracker:
        return SetIteratorVariable(self)

    def contains(self, tx: Any, item: VariableTracker) -> bool:
        return tx.hash_key(item) in self.members

    _OPS: dict[str, Callable[[dict[Any, Any], dict[Any, Any]], dict[Any, Any]]] = {
        "|": lambda a, b: {**b, **a},
        "&": lambda a, b: {k: v for k, v in a.items() if k in b},
        "-": lambda a, b: {k: v for k, v in a.items() if k not in b},
        "^": lambda a, b: {**{k: v for k, v in a.items() if k not in b}, **{k: v for k, v in b.items() if k not in a}},
    }

    def binary(self, tx: Any, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if isinstance(other, DictViewVariable):
            other = other.as_set(tx)
        if op not in self._OPS or not isinstance(other, SetVariable):
            return None
        first, second = (other, self) if reflected else (self, other)
        return SetVariable(self._OPS[op](first.members, second.members), cls=first.cls)

    def inplace(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if self.cls is frozenset or op not in self._OPS or not isinstance(other, SetVariable):
            return None
        tx.output.effects.mutate(self)
        self.members = self._OPS[op](self.members, other.members)
        return self

    def compare(self, tx: Any, op: str, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(other, SetVariable):
            return None
        a, b = self.members.keys(), other.members.keys()
        results = {"==": a == b, "!=": a != b, "<=": a <= b, "<": a < b, ">=": a >= b, ">": a > b}
        return ConstantVariable(results[op])

    def getattr(self, tx: Any, name: str) -> VariableTracker:
        if name in self.methods:
            return BoundMethodVariable(self, name)
        return tx.class_getattr(self, self.cls, name)

    def call_method(
        self, tx: Any, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = self.methods.get(name)
        if method is None or (self.cls is frozenset and name in _SET_MUTATORS):
            return super().call_method(tx, name, args, kwargs)
        return tx.checked_call(method, self, tx, *args, **kwargs)

    def _add(self, tx: Any, item: VariableTracker) -> VariableTracker:
        new = SetVariable.of(tx, [item]).members
        tx.output.effects.mutate(self)
        self.members = {**new, **self.members} if next(iter(new)) in self.members else {**self.members, **new}
        return ConstantVariable(None)

    def _discard(self, tx: Any, item: VariableTracker) -> VariableTracker:
        tx.output.effects.mutate(self)
        self.members.pop(tx.hash_key(item), None)
        return ConstantVariable(None)

    def _remove(self, tx: Any, item: VariableTracker) -> VariableTracker:
        if not self.contains(tx, item):
            tx.raise_value(KeyError, [item])
        return self._discard(tx, item)

    def _pop(self, tx: Any) -> VariableTracker:
        if not self.members:
            tx.raise_error(KeyError, "pop from an empty set")
        item = self.ordered()[0]
        self._discard(tx, item)
        return item

    def _clear(self, tx: Any) -> VariableTracker:
        tx.output.effects.mutate(self)
        self.members = {}
        return ConstantVariable(None)

    def _copy(self, tx: Any) -> VariableTracker:
        return self if self.cls is frozenset else SetVariable(dict(self.members), cls=self.cls)

    def _update(self, tx: Any, *others: VariableTracker) -> VariableTracker:
        for other in others:
            new = members_of(tx, other)
            tx.output.effects.mutate(self)
            self.members = {**self.members, **{h: m for h, m in new.items() if h not in self.members}}
        return ConstantVariable(None)

    @staticmethod
    def _combine(op: str) -> Callable[..., VariableTracker]:
        def method(self: SetVariable, tx: Any, *others: VariableTracker) -> VariableTracker:
            result = dict(self.members)
            for other in others:
                result = self._OPS[op](result, members_of(tx, other))
            return SetVariable(result, cls=self.cls)

        return method

    @staticmethod
    def _test(op: str) -> Callable[..., VariableTracker]:
        def method(self: SetVariable, tx: Any, other: VariableTracker) -> VariableTracker:
            theirs = SetVariable.of(tx, list(other.iterate(tx)))
            if op == "disjoint":
                return ConstantVariable(self.members.keys().isdisjoint(theirs.members.keys()))
            result = self.compare(tx, op, theirs)
            assert result is not None
            return result

        return method

    @staticmethod
    def _combine_update(op: str) -> Callable[..., VariableTracker]:
        def method(self: SetVariable, tx: Any, *others: VariableTracker) -> VariableTracker:
            members = self.members
            for other in others:
                members = self._OPS[op](members, members_of(tx, other))
            tx.output.effects.mutate(self)
            self.members = members
            return ConstantVariable(None)

        return method

    methods: dict[str, Callable[..., VariableTracker]] = {
        "intersection_update": _combine_update("&"), "difference_update": _combine_update("-"),
        "symmetric_difference_update": _combine_update("^"),
        "add": _add, "discard": _discard, "remove": _remove, "pop": _pop, "clear": _clear, "copy": _copy,
        "update": _update, "union": _combine("|"), "intersection": _combine("&"), "difference": _combine("-"),
        "symmetric_difference": _combine("^"), "issubset": _test("<="), "issuperset": _test(">="),
        "isdisjoint": _test("disjoint"),
    }

    def reconstruct(self, cg: Codegen) -> None:
        members = list(self.members.values())
        if self.cls is frozenset:
            cg.call_constant(frozenset, lambda: cg.push(TupleVariable(members)))
        else:
            cg.build_new(self, lambda: cg.emit.build_set(0), lambda: self.fill(cg))

    def fill(self, cg: Codegen) -> None:
        """With the empty set on the stack, emits what puts the members in (keeps the set on the stack)."""
        if self.members:
            cg.push(TupleVariable(list(self.members.values())))
            cg.emit.emit("SET_UPDATE", 1)


class SetIteratorVariable(VariableTracker):
    """An iterator over a set."""

    has_identity = True

    def __init__(self, owner: SetVariable) -> None:
        super().__init__()
        self.owner = owner
        self.rest = owner.ordered()
        self.size = len(self.rest)

    def python_type(self) -> type:
        return type(iter(set()))

    def iterator(self, tx: Any) -> VariableTracker:
        return self

    def truth(self, tx: Any) -> bool:
        return True

    def next(self, tx: Any) -> VariableTracker | None:
        if len(self.owner.members) != self.size:
            tx.raise_error(RuntimeError, "Set changed size during iteration")
        if not self.rest:
            return None
        tx.output.effects.advance(self)
        return self.rest.pop(0)

    def reconstruct(self, cg: Codegen) -> None:
        if len(self.owner.members) != self.size:
            unsupported("unsupported_iteration", "a set whose size changes while it is iterated")
        # Over the members that are left: a set made of them would have an order of its own.
        cg.build_new(self, lambda: cg.call_constant(iter, lambda: cg.push(TupleVariable(self.rest))), lambda: None)


def members_of(tx: Any, items: VariableTracker) -> dict[Any, VariableTracker]:
    """The elements of an iterable by hash key; a dict or set knows the hashes of its keys already."""
    if isinstance(items, SetVariable):
        return dict(items.members)
    if isinstance(items, DictVariable):
        return {hashed: key for hashed, (key, _) in items.items.items()}
    return SetVariable.of(tx, list(items.iterate(tx))).members


_SET_MUTATORS = frozenset({
    "intersection_update", "difference_update", "symmetric_difference_update",
    "add", "discard", "remove", "pop", "clear", "update"})


# ---------------------------------------------------------------- wrapping
Entries = dict[Any, tuple[VariableTracker, VariableTracker]]


def lazy_entries(tx: Any, value: dict[Any, Any], source: Source) -> Entries:
    """The entries of a dict at `source`; its keys are guarded, its values not looked at."""
    return dict_at(tx, value, source, dict).items


def dict_at(
    tx: Any, value: dict[Any, Any], source: Source, cls: type, default_factory: VariableTracker | None = None
) -> DictVariable:
    """The tracker of a dict from outside; keys that are constants are guarded when they are needed."""
    # An OrderedDict has an order of its own, apart from its table's.
    base: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    if all(is_constant_value(key) for key in base.keys(value)):
        entries: Entries = {
            key: (ConstantVariable(key), LazyVariable(dict.__getitem__(value, key), DictItemSource(source, key)))
            for key in base.keys(value)
        }
        keys = tuple(entries)
        return DictVariable(entries, source, cls, default_factory, lambda: tx.guard(source, "dict_keys", keys))
    tx.guard(source, "len", dict.__len__(value))
    entries = {}
    for index, key in enumerate(base.keys(value)):
        key_source = DictKeySource(source, index)
        if is_constant_value(key):
            key_variable: VariableTracker = ConstantVariable(key)
            tx.guard(key_source, "const", key)
        else:
            # A key without a value of its own, such as a module or a function: only its identity is known.
            key_variable = realized(tx, tx.wrap_at(key, key_source))
            tx.guard(key_source, "is", key)
        item_source = DictItemSource(source, key)
        entries[tx.hash_key(key_variable)] = (key_variable, LazyVariable(dict.__getitem__(value, key), item_source))
    return DictVariable(entries, source, cls, default_factory)


@wraps_type(dict, collections.OrderedDict)
def _wrap_dict(tx: Any, value: dict[Any, Any], source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    return dict_at(tx, value, source, type(value))


@wraps_type(collections.defaultdict)
def _wrap_defaultdict(tx: Any, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "type_is", type(value))
    factory = realized(tx, tx.wrap_slot(source, collections.defaultdict, value, "default_factory"))
    return dict_at(tx, value, source, collections.defaultdict, factory)


@wraps_type(set, frozenset)
def _wrap_set(tx: Any, value: Any, source: Source) -> VariableTracker:
    if not all(is_constant_value(item) for item in value):
        unsupported("unsupported_value", f"{source.name}, a set of objects")
    tx.guard(source, "type_is", type(value))
    tx.guard(source, "set_items", frozenset(value))
    return SetVariable({item: ConstantVariable(item) for item in value}, source, type(value))


@wraps_if(lambda value: type(value) is MappingProxyType, rank=4)
def _wrap_proxy(tx: Any, value: Any, source: Source) -> VariableTracker:
    if not source.is_frozen:
        unsupported("unsupported_value", f"{source.name}, a mapping proxy")
    entries: dict[Any, tuple[VariableTracker, VariableTracker]] = {}
    for key, item in value.items():
        key_variable = tx.from_result(key, "key")
        entries[key_variable.hash_key()] = (key_variable, LazyVariable(item, FrozenSource(item, str(key))))
    return DictVariable(entries, source, MappingProxyType)


def is_sequence(value: VariableTracker) -> bool:
    return isinstance(value, SequenceVariable)
