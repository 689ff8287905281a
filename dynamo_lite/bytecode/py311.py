"""Properties of the bytecode and builtins of CPython 3.11 that differ between versions of Python.

Invariant: the modules for other versions have the same names. Knowledge that the `bytecode` package
has of a version is not repeated here.
"""

from __future__ import annotations

from typing import Any

# Opcodes and their symbolic arguments, as ``Emitter`` takes them.
Sequence = list[tuple[str, Any]]

# Number of low bits of COMPARE_OP's argument that have another use; the operator's number is above them.
COMPARE_SHIFT = 0
# The bit of COMPARE_OP's argument that converts the result to a bool.
COMPARE_TO_BOOL = 0
# A callable's NULL lies below it (and not above).
NULL_FIRST = True
# Number of instructions at its target that an exhausted FOR_ITER skips; it has done their work itself.
LOOP_LANDING = 0
# Whether an exception that leaves a Python function is attributed, in its caller, to the code unit before the calling
# instruction; the range of a handler must then begin one unit earlier.
LATE_RANGES = False
# Whether LOAD_FAST loads cells, too.
FAST_CELLS = False
# LOAD_ATTR with its lowest bit set loads a method.
METHOD_BIT = False
# Slots of the stack that an iterator takes while a loop runs.
ITERATOR_SLOTS = 1
# Code flags about the order of the constants, which a new code object does not keep: the first one is the docstring.
# In versions without such a flag, a string in that place always is the docstring.
DROPPED_FLAGS = 0

# Whether sum() of floats uses compensated summation.
SUM_COMPENSATES = False
# Whether a generator's close() returns the generator's return value.
CLOSE_RETURNS = False
# Whether locals() gives one dict for the whole of a frame, filled anew each time (until PEP 667).
LOCALS_ARE_ONE_DICT = True

# Opcodes that decoding shows under the name of a general one.
READ_AS: dict[str, str] = {}
# Opcodes that are replaced by another one when code is written.
WRITTEN_AS: dict[str, str] = {}
# Fused opcodes that decoding splits in two.
PARTS: dict[str, tuple[str, str]] = {}
# Operators of BINARY_OP that decoding shows under a name of their own.
BINARY_READ_AS: dict[int, str] = {}

LOAD_LOCAL = "LOAD_FAST"
LOAD_CELL = "LOAD_CLOSURE"
SUBSCRIPT: Sequence = [("BINARY_SUBSCR", None)]


def suggestion(candidates: list[str], name: str) -> str | None:
    """The name that the error about an unexpected keyword argument proposes instead."""
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
