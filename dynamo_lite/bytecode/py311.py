"""What is particular to the bytecode of CPython 3.11; every other module of the package asks this one.

A module for another version has the same names. Invariant: nothing outside the modules named for a version knows an
opcode number, the size of an inline cache, or which direction a jump opcode goes.
"""

from __future__ import annotations

import dis
import opcode as _opcode

OPMAP: dict[str, int] = dict(dis.opmap)
OPNAME: list[str] = list(dis.opname)
HAVE_ARGUMENT: int = dis.HAVE_ARGUMENT
EXTENDED_ARG: int = dis.EXTENDED_ARG
CACHE: int = OPMAP["CACHE"]
CACHE_ENTRIES: list[int] = list(_opcode._inline_cache_entries)  # type: ignore[attr-defined]

BINARY_OPS: list[str] = [symbol for _, symbol in _opcode._nb_ops]  # type: ignore[attr-defined]
COMPARE_OPS: list[str] = list(dis.cmp_op)

# How an opcode's argument is to be read.
HAS_CONST = frozenset(dis.hasconst)
HAS_NAME = frozenset(dis.hasname)
HAS_LOCAL = frozenset(dis.haslocal)
HAS_FREE = frozenset(dis.hasfree)
HAS_JUMP = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)

_BACKWARD_NAMES = (
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
    "POP_JUMP_BACKWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE",
)
BACKWARD_JUMPS = frozenset(OPMAP[name] for name in _BACKWARD_NAMES)

# The other direction of a jump. What is missing from a table (FOR_ITER, JUMP_IF_*_OR_POP, SEND) only goes forward.
TO_BACKWARD: dict[int, int] = {
    OPMAP["JUMP_FORWARD"]: OPMAP["JUMP_BACKWARD"],
    **{
        OPMAP[f"POP_JUMP_FORWARD_IF_{test}"]: OPMAP[f"POP_JUMP_BACKWARD_IF_{test}"]
        for test in ("FALSE", "TRUE", "NONE", "NOT_NONE")
    },
}
TO_FORWARD: dict[int, int] = {backward: forward for forward, backward in TO_BACKWARD.items()}
TO_FORWARD[OPMAP["JUMP_BACKWARD_NO_INTERRUPT"]] = OPMAP["JUMP_FORWARD"]

UNCONDITIONAL_JUMPS = frozenset(OPMAP[n] for n in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"))
# After these, control never goes to the next instruction.
NO_FALL_THROUGH = UNCONDITIONAL_JUMPS | {OPMAP[n] for n in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE")}

# These never raise, even where a handler covers them.
NEVER_RAISE = frozenset(
    OPMAP[n]
    for n in (
        "COPY",
        "JUMP_BACKWARD",
        "JUMP_FORWARD",
        "LOAD_CLOSURE",
        "LOAD_CONST",
        "NOP",
        "POP_EXCEPT",
        "POP_TOP",
        "PUSH_EXC_INFO",
        "PUSH_NULL",
        "STORE_DEREF",
        "STORE_FAST",
        "SWAP",
    )
)

# Set up the frame; they belong to the code object, not to the program.
PROLOGUE_OPS = frozenset(OPMAP[n] for n in ("MAKE_CELL", "COPY_FREE_VARS", "RETURN_GENERATOR", "RESUME"))

LOCAL_READS = frozenset({OPMAP["LOAD_FAST"]})
LOCAL_WRITES = frozenset({OPMAP["STORE_FAST"]})
LOCAL_DELETES = frozenset({OPMAP["DELETE_FAST"]})

JUMP = OPMAP["JUMP_FORWARD"]
JUMP_IF_FALSE = OPMAP["POP_JUMP_FORWARD_IF_FALSE"]


def call_sequence(npos: int, kwnames: tuple[str, ...]) -> list[tuple[int, object]]:
    """Opcodes and arguments that call a callable with NULL below it; `kwnames` name the last of the arguments."""
    total = npos + len(kwnames)
    ops: list[tuple[int, object]] = [(OPMAP["PRECALL"], total), (OPMAP["CALL"], total)]
    if kwnames:
        ops.insert(0, (OPMAP["KW_NAMES"], kwnames))
    return ops


def is_interned_in_code(text: str) -> bool:
    """Whether a code object interns a text among its constants (Objects/codeobject.c, all_name_chars)."""
    return text.isascii() and text.replace("_", "a").isalnum()
