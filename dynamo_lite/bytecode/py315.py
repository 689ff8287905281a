"""What is particular to the bytecode of CPython 3.15; see ``py311`` for what each name means.

An iterator has two slots on the stack, of which the second may hold a bare number, where the first is a list or tuple
itself. Code that is left and entered again has NULL there and the iterator that ``iter()`` makes, as for other values.
"""

from __future__ import annotations

from dynamo_lite.bytecode.py312 import directed
from dynamo_lite.bytecode.py313 import COMPARE_TO_BOOL, call, jump_if_false, make_function, suggestion
from dynamo_lite.bytecode.py314 import (
    BINARY_READ_AS,
    CLOSE_RETURNS,
    COMPARE_SHIFT,
    DROPPED_FLAGS,
    FAST_CELLS,
    LATE_RANGES,
    LOAD_CELL,
    LOAD_LOCAL,
    LOCALS_ARE_ONE_DICT,
    LOOP_LANDING,
    METHOD_BIT,
    NULL_FIRST,
    PARTS,
    READ_AS,
    SUBSCRIPT,
    SUM_COMPENSATES,
    WRITTEN_AS,
    call_spread,
)

__all__ = [
    "BINARY_READ_AS", "CLOSE_RETURNS", "COMPARE_SHIFT", "COMPARE_TO_BOOL", "DROPPED_FLAGS", "FAST_CELLS",
    "LATE_RANGES", "LOAD_CELL", "LOAD_LOCAL", "LOCALS_ARE_ONE_DICT", "LOOP_LANDING", "METHOD_BIT", "NULL_FIRST",
    "PARTS", "READ_AS", "SUBSCRIPT", "SUM_COMPENSATES", "WRITTEN_AS", "call", "call_spread", "directed",
    "jump_if_false", "make_function", "suggestion",
]  # fmt: skip

ITERATOR_SLOTS = 2
