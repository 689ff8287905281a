"""A code object as a tuple of instructions: arguments resolved, jumps as indices, handlers attached.

``decode(code)`` is made once per code object. Inline caches and ``EXTENDED_ARG`` are folded away and the adaptive
interpreter's rewriting is undone, so the same source always decodes to the same instructions. Invariant: everything
that refers to an instruction (jump, handler, resume point) is an *index* into ``Decoded.instructions``; byte offsets
are kept for messages alone.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any, NamedTuple

from dynamo_lite.bytecode.code_map import CodeMap
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.tables import parse_exception_table

Positions = dis.Positions


class Handler(NamedTuple):
    """Where an exception goes: cut the stack to `depth`, push lasti if asked, push the exception, go on at `target`."""

    target: int
    depth: int
    lasti: bool


class Instruction:
    """One instruction; treat it as immutable, it is shared by all who decode the code object.

    ``argval`` is the argument as a reader means it: a constant, a name, an operator's symbol ("+", "+=", "<"), the
    tuple of keyword names, for a jump the index of its target; where there is nothing to resolve, ``arg``.
    ``push_null`` tells whether a LOAD_GLOBAL also pushes NULL.
    """

    __slots__ = (
        "arg",
        "argval",
        "handler",
        "index",
        "offset",
        "opcode",
        "opname",
        "positions",
        "push_null",
        "target",
    )

    opcode: int
    opname: str
    arg: int | None
    argval: Any
    index: int
    offset: int
    target: int | None
    positions: Positions
    handler: Handler | None
    push_null: bool

    def __init__(
        self,
        opcode: int,
        opname: str,
        arg: int | None,
        argval: Any,
        index: int,
        offset: int,
        positions: Positions,
        handler: Handler | None = None,
        target: int | None = None,
        push_null: bool = False,
    ) -> None:
        self.opcode = opcode
        self.opname = opname
        self.arg = arg
        self.argval = argval
        self.index = index
        self.offset = offset
        self.positions = positions
        self.handler = handler
        self.target = target
        self.push_null = push_null

    @property
    def lineno(self) -> int | None:
        return self.positions[0]

    def __repr__(self) -> str:
        text = f"{self.index} {self.opname}"
        if self.arg is not None:
            text += f" {self.argval!r}"
        if self.handler is not None:
            text += f" [on error: {self.handler.target}]"
        return f"<{text}>"


class Decoded:
    """The instructions of one code object, which it does not keep alive."""

    __slots__ = ("first_index", "index_at", "instructions", "localsplus")

    def __init__(
        self,
        instructions: tuple[Instruction, ...],
        index_at: dict[int, int],
        localsplus: tuple[str, ...],
        first_index: int,
    ) -> None:
        self.instructions = instructions
        # byte offset (of the opcode, or of its first EXTENDED_ARG) -> index
        self.index_at = index_at
        # names of the frame's slots in order: locals, cells that are no locals, free variables
        self.localsplus = localsplus
        # the first instruction after the frame's set-up (MAKE_CELL, COPY_FREE_VARS, RESUME)
        self.first_index = first_index

    def __len__(self) -> int:
        return len(self.instructions)


_cache: CodeMap[Decoded] = CodeMap()


def decode(code: CodeType) -> Decoded:
    """The instructions of a code object, decoded once."""
    decoded = _cache.get(code)
    if decoded is None:
        decoded = _decode(code)
        _cache.set(code, decoded)
    return decoded


def localsplus_names(code: CodeType) -> tuple[str, ...]:
    """Names of the frame's slots in order; an argument or local that is also a cell has one slot."""
    varnames = code.co_varnames
    if not code.co_cellvars and not code.co_freevars:
        return varnames
    return varnames + tuple(name for name in code.co_cellvars if name not in varnames) + code.co_freevars


def _decode(code: CodeType) -> Decoded:
    opnames, caches, has_jump = facts.OPNAME, facts.CACHE_ENTRIES, facts.HAS_JUMP
    extended_arg, have_argument = facts.EXTENDED_ARG, facts.HAVE_ARGUMENT
    resolvers = _RESOLVERS
    raw = code.co_code  # the unspecialized instructions, caches zeroed
    positions = list(code.co_positions())
    localsplus = localsplus_names(code)
    consts, names = code.co_consts, code.co_names
    make_positions = Positions._make
    previous_raw, previous_positions = None, None

    instructions: list[Instruction] = []
    index_at: dict[int, int] = {}
    jumps: list[tuple[Instruction, int]] = []
    size, offset, extended, start = len(raw), 0, 0, 0
    while offset < size:
        opcode = raw[offset]
        arg: int | None = raw[offset + 1] | extended
        if opcode == extended_arg:
            extended = arg << 8  # type: ignore[operator]
            offset += 2
            continue
        extended = 0
        index = len(instructions)
        index_at[start] = index
        if start != offset:
            index_at[offset] = index
        raw_positions = positions[offset >> 1]
        if raw_positions != previous_raw:
            previous_raw, previous_positions = raw_positions, make_positions(raw_positions)
        if opcode < have_argument:
            instruction = Instruction(opcode, opnames[opcode], None, None, index, offset, previous_positions)  # type: ignore[arg-type]
        else:
            resolve = resolvers.get(opcode)
            argval = arg if resolve is None else resolve(arg, consts, names, localsplus)
            instruction = Instruction(opcode, opnames[opcode], arg, argval, index, offset, previous_positions)  # type: ignore[arg-type]
        instructions.append(instruction)
        offset += 2 + 2 * caches[opcode]
        if opcode in has_jump:
            backward = opcode in facts.BACKWARD_JUMPS
            jumps.append((instruction, offset - 2 * arg if backward else offset + 2 * arg))  # type: ignore[operator]
        elif opcode == _LOAD_GLOBAL:
            instruction.push_null = bool(arg & 1)  # type: ignore[operator]
        start = offset

    for instruction, target in jumps:
        instruction.target = instruction.argval = index_at[target]
    for entry in parse_exception_table(code.co_exceptiontable):
        handler = Handler(index_at[entry.target * 2], entry.depth, entry.lasti)
        index = index_at[entry.start * 2]
        end = entry.end * 2
        while index < len(instructions) and instructions[index].offset < end:
            instructions[index].handler = handler
            index += 1

    first = 0
    for instruction in instructions:
        if instruction.opcode not in facts.PROLOGUE_OPS and instruction.opname != "POP_TOP":
            break
        if instruction.opname == "RESUME":
            first = instruction.index + 1
            break
    return Decoded(tuple(instructions), index_at, localsplus, first)


_LOAD_GLOBAL = facts.OPMAP["LOAD_GLOBAL"]
_RESOLVERS: dict[int, Any] = {}
for _op in facts.HAS_CONST:
    _RESOLVERS[_op] = lambda arg, consts, names, slots: consts[arg]
for _op in facts.HAS_NAME:
    _RESOLVERS[_op] = lambda arg, consts, names, slots: names[arg]
for _op in facts.HAS_LOCAL | facts.HAS_FREE:
    _RESOLVERS[_op] = lambda arg, consts, names, slots: slots[arg]
_RESOLVERS[_LOAD_GLOBAL] = lambda arg, consts, names, slots: names[arg >> 1]
_RESOLVERS[facts.OPMAP["KW_NAMES"]] = lambda arg, consts, names, slots: consts[arg]
_RESOLVERS[facts.OPMAP["COMPARE_OP"]] = lambda arg, consts, names, slots: facts.COMPARE_OPS[arg]
_RESOLVERS[facts.OPMAP["BINARY_OP"]] = lambda arg, consts, names, slots: facts.BINARY_OPS[arg]
