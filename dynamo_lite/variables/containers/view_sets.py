"""Set operations of views of a dict's keys and items: ``keys() & other``, ``isdisjoint``, comparisons.

Invariant: the resulting sets have the same tables as those that Objects/dictobject.c makes.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import VariableTracker
from ..constant import COMPARE, ConstantVariable
from .sets import SetVariable, set_of

if TYPE_CHECKING:
    from ..protocols import Tracer


def view_binary(tx: Tracer, view: Any, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
    """The binary operators of views (Objects/dictobject.c, dictviews_as_number)."""
    if view.what == "values" or op not in _CHANGES and op != "&":
        return None
    if op == "&":
        return _intersection(tx, view, other)
    first, second = (other, view) if reflected else (view, other)
    if op == "^" and isinstance(other, type(view)):
        if view.what == other.what == "items":
            return _items_of_one(tx, first, second)
    of_dict = not reflected and view.what == "keys" and tx.iteration.plain_dict(view.owner) is not None
    made = set_of(tx, view.owner if of_dict else first)  # for a dict itself, as its size affects the table
    made.call_method(tx, _CHANGES[op], [second], {})
    return made


_CHANGES = {"|": "update", "-": "difference_update", "^": "symmetric_difference_update"}


def _intersection(tx: Tracer, view: Any, other: VariableTracker) -> VariableTracker:
    """``view & other`` (_PyDictView_Intersect): looks up each element of the other in the dict's state at that time."""
    size = len(view.owner.items)
    if isinstance(other, SetVariable) and other.cls is set and other.holder is None and size <= len(other.members):
        return other.call_method(tx, "intersection", [view], {})
    given = other
    if isinstance(other, type(view)) and len(other.owner.items) > size:
        view, given = other, view
    found: dict[Any, VariableTracker] = {}
    for item in tx.iteration.steps(tx.iteration.get_iter(given)):
        if view.contains(tx, item):
            found.setdefault(tx.operators.hash_key(item, "set element"), item)
    return SetVariable(found)


def _items_of_one(tx: Tracer, first: Any, second: Any) -> SetVariable:
    """``^`` of two item views (dictitems_xor): the items that only the second dict has, then those that only the first
    has."""
    found: dict[Any, VariableTracker] = {}
    for some, others in ((second, first), (first, second)):
        for item in tx.iteration.steps(tx.iteration.get_iter(some)):
            if not others.contains(tx, item):
                found.setdefault(tx.operators.hash_key(item, "set element"), item)
    return SetVariable(found)


def is_disjoint(tx: Tracer, view: Any, other: VariableTracker) -> VariableTracker:
    """``view.isdisjoint(other)`` (dictviews_isdisjoint)."""
    given = other
    if isinstance(other, (type(view), SetVariable)):
        if tx.operators.as_index(other.length(tx)) > len(view.owner.items):
            view, given = other, view
    return ConstantVariable(
        not any(view.contains(tx, item) for item in tx.iteration.steps(tx.iteration.get_iter(given)))
    )


def view_compare(tx: Tracer, view: Any, op: str, other: VariableTracker) -> VariableTracker | None:
    """Comparisons of views (dictview_richcompare)."""
    if view.what == "values" or not isinstance(other, (type(view), SetVariable)):
        return None
    sizes = len(view.owner.items), tx.operators.as_index(other.length(tx))
    if op in ("==", "!="):
        return ConstantVariable((sizes[0] == sizes[1] and _all_in(tx, view, other)) == (op == "=="))
    if not COMPARE[op](*sizes):
        return ConstantVariable(False)
    first, second = (view, other) if op in ("<", "<=") else (other, view)
    return ConstantVariable(_all_in(tx, first, second))


def _all_in(tx: Tracer, items: VariableTracker, container: VariableTracker) -> bool:
    return all(container.contains(tx, item) for item in tx.iteration.steps(tx.iteration.get_iter(items)))
