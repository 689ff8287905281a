"""Dicts, ordered dicts, default dicts and their views.

Keys are compared as in Python, through ``hash_key()``: constants by value, objects by identity. Values may be lazy; the
keys of a dict from outside are guarded together. Invariant: `items` holds the entries that the real dict would have at
this point of the program, in its order.
"""
from __future__ import annotations

import collections
import types
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...bytecode.emit import in_order
from ...guards.source import Source
from ...polyfills import setdefault_ordered, update_ordered
from ..base import (
    VariableTracker,
    realized,
    type_name,
    unsupported,
)
from ..bound import BoundMethodVariable
from ..constant import BINARY_METHODS, COMPARE_METHODS, ConstantVariable, is_constant_value
from ..identity import as_key
from .dict_changes import DictChanges, Entries, Entry, Step
from .dict_views import CLEAR_MOVES, DictIteratorVariable, DictViewVariable
from .pairs import given_pairs
from .sequences import TupleVariable
from .symbolic_keys import lacks_number
from .user_keys import UserKey, check_rebuildable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer


class DictVariable(VariableTracker):
    """A dict or one of its standard subclasses.

    Args:
        items: hash key -> (key, value).
        cls: dict, OrderedDict, defaultdict, Counter or MappingProxyType.
        default_factory: the factory of a defaultdict.
        guard_keys: function that guards all keys of a dict from outside. Until it has been called, only the keys in
            `_decided` are guarded, each by itself.
    """

    has_identity = True

    def __init__(
        self,
        items: Entries,
        source: Source | None = None,
        cls: type = dict,
        default_factory: VariableTracker | None = None,
        guard_keys: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(source)
        self._entries = items
        self.structure = 0  # number of insertions and removals of keys
        self.moves = 0  # the same for iterators of an OrderedDict, which treat clear() in another way up to Python 3.12
        ordered = issubclass(cls, collections.OrderedDict)
        self._changes = DictChanges(items if source is not None else {}, ordered)
        self._guard_keys = guard_keys
        self._decided: set[Any] = set()  # keys that were guarded one by one, before all keys are guarded
        self.cls = cls
        self.default_factory = default_factory

    @property
    def items(self) -> Entries:
        """All entries. Reading them guards the set of keys and their order."""
        if self._guard_keys is not None:
            guard, self._guard_keys = self._guard_keys, None
            guard()
        return self._entries

    def changes(self) -> list[Step] | None:
        """The steps that give the real dict the entries of this one; None if all of its entries have to be replaced."""
        return self._changes.steps(self._entries)

    def is_as_before(self, key: Any) -> bool:
        """Whether the trace has left the real dict's entry under a constant key unchanged."""
        entry = self._entries.get(key)
        return self._changes.before(key) is (entry and entry[1])

    def _entry(self, tx: Tracer, key: VariableTracker) -> tuple[Any, Entry | None]:
        """The hash key and the entry of a key; guards this key alone where that is possible."""
        hashed = self.key_of(tx, key)
        constant = key.is_constant() and is_constant_value(key.constant()) and not isinstance(hashed, UserKey)
        if self._guard_keys is None or not constant:
            found = self.items.get(hashed)
            # The hash key that the dict holds, so that later lookups don't call the user's __eq__ again.
            return hashed.met if found is not None and isinstance(hashed, UserKey) else hashed, found
        entry = self._entries.get(hashed)
        if hashed not in self._decided:
            self._decided.add(hashed)
            assert self.source is not None
            tx.guard(self.source, "dict_lacks" if entry is None else "dict_has", key.constant())
        return hashed, entry

    def _look_at(self, tx: Tracer, hashed: Any) -> VariableTracker:
        """The value under a key that is in the dict, realized."""
        key, value = self._entries[hashed]
        found = realized(tx, value)
        if found is not value:
            self._changes.look_at(hashed, value, found)
            self._entries[hashed] = (key, found)
        return found

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        name = f" {self.source.name!r}" if self.source is not None else ""
        return f"{self.cls.__name__}{name} of {len(self._entries)}"

    def key_of(self, tx: Tracer, key: VariableTracker) -> Any:
        """The hash key of a tracker; raises TypeError in the program if it is unhashable."""
        return tx.operators.hash_key(as_key(tx, key, self._entries))

    def lookup(self, tx: Tracer, key: VariableTracker) -> VariableTracker | None:
        """The value under a key, realized; None if there is none."""
        if lacks_number(tx, key, lambda: self.items):
            return None
        hashed, entry = self._entry(tx, key)
        return None if entry is None else self._look_at(tx, hashed)

    def store(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        """self[key] = value; an equal key that is in the dict is kept."""
        hashed, old = self._entry(tx, key)
        self._store_at(tx, hashed, old, key, value)

    def _store_at(
        self, tx: Tracer, hashed: Any, old: Entry | None, key: VariableTracker, value: VariableTracker
    ) -> None:
        tx.output.effects.mutate(self, old[1:] if old is not None else ())
        if old is None:
            self._moved()
            if self._changes.had(hashed):
                _ = self.items  # deleted and stored again: its new place depends on the other keys
            if self.source is not None:
                self._changes.store(hashed, key)
        self._entries[hashed] = (old[0] if old is not None else key, value)

    def _moved(self) -> None:
        self.structure += 1
        self.moves += 1

    def _remove(self, tx: Tracer, hashed: Any, last: bool = False) -> tuple[VariableTracker, VariableTracker]:
        """Removes an entry, with `last` as popitem does."""
        tx.output.effects.mutate(self, self._entries[hashed][1:])
        self._moved()
        if self.source is not None:
            self._changes.remove(hashed, self._entries[hashed][0], last)
        return self._entries.pop(hashed)

    def proxy(self) -> VariableTracker:
        """types.MappingProxyType(value)."""
        return MappingProxyVariable(self, self)

    def keys(self) -> list[VariableTracker]:
        return [key for key, _ in self.items.values()]

    def values(self, tx: Tracer) -> list[VariableTracker]:
        return [self._look_at(tx, hashed) for hashed in list(self.items)]

    def is_constant(self) -> bool:
        return False

    def as_argument(self, tx: Tracer) -> Any:
        values = self.values(tx)
        return {key.constant(): value.as_argument(tx) for key, value in zip(self.keys(), values)}

    def contains_tensor(self) -> bool:
        return any(value.contains_tensor() for _, value in self._entries.values())

    def hash_key(self) -> Any:
        raise TypeError(f"unhashable type: {type_name(self.cls)!r}")

    def initialize(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        if self.cls is collections.defaultdict:
            unsupported("unsupported_method", "__init__ of a subclass of defaultdict")
        DictVariable._update(self, tx, *args, **kwargs)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def to_plain(self, tx: Tracer) -> Any:
        if self.is_constant():
            return self.constant()
        plain = {tx.values.as_plain(k): tx.values.as_plain(v) for k, v in zip(self.keys(), self.values(tx))}
        if self.cls is collections.defaultdict:
            factory = None if self.default_factory is None else tx.values.as_plain(self.default_factory)
            return collections.defaultdict(factory, plain)
        return plain if self.cls is dict else self.cls(plain)

    def length(self, tx: Tracer) -> VariableTracker:
        return ConstantVariable(len(self.items))

    def iterator(self, tx: Tracer) -> VariableTracker:
        return DictIteratorVariable(self, "keys")

    def reversed(self, tx: Tracer) -> VariableTracker:
        return DictIteratorVariable(self, "keys", backwards=True)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        value = self.lookup(tx, key)
        if value is not None:
            return value
        if self.cls is collections.Counter:
            return ConstantVariable(0)
        if self.default_factory is not None and not self.default_factory.is_none():
            made = tx.call(self.default_factory, [], {})
            self.store(tx, key, made)
            return made
        tx.errors.raise_value(KeyError, [key])

    def setitem(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        if self.cls is MappingProxyType:
            tx.raise_error(TypeError, "'mappingproxy' object does not support item assignment")
        self.store(tx, key, value)

    def delitem(self, tx: Tracer, key: VariableTracker) -> None:
        if self.cls is MappingProxyType:
            tx.raise_error(TypeError, "'mappingproxy' object does not support item deletion")
        if self.cls is collections.Counter and not self.contains(tx, key):
            return
        hashed, entry = self._entry(tx, key)
        if entry is None:
            tx.errors.raise_value(KeyError, [key])
        self._remove(tx, hashed)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        return not lacks_number(tx, item, lambda: self.items) and self._entry(tx, item)[1] is not None

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if self.cls is collections.Counter:
            return self._in_python(tx, COMPARE_METHODS[op], other)
        if op not in ("==", "!=") or not isinstance(other, DictVariable):
            return None
        equal = len(self.items) == len(other.items) and self._holds_equal(tx, other)
        if equal and self.cls is collections.OrderedDict is other.cls:
            equal = list(self.items) == list(other.items)
        return ConstantVariable(equal == (op == "=="))

    def _holds_equal(self, tx: Tracer, other: DictVariable) -> bool:
        """Whether each entry has an equal one in another dict (Objects/dictobject.c, dict_equal)."""
        structure = self.structure
        for hashed in list(self.items):
            if self.structure != structure:
                unsupported("unsupported_iteration", "a dict whose keys change while it is compared")
            mine = self._look_at(tx, hashed)
            theirs = other._look_at(tx, hashed) if hashed in other.items else None
            if theirs is None or not tx.operators.same_or_equal(mine, theirs):
                return False
        return True

    def _in_python(self, tx: Tracer, name: str, *args: VariableTracker) -> VariableTracker | None:
        """The result of a method of Counter that is written in Python; None for NotImplemented."""
        method = tx.classes.lookup(self.cls, name)
        if not isinstance(method, types.FunctionType):
            return None
        result: VariableTracker = tx.classes.call_attribute(self, self.cls, name, method, list(args), {})
        return None if result.is_not_implemented() else result

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        names = {"-": "__neg__", "+": "__pos__"}
        found = self._in_python(tx, names[op]) if self.cls is collections.Counter and op in names else None
        return found if found is not None else super().unary(tx, op)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if self.cls is collections.Counter:
            return self._in_python(tx, BINARY_METHODS[op][reflected], other)
        if op != "|" or not isinstance(other, DictVariable) or isinstance(other, ProxyVariable):
            return None
        first, second = (other, self) if reflected else (self, other)
        result = (first if first.cls is self.cls else self).made_of(tx, first)
        content = result.content or result
        assert isinstance(content, DictVariable)
        DictVariable._update(content, tx, second.holder or second)
        return result

    def made_of(self, tx: Tracer, given: DictVariable) -> VariableTracker:
        """A new mapping with the entries of `given`, of the class that methods in C use for a new mapping derived from
        this one: an OrderedDict or defaultdict calls its own class; for any other dict the result is a plain dict
        (Objects/odictobject.c, odict_or; Modules/_collectionsmodule.c, new_defdict)."""
        holder = self.holder
        if holder is None or self.cls not in (collections.OrderedDict, collections.defaultdict):
            factory = self.default_factory if self.cls is collections.defaultdict else None
            cls = self.cls if self.cls in (collections.OrderedDict, collections.defaultdict) else dict
            return DictVariable(dict(given.items), cls=cls, default_factory=factory)
        arguments = [given.holder or given]
        if self.cls is collections.defaultdict:
            arguments.insert(0, tx.getattr(holder, "default_factory"))
        return tx.call(tx.values.from_result(holder.python_type(), "class"), arguments, {})

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if self.cls is collections.Counter:
            return self._in_python(tx, "__i" + BINARY_METHODS[op][0][2:], other)
        if op != "|" or self.cls is MappingProxyType:
            return None
        DictVariable._update(self, tx, other)
        return self

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        written = tx.output.effects.attributes_of(self)
        if name in written:
            return tx.output.effects.load_attr(self, name)
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.default_factory or ConstantVariable(None)
        if name == "__class__":
            return tx.values.from_result(self.cls, "class")
        if name in self.methods and hasattr(self.cls, name):
            return BoundMethodVariable(self, name)
        return tx.classes.builtin_attribute(self, self.cls, name)

    def setattr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        if self.cls is not collections.OrderedDict or self.source is not None:
            super().setattr(tx, name, value)
        tx.output.effects.store_attr(self, name, value)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        method = self.methods.get(name) if hasattr(self.cls, name) else None
        if method is not None and not (name == "update" and self.cls is collections.Counter):
            return tx.checked_call(method, self, tx, *args, **kwargs)
        if self.cls is collections.Counter and (inlined := tx.classes.lookup(self.cls, name)) is not None:
            return tx.classes.call_attribute(self, self.cls, name, inlined, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    # -- methods
    def _get(self, tx: Tracer, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        value = self.lookup(tx, key)
        return value if value is not None else default or ConstantVariable(None)

    def _derived_ordered(self) -> VariableTracker | None:
        """The object of a class derived from OrderedDict whose entries these are: there, methods that are written in C
        ask for entries, and store them, by the methods that the class defines."""
        return self.holder if self.cls is collections.OrderedDict else None

    def _setdefault(self, tx: Tracer, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        derived = self._derived_ordered()
        if derived is not None:
            given = [derived, key, default or ConstantVariable(None)]
            return tx.call(tx.values.library_function(setdefault_ordered), given, {})
        hashed, entry = self._entry(tx, key)
        if entry is None:
            value = default or ConstantVariable(None)
            self._store_at(tx, hashed, None, key, value)
            return value
        return self._look_at(tx, hashed)

    def _pop(self, tx: Tracer, key: VariableTracker, default: VariableTracker | None = None) -> VariableTracker:
        # An empty dict does not hash the key (Objects/dictobject.c, dict_pop).
        hashed, entry = self._entry(tx, key) if self.items or self.cls is not dict else (None, None)
        if entry is None:
            if default is None:
                tx.errors.raise_value(KeyError, [key])
            return default
        value = self._look_at(tx, hashed)
        self._remove(tx, hashed)
        return value

    def _popitem(self, tx: Tracer, last: VariableTracker | None = None) -> VariableTracker:
        if last is not None and self.cls is not collections.OrderedDict:
            unsupported("unsupported_method", f"{self.cls.__name__}.popitem() with an argument")
        if not self.items:
            ordered = self.cls is collections.OrderedDict
            tx.raise_error(KeyError, "dictionary is empty" if ordered else "popitem(): dictionary is empty")
        hashed = list(self.items)[-1 if last is None or tx.truth(last) else 0]
        return TupleVariable(list(self._remove(tx, hashed, last=True)))

    def _update(self, tx: Tracer, /, *others: VariableTracker, **named: VariableTracker) -> VariableTracker:
        """Stores each entry when it is taken, so that the code that yields the entries observes it
        (Objects/dictobject.c, dict_update)."""
        if len(others) > 1:
            tx.raise_error(TypeError, f"update expected at most 1 argument, got {len(others)}")
        for other in others:
            direct = tx.operators.dict_content(other)
            if self.cls is collections.OrderedDict and (direct is None or self.holder is not None):
                tx.call(tx.values.library_function(update_ordered), [self.holder or self, *others], {})
            elif direct is not None:
                self._merge(tx, direct)
            else:
                for key, value in given_pairs(tx, other):
                    self.store(tx, key, value)
        for name, value in named.items():
            (self._derived_ordered() or self).setitem(tx, ConstantVariable(name), value)
        return ConstantVariable(None)

    def _merge(self, tx: Tracer, other: DictVariable) -> None:
        """Stores the entries of another dict without hashing its keys again."""
        if other is self:
            return
        other.values(tx)
        size = len(other.items)
        for hashed, (key, value) in list(other.items.items()):
            if isinstance(hashed, UserKey):
                self._store_at(tx, hashed, self.items.get(hashed), key, value)
            else:
                self.store(tx, key, value)
            if len(other.items) != size:
                tx.raise_error(RuntimeError, "dict mutated during update")

    def _clear(self, tx: Tracer) -> VariableTracker:
        tx.output.effects.mutate(self)
        self.structure += 1
        self.moves += CLEAR_MOVES
        self._changes.clear()
        self.items.clear()
        return ConstantVariable(None)

    def _copy(self, tx: Tracer) -> VariableTracker:
        derived = self._derived_ordered()
        if derived is None:
            return self.made_of(tx, self)
        # Objects/odictobject.c, odict_copy
        made = tx.call(tx.values.from_result(derived.python_type(), "class"), [], {})
        for key in list(self.keys()):
            made.setitem(tx, key, derived.getitem(tx, key))
        return made

    def _keys(self, tx: Tracer) -> VariableTracker:
        return DictViewVariable(self, "keys")

    def _values(self, tx: Tracer) -> VariableTracker:
        return DictViewVariable(self, "values")

    def _items(self, tx: Tracer) -> VariableTracker:
        return DictViewVariable(self, "items")

    def _move_to_end(self, tx: Tracer, key: VariableTracker, last: VariableTracker | None = None) -> VariableTracker:
        hashed = self.key_of(tx, key)
        if hashed not in self.items:
            tx.errors.raise_value(KeyError, [key])
        entry = self._remove(tx, hashed)
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
                in_order(lambda: self.fill(cg), lambda: cg.store_attributes(self)),
            )

    def fill(self, cg: Codegen) -> None:
        """Emits code that stores the entries in the empty dict on top of the stack, and leaves it there."""
        check_rebuildable(self.items, "a dict")
        for key, value in self.items.values():
            cg.emit.dup()
            cg.push(value)
            cg.emit.swap(2)
            cg.push(key)
            cg.emit.store_subscr()


class ProxyVariable(DictVariable):
    """A read-only view of a mapping (Objects/descrobject.c, mappingproxy_methods)."""

    def held(self) -> VariableTracker:
        """The mapping behind the view, or an equal one, for reading."""
        raise NotImplementedError

    methods = {**DictVariable.methods, "copy": lambda self, tx: tx.call_method(self.held(), "copy", [])}

    def to_plain(self, tx: Tracer) -> Any:
        return MappingProxyType(tx.values.as_plain(self.held()))

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op != "|":
            return None
        mine, other = self.held(), other.held() if isinstance(other, ProxyVariable) else other
        return tx.operators.binary(op, *((other, mine) if reflected else (mine, other)))


class OuterProxyVariable(ProxyVariable):
    """A view from outside, of a dict or an OrderedDict (its class is `behind`) that the trace can't reach."""

    def __init__(self, items: Entries, source: Source, behind: type) -> None:
        super().__init__(items, source, MappingProxyType)
        self.behind = behind

    def held(self) -> VariableTracker:
        return DictVariable(dict(self.items), cls=self.behind)


class MappingProxyVariable(ProxyVariable):
    """A view that was made in the trace: it shares its entries with the mapping."""

    def __init__(self, mapping: VariableTracker, behind: DictVariable) -> None:
        super().__init__(behind.items, cls=MappingProxyType)
        self.mapping = mapping
        self.behind = behind

    def iterator(self, tx: Tracer) -> VariableTracker:
        return self.behind.iterator(tx)

    methods = {
        **ProxyVariable.methods,
        "keys": lambda self, tx: DictViewVariable(self.behind, "keys"),
        "values": lambda self, tx: DictViewVariable(self.behind, "values"),
        "items": lambda self, tx: DictViewVariable(self.behind, "items"),
    }

    def held(self) -> VariableTracker:
        return self.mapping

    def reconstruct(self, cg: Codegen) -> None:
        cg.build_new(self, lambda: cg.call_constant(MappingProxyType, lambda: cg.push(self.mapping)), lambda: None)
