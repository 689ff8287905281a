"""Sizes and counters that a dict or a set is asked for: ``n in {3, 4}``, ``table.get(n)``.

A number is its own key, and who asks for the key fixes the number. Where the dict has few keys, and all are plain, it
is compared with each that is a number instead: a call with any number that is none of them has the same answer.

Invariant: what is said to be absent is so in every call that the trace is for; each comparison is decided, and so
guarded, and so are the keys.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..numbers.symbolic_ints import SymbolicIntVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

_MOST = 16  # keys that are compared: each is a guard
_NUMBERS = (int, bool, float)
_NO_NUMBERS = (str, bytes, type(None))  # equal to none


def lacks_number(tx: Tracer, key: VariableTracker, keys: Callable[[], Collection[Any]]) -> bool:
    """Whether a key is a symbolic number that is none of the hash keys; False also where that is not asked so.

    Args:
        keys: gives the hash keys, and guards that there are no others.
    """
    number = realized(tx, key)
    if not isinstance(number, SymbolicIntVariable) or isinstance(number.expr, int) or number.is_running():
        return False
    known = keys()
    if len(known) > _MOST or not all(type(k) in _NUMBERS or type(k) in _NO_NUMBERS for k in known):
        return False
    met = [int(k) for k in known if type(k) in (int, bool) or type(k) is float and k.is_integer()]
    return not any(tx.truth(tx.operators.compare("==", number, ConstantVariable(k))) for k in met)
