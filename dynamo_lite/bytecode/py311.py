"""What is particular to the bytecode of CPython 3.11, and to what its builtins do; other modules ask this one.

Invariant: the modules for other versions have the same names. What the `bytecode` package knows of a version is not
said again.
"""

from __future__ import annotations

from typing import Any

# Opcodes and their symbolic arguments, as ``Emitter`` takes them.
Sequence = list[tuple[str, Any]]

# The argument of COMPARE_OP is the operator's number above this many bits of other use.
COMPARE_SHIFT = 0
# The bit of its argument that makes a truth of the result.
COMPARE_TO_BOOL = 0
# A callable's NULL lies below it (and not above).
NULL_FIRST = True
# How many instructions at its target an exhausted FOR_ITER passes over; it has done what they say.
LOOP_LANDING = 0
# Whether an exception that leaves a Python function counts, in its caller, for the code unit before the calling
# instruction; what covers an instruction must then begin one unit earlier.
LATE_RANGES = False
# Whether LOAD_FAST loads cells, too.
FAST_CELLS = False
# LOAD_ATTR with its lowest bit set loads a method.
METHOD_BIT = False
# Slots of the stack that an iterator takes while a loop runs.
ITERATOR_SLOTS = 1
# Flags that say something of the constants' order, which a new code object does not keep: that the first is the
# docstring. Where there is no such flag, a text in that place always is.
DROPPED_FLAGS = 0

# Whether sum() adds floats with more digits than a float has.
SUM_COMPENSATES = False
# Whether a generator's close() gives what the generator returns.
CLOSE_RETURNS = False
# Whether locals() gives one dict for the whole of a frame, filled anew each time (until PEP 667).
LOCALS_ARE_ONE_DICT = True

# Opcodes that decoding shows under the name of a general one.
READ_AS: dict[str, str] = {}
# Opcodes in whose place another one is written.
WRITTEN_AS: dict[str, str] = {}
# Opcodes that decoding takes apart.
PARTS: dict[str, tuple[str, str]] = {}
# Operators of BINARY_OP that decoding shows under a name of their own.
BINARY_READ_AS: dict[int, str] = {}

LOAD_LOCAL = "LOAD_FAST"
LOAD_CELL = "LOAD_CLOSURE"
SUBSCRIPT: Sequence = [("BINARY_SUBSCR", None)]


def suggestion(candidates: list[str], name: str) -> str | None:
    """What the error about an unexpected keyword argument proposes instead."""
    return None


_TESTS = ("FALSE", "TRUE", "NONE", "NOT_NONE")
_TO_BACKWARD = {
    "JUMP_FORWARD": "JUMP_BACKWARD",
    **{f"POP_JUMP_FORWARD_IF_{test}": f"POP_JUMP_BACKWARD_IF_{test}" for test in _TESTS},
}
_TO_FORWARD = {backward: forward for forward, backward in _TO_BACKWARD.items()}
_TO_FORWARD["JUMP_BACKWARD_NO_INTERRUPT"] = "JUMP_FORWARD"
_ONLY_FORWARD = ("FOR_ITER", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "SEND")


def directed(name: str, backward: bool) -> str | None:
    """The opcode of a jump in a direction; None if there is none."""
    if backward:
        return None if name in _ONLY_FORWARD else _TO_BACKWARD.get(name, name)
    return _TO_FORWARD.get(name, name)


def jump_if_false() -> Sequence:
    """What stands before the jump, and the jump, its label to be filled in."""
    return [("POP_JUMP_FORWARD_IF_FALSE", None)]


def call(npos: int, kwnames: tuple[str, ...]) -> Sequence:
    """Calls a callable with its NULL; `kwnames` name the last of the arguments."""
    total = npos + len(kwnames)
    sequence: Sequence = [("PRECALL", total), ("CALL", total)]
    if kwnames:
        sequence.insert(0, ("KW_NAMES", kwnames))
    return sequence


def call_spread(has_kwargs: bool) -> Sequence:
    """Calls a callable with its NULL, a tuple and perhaps a dict."""
    return [("CALL_FUNCTION_EX", int(has_kwargs))]


def make_function(closure: bool) -> Sequence:
    """[closure tuple if asked, code] -> [function]"""
    return [("MAKE_FUNCTION", 8 if closure else 0)]
