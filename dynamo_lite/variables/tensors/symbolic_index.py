"""Indexing of tensors with integers that are symbols.

``x[n]`` and ``x[n] = y`` ask the number for its value, which would fix it; ``x.select(0, n)`` gives the same view and
takes a symbol.
Invariant: whether the index is within the dimension has been decided, so that the operator never raises.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...symbols.nodes import expression_of
from ...symbols.relations import compare
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..containers.sequences import TupleVariable
from ..numbers.symbolic_ints import SymbolicIntVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

_BASIC = (int, slice, type(None), type(...))  # indices that take at most one dimension, except for `...`


def select_symbolic(tx: Tracer, tensor: Any, key: VariableTracker) -> VariableTracker | None:
    """``tensor[key]`` where indices are symbols; None: none of them is, or torch has to handle all indices together."""
    selected = _selected(tx, tensor, key)
    if selected is None:
        return None
    view, rest = selected
    return view.getitem(tx, TupleVariable(rest)) if rest else view


def write_symbolic(tx: Tracer, tensor: Any, key: VariableTracker, value: VariableTracker) -> bool:
    """Does ``tensor[key] = value`` where indices are symbols, and returns whether it was done."""
    selected = _selected(tx, tensor, key)
    if selected is None:
        return False
    view, rest = selected
    view.setitem(tx, TupleVariable(rest) if rest else ConstantVariable(...), value)
    return True


def _selected(
    tx: Tracer, tensor: Any, key: VariableTracker
) -> tuple[VariableTracker, list[VariableTracker]] | None:
    """The part of ``tensor`` that the symbolic indices select, and the other indices, which apply to that part."""
    if tx.output.overrides.active():
        return None
    keys = [_index(realized(tx, k)) for k in (key.items if type(key) is TupleVariable else [key])]
    if not any(isinstance(k, SymbolicIntVariable) and not isinstance(k.expr, int) for k in keys):
        return None
    if not all(isinstance(k, (SymbolicIntVariable, ConstantVariable)) or k.python_type() is slice for k in keys):
        return None
    kinds = [k.python_type() for k in keys]
    if not all(kind in _BASIC for kind in kinds) or kinds.count(type(...)) > 1:
        return None
    dims = _dimensions(kinds, tensor.fake.dim())
    if dims is None:
        return None
    found: VariableTracker = tensor
    for k, dim in reversed([*zip(keys, dims)]):
        if isinstance(k, SymbolicIntVariable):
            if not _is_inside(tx, k, tensor.fake.shape[dim]):
                return None
            found = found.call_method(tx, "select", [ConstantVariable(dim), k], {})
    return found, [k for k in keys if not isinstance(k, SymbolicIntVariable)]


def _index(key: VariableTracker) -> VariableTracker:
    """An index, with a Python int in place of a NumPy int."""
    number = key.python_number
    return number if number is not None and number.python_type() is int else key


def _dimensions(kinds: list[type], ndim: int) -> list[int] | None:
    """For each index, the dimension that it applies to; None if there are too many indices."""
    taken = [kind in (int, slice) for kind in kinds]
    if sum(taken) > ndim:
        return None
    found, dim = [], 0
    for kind, takes in zip(kinds, taken):
        found.append(dim)
        dim += ndim - sum(taken) if kind is type(...) else takes
    return found


def _is_inside(tx: Tracer, index: SymbolicIntVariable, size: object) -> bool:
    env, length = tx.output.symbols.env, expression_of(size)
    negative = not env.decide(compare(">=", index.expr, 0))
    if negative:
        return env.decide(compare(">=", index.expr + length, 0))
    return env.decide(compare("<", index.expr, length))
