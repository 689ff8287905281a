"""Roles of instructions: their effects, described independently of the Python version.

A role is a bit of ``Instruction.roles``; code that asks "does it write a local" tests a role instead of an opcode.
Invariant: only ``bytecode/`` and ``interpreter/`` know opcodes by name. Opcode names that a version lacks are harmless
in the table, so one table serves all versions.
"""

from __future__ import annotations

(
    READS_LOCAL,
    WRITES_LOCAL,
    DELETES_LOCAL,
    TOUCHES_CELL,
    NEVER_RAISES,  # even where a handler covers it
    JUMPS_ALWAYS,
    NO_FALL_THROUGH,  # control never goes to the next instruction
    SETS_FRAME_UP,  # belongs to the code object, not to the program
    PREFIX,  # runs as one with the next: state of the interpreter that a CALL uses up, the truth that a jump asks for
    DROPS,  # throws the top of the stack away
    MOVES,  # constants, locals and slots of the stack: neither computes nor branches
    STORES_NAME,  # the top of the stack, under a name
    LOOP_HEAD,
    LOADS_METHOD,
    RETURNS,
    RERAISES,
    BEGINS_LOOP,  # replaces the top of the stack with an iterator
    HALF_MADE,  # its result is incomplete until the next instruction has run: a function without its closure
) = (1 << bit for bit in range(18))
ANY_VARIABLE = READS_LOCAL | WRITES_LOCAL | DELETES_LOCAL | TOUCHES_CELL

_TABLE: dict[int, str] = {
    READS_LOCAL: "LOAD_FAST LOAD_FAST_AND_CLEAR",
    WRITES_LOCAL: "STORE_FAST",
    DELETES_LOCAL: "DELETE_FAST LOAD_FAST_AND_CLEAR",
    TOUCHES_CELL: "MAKE_CELL LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF",
    NEVER_RAISES: "COPY JUMP_BACKWARD JUMP_FORWARD LOAD_CLOSURE LOAD_CONST LOAD_FAST_AND_CLEAR NOP NOT_TAKEN POP_EXCEPT"
    " POP_TOP POP_ITER PUSH_EXC_INFO PUSH_NULL STORE_DEREF STORE_FAST SWAP",
    JUMPS_ALWAYS: "JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT",
    NO_FALL_THROUGH: "JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT RETURN_VALUE RAISE_VARARGS RERAISE"
    " INTERPRETER_EXIT",
    SETS_FRAME_UP: "MAKE_CELL COPY_FREE_VARS RETURN_GENERATOR RESUME",
    PREFIX: "KW_NAMES PRECALL TO_BOOL",
    DROPS: "POP_TOP",
    MOVES: "COPY LOAD_CONST LOAD_FAST NOP NOT_TAKEN POP_EXCEPT POP_TOP SWAP",
    STORES_NAME: "STORE_FAST STORE_DEREF STORE_GLOBAL STORE_NAME STORE_ATTR",
    LOOP_HEAD: "FOR_ITER",
    LOADS_METHOD: "LOAD_METHOD",
    RETURNS: "RETURN_VALUE",
    RERAISES: "RERAISE",
    BEGINS_LOOP: "GET_ITER",
}

ROLES: dict[str, int] = {}
for _role, _names in _TABLE.items():
    for _name in _names.split():
        ROLES[_name] = ROLES.get(_name, 0) | _role
