"""Lookups of symbolic integers in a dict or a set: ``n in {3, 4}``, ``table.get(n)``.

The hash key of a number is its value, so reading the hash key specializes a symbolic number. Where the dict has few
keys, all of them plain, the number is compared with each numeric key instead: then every other number that is none of
them gives the same result.

Invariant: a number that is reported absent is absent in every call that the guards admit; the result of each comparison
is guarded, and so are the keys.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..numbers.symbolic_ints import SymbolicIntVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

_MOST = 16  # keys in the container; the comparison with each number among them is a guard
_NUMBERS = (int, bool, float)
_NO_NUMBERS = (str, bytes, type(None))  # types whose values equal no number


def lacks_number(tx: Tracer, key: VariableTracker, keys: Callable[[], Collection[Any]]) -> bool:
    """Whether a key is a symbolic number that is none of the hash keys; False also where this comparison doesn't apply.

    Args:
        keys: function that returns the hash keys and guards that there are no others.
    """
    number = realized(tx, key)
    if not isinstance(number, SymbolicIntVariable) or isinstance(number.expr, int) or number.is_running():
        return False
    known = keys()
    if len(known) > _MOST or not all(type(k) in _NUMBERS or type(k) in _NO_NUMBERS for k in known):
        return False
    met = [int(k) for k in known if type(k) in (int, bool) or type(k) is float and k.is_integer()]
    return not any(tx.truth(tx.operators.compare("==", number, ConstantVariable(k))) for k in met)
