"""What is particular to the bytecode of CPython 3.12; see ``py311`` for what each name means."""

from __future__ import annotations

from dynamo_lite.bytecode.py311 import Sequence, call_spread, make_function, suggestion

__all__ = ["call_spread", "make_function", "suggestion"]

COMPARE_SHIFT = 4
COMPARE_TO_BOOL = 0
NULL_FIRST = True
LOOP_LANDING = 1  # END_FOR
LATE_RANGES = False
FAST_CELLS = False
METHOD_BIT = True
ITERATOR_SLOTS = 1
DROPPED_FLAGS = 0

SUM_COMPENSATES = True
CLOSE_RETURNS = False
LOCALS_ARE_ONE_DICT = True

READ_AS: dict[str, str] = {"LOAD_FAST_CHECK": "LOAD_FAST"}
WRITTEN_AS: dict[str, str] = {}
PARTS: dict[str, tuple[str, str]] = {"RETURN_CONST": ("LOAD_CONST", "RETURN_VALUE")}
BINARY_READ_AS: dict[int, str] = {}

# Unlike LOAD_FAST, it looks whether there is a value.
LOAD_LOCAL = "LOAD_FAST_CHECK"
LOAD_CELL = "LOAD_CLOSURE"
SUBSCRIPT: Sequence = [("BINARY_SUBSCR", None)]


def directed(name: str, backward: bool) -> str | None:
    if name in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"):
        if not backward:
            return "JUMP_FORWARD"
        return "JUMP_BACKWARD" if name == "JUMP_FORWARD" else name
    return None if backward else name


def jump_if_false() -> Sequence:
    return [("POP_JUMP_IF_FALSE", None)]


def call(npos: int, kwnames: tuple[str, ...]) -> Sequence:
    sequence: Sequence = [("CALL", npos + len(kwnames))]
    if kwnames:
        sequence.insert(0, ("KW_NAMES", kwnames))
    return sequence
