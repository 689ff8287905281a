"""What is particular to the bytecode of CPython 3.13; see ``py311`` for what each name means."""

from __future__ import annotations

from dynamo_lite.bytecode.py311 import Sequence, call_spread
from dynamo_lite.bytecode.py312 import directed

try:
    from _suggestions import _generate_suggestions as suggestion
except ImportError:  # under another version, where tests look at what is written here
    from dynamo_lite.bytecode.py311 import suggestion

__all__ = ["call_spread", "directed", "suggestion"]

COMPARE_SHIFT = 5
COMPARE_TO_BOOL = 16
NULL_FIRST = False
LOOP_LANDING = 2  # END_FOR, POP_TOP
LATE_RANGES = True
FAST_CELLS = True
METHOD_BIT = True
ITERATOR_SLOTS = 1
DROPPED_FLAGS = 0

SUM_COMPENSATES = True
CLOSE_RETURNS = True
LOCALS_ARE_ONE_DICT = False

READ_AS: dict[str, str] = {"LOAD_FAST_CHECK": "LOAD_FAST"}
WRITTEN_AS: dict[str, str] = {}
PARTS: dict[str, tuple[str, str]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "RETURN_CONST": ("LOAD_CONST", "RETURN_VALUE"),
}
BINARY_READ_AS: dict[int, str] = {}

LOAD_LOCAL = "LOAD_FAST_CHECK"
LOAD_CELL = "LOAD_FAST"
SUBSCRIPT: Sequence = [("BINARY_SUBSCR", None)]


def jump_if_false() -> Sequence:
    # The jump takes True and False only.
    return [("TO_BOOL", None), ("POP_JUMP_IF_FALSE", None)]


def call(npos: int, kwnames: tuple[str, ...]) -> Sequence:
    if kwnames:
        return [("LOAD_CONST", kwnames), ("CALL_KW", npos + len(kwnames))]
    return [("CALL", npos)]


def make_function(closure: bool) -> Sequence:
    sequence: Sequence = [("MAKE_FUNCTION", None)]
    if closure:
        sequence.append(("SET_FUNCTION_ATTRIBUTE", 8))
    return sequence
