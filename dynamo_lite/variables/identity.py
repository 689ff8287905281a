"""``id(x)`` as a value.

Invariant: an id stays symbolic as long as it is only compared with other ids or used as a key among ids. The result
then depends on the object's place in the program, and the next call may have another object there. Wherever the number
itself may matter (it is compared or combined with numbers, printed, or a key of a dict from outside), the object is
guarded by identity, and the id is a constant.
"""
from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..exc import Unsupported
from ..guards.source import ConstSource, WeakrefSource
from .base import VariableTracker, unsupported
from .constant import ConstantVariable, is_constant_value, is_unique
from .containers.sequences import TupleVariable

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer


class IdentityVariable(VariableTracker):
    """The number that ``id(owner)`` gives: unique among the objects of the trace, otherwise unknown."""

    def __init__(self, owner: VariableTracker) -> None:
        super().__init__()
        self.owner = owner

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"id of {self.owner.describe()}"

    def hash_key(self) -> Any:
        return _Identity(self.owner)

    def guard_hash(self, tx: Tracer) -> None:
        tx.output.ids_are_keys = True
        source, real = self.owner.source, self.owner.real
        if source is None or (self.owner.is_constant() and real is None):
            return
        # A tuple has a tracker for each place where the trace found it.
        first = tx.output.effects.tracker_of(real) if real is not None else None
        if first is not None and first.source is not None and first.source != source:
            tx.guard(source, "tensor_same", first.source)
            source = first.source
        tx.output.guards.distinct([source])

    def truth(self, tx: Tracer) -> bool:
        return True

    def same_object(self, other: VariableTracker) -> bool | None:
        return self is other or None

    def number(self, tx: Tracer) -> ConstantVariable:
        """The number itself; the object is guarded by identity through a weak reference, which does not keep it
        alive."""
        owner, value = self.owner, self.owner.value
        if owner.source is None or value is None or not type(value).__weakrefoffset__:
            unsupported("unsupported_operator", f"the number that is the {self.describe()}")
        reference = ConstSource(weakref.ref(value), f"a weak reference to {owner.source.name}")
        tx.guard(owner.source, "tensor_same", WeakrefSource(reference))
        return ConstantVariable(id(value))  # not `number_of`, as the id may still be symbolic elsewhere

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if isinstance(other, IdentityVariable) and op in ("==", "!="):
            return ConstantVariable(tx.operators.is_same(self.owner, other.owner) == (op == "=="))
        if isinstance(other, IdentityVariable):
            other = other.number(tx)
        if not issubclass(other.python_type(), (int, float)):
            return None
        return self.number(tx).compare(tx, op, other)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if isinstance(other, IdentityVariable):
            other = other.number(tx)
        return self.number(tx).binary(tx, op, other, reflected)

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        return self.number(tx).unary(tx, op)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return self.number(tx).getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_constant(id, lambda: cg.push(self.owner))


class _Identity:
    """A dict key that stands for an object by identity."""

    __slots__ = ("owner",)

    def __init__(self, owner: VariableTracker) -> None:
        self.owner = owner

    def _key(self) -> tuple[Any, ...]:
        owner = self.owner
        real = owner.real
        if real is not None and owner.source is not None:
            return ("real", id(real))
        if _is_open(owner):
            return ("open", id(owner))
        if owner.is_constant() and is_constant_value(owner.constant()):
            value = owner.constant()
            # Other values may exist as several equal objects, and one object of this call may be two in the next.
            where = None if owner.source is None else owner.source.key
            return (type(value), value) if is_unique(value) else ("at", id(value), where)
        return (id(owner),)

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._key() == other._key()


def _is_open(owner: VariableTracker) -> bool:
    """Whether the value may change from call to call, so that its number must not be read."""
    if isinstance(owner, TupleVariable):
        return any(_is_open(item) for item in owner.items)
    return owner.is_symbolic


def as_key(tx: Tracer, key: VariableTracker, keys: Iterable[Any]) -> VariableTracker:
    """A key for a lookup in a dict or set with the hash keys `keys`: symbolic ids in it become numbers where a hash key
    has a number in that place."""
    if not tx.output.ids_are_keys and not _has_id(key):
        return key
    try:
        hashed = key.hash_key()
    except (TypeError, Unsupported):
        return key  # the dict or set raises the error
    met = [k for k in keys if _meet(tx, hashed, k)]
    if not met:
        return key
    if not _has_id(key) or any(map(_has_identity, met)):
        unsupported("unsupported_operator", "a number as a key among ids")
    return _numbered(tx, key)


def check_together(tx: Tracer, some: Iterable[Any], others: Iterable[Any]) -> None:
    """Breaks the graph where keys would be compared of which some are ids and others numbers."""
    if tx.output.ids_are_keys and any(_meet(tx, a, b) for a in some for b in others):
        unsupported("unsupported_operator", "numbers among ids, in a set")


def _has_id(key: VariableTracker) -> bool:
    if isinstance(key, TupleVariable):
        return any(map(_has_id, key.items))
    return isinstance(key, IdentityVariable)


def _numbered(tx: Tracer, key: VariableTracker) -> VariableTracker:
    if isinstance(key, IdentityVariable):
        return key.number(tx)
    if isinstance(key, TupleVariable) and _has_id(key):
        return tx.values.new_sequence(key.cls, [_numbered(tx, item) for item in key.items])
    return key


def _has_identity(hashed: Any) -> bool:
    return isinstance(hashed, _Identity) or type(hashed) is tuple and any(map(_has_identity, hashed))


def _meet(tx: Tracer, a: Any, b: Any) -> bool:
    """Whether one of two hash keys has an id where the other has a number, or both have ids of values that may or may
    not be one object in each call."""
    if type(a) is tuple and type(b) is tuple and len(a) == len(b):
        return any(_meet(tx, x, y) for x, y in zip(a, b))
    if isinstance(a, _Identity) and isinstance(b, _Identity) and a != b:
        # Equal numbers or texts may or may not be one object.
        if a.owner.python_type() is not b.owner.python_type():
            return False
        return a.owner.is_symbolic or b.owner.is_symbolic or _may_be_one(a.owner, b.owner)
    return (isinstance(a, _Identity) and _is_number(tx, b)) or (isinstance(b, _Identity) and _is_number(tx, a))


def _may_be_one(a: VariableTracker, b: VariableTracker) -> bool:
    """Whether two constants are equal and so may be one object; NaNs count as equal."""
    if not (a.is_constant() and b.is_constant()):
        return False
    one, other = a.constant(), b.constant()
    return one == other or one != one and other != other


def _is_number(tx: Tracer, hashed: Any) -> bool:
    """Whether a hash key is a number that may be an id and is not known to be the id of a guarded object."""
    return type(hashed) in (int, float) and hashed >= _LEAST_ID and hashed not in tx.output.id_numbers


_LEAST_ID = 4096  # an id is an address, and no object lies in the first page


def number_of(tx: Tracer, value: Any) -> ConstantVariable:
    """The id of an object that is guarded, or the same in all calls, as a number; no other object of the trace has
    it."""
    tx.output.id_numbers.add(id(value))
    return ConstantVariable(id(value))
