"""What is particular to the bytecode of CPython 3.14; see ``py311`` for what each name means."""

from __future__ import annotations

from dynamo_lite.bytecode.py311 import Sequence
from dynamo_lite.bytecode.py312 import directed
from dynamo_lite.bytecode.py313 import COMPARE_TO_BOOL, call, jump_if_false, make_function, suggestion

__all__ = ["COMPARE_TO_BOOL", "call", "directed", "jump_if_false", "make_function", "suggestion"]

COMPARE_SHIFT = 5
NULL_FIRST = False
LOOP_LANDING = 1  # END_FOR; the POP_ITER behind it is executed
LATE_RANGES = True
FAST_CELLS = True
METHOD_BIT = True
ITERATOR_SLOTS = 1
DROPPED_FLAGS = 0x4000000  # CO_HAS_DOCSTRING: the first constant is the docstring

SUM_COMPENSATES = True
CLOSE_RETURNS = True
LOCALS_ARE_ONE_DICT = False

READ_AS: dict[str, str] = {
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_SMALL_INT": "LOAD_CONST",
    "LOAD_COMMON_CONSTANT": "LOAD_CONST",
}
# A borrowed value may not be moved from the stack to a local, as breaks do.
WRITTEN_AS: dict[str, str] = {
    "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_SMALL_INT": "LOAD_CONST",
    "LOAD_COMMON_CONSTANT": "LOAD_CONST",
}
PARTS: dict[str, tuple[str, str]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
BINARY_READ_AS: dict[int, str] = {26: "BINARY_SUBSCR"}

LOAD_LOCAL = "LOAD_FAST_CHECK"
LOAD_CELL = "LOAD_FAST"
SUBSCRIPT: Sequence = [("BINARY_OP", 26)]


def call_spread(has_kwargs: bool) -> Sequence:
    # The place of the dict is never left out.
    sequence: Sequence = [("CALL_FUNCTION_EX", None)]
    return sequence if has_kwargs else [("PUSH_NULL", None), *sequence]
