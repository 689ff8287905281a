"""A code object as a tuple of instructions: arguments resolved, jumps as indices, handlers attached.

``decode(code)`` is made once per code object. Inline caches and ``EXTENDED_ARG`` are folded away and the adaptive
interpreter's rewriting is undone, so the same source always decodes to the same instructions. Opcodes that are another
one's special form, or two in one, are shown as what they do: LOAD_FAST_CHECK as LOAD_FAST, RETURN_CONST as LOAD_CONST
and RETURN_VALUE, a LOAD_ATTR that loads a method as LOAD_METHOD, a COMPARE_OP that gives a truth as COMPARE_OP and
TO_BOOL. Invariant: everything that refers to an instruction
(jump, handler, resume point) is an *index* into ``Decoded.instructions``; byte offsets are kept for messages alone.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from dynamo_lite.bytecode import library, roles
from dynamo_lite.bytecode.code_map import CodeMap
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.hidden import name_hidden, own_slots
from dynamo_lite.bytecode.library import OPMAP

Positions = dis.Positions


class Handler(NamedTuple):
    """An exception handler: cuts the stack to `depth`, pushes lasti if asked, then the exception; goes to `target`."""

    target: int
    depth: int
    lasti: bool


class Instruction:
    """One instruction; treat it as immutable, it is shared by all who decode the code object.

    ``argval`` is the argument as a reader means it: a constant, a name, an operator's symbol ("+", "+=", "<"), the
    tuple of keyword names, for a jump the index of its target; where there is nothing to resolve, ``arg``.
    ``push_null`` tells whether a LOAD_GLOBAL also pushes NULL. ``roles`` are bits of ``bytecode.roles``. ``opname`` may
    be a more general name than that of ``opcode``, which is the one to emit.
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
        "roles",
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
    roles: int

    def __init__(
        self, opcode: int, opname: str, roles: int, arg: int | None, argval: Any, index: int, offset: int,
        positions: Positions,
    ) -> None:  # fmt: skip
        self.opcode = opcode
        self.opname = opname
        self.roles = roles
        self.arg = arg
        self.argval = argval
        self.index = index
        self.offset = offset
        self.positions = positions
        self.handler = None
        self.target = None
        self.push_null = False

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

    __slots__ = ("first_index", "index_at", "instructions", "locals", "localsplus")

    def __init__(
        self,
        instructions: tuple[Instruction, ...],
        index_at: dict[int, int],
        localsplus: tuple[str, ...],
        locals: tuple[str, ...],
        first_index: int,
    ) -> None:
        self.instructions = instructions
        # byte offset (of the opcode, or of its first EXTENDED_ARG) -> index
        self.index_at = index_at
        # names of the frame's slots in order: locals, cells that are no locals, free variables; then those that
        # comprehensions share with a cell
        self.localsplus = localsplus
        # of these, the ones that are no cells or free variables
        self.locals = locals
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
    """Names of the frame's slots in order; an argument or local that is also a cell has one slot, a comprehension's
    variable that is named like a free variable a name of its own."""
    varnames = code.co_varnames
    if not code.co_cellvars and not code.co_freevars:
        return varnames
    cells = tuple(name for name in code.co_cellvars if name not in varnames)
    return own_slots(varnames, code.co_freevars) + cells + code.co_freevars


def docstring(code: CodeType) -> str | None:
    """The docstring of a function with this code."""
    if facts.DROPPED_FLAGS and not code.co_flags & facts.DROPPED_FLAGS:
        return None
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) else None


def shown_names() -> frozenset[str]:
    """The names under which instructions of this Python are shown."""
    names = {form[1] for op, form in _FORMS.items() if library.OPNAME[op] not in facts.PARTS}
    names.update(facts.READ_AS.get(part, part) for parts in facts.PARTS.values() for part in parts)
    return frozenset({*names, *facts.BINARY_READ_AS.values(), "LOAD_METHOD", "LOAD_CLOSURE"})


def loop_landing(instructions: Sequence[Instruction], head: Instruction) -> Sequence[Instruction]:
    """The instructions at the target of FOR_ITER that it skips when the iterator is exhausted."""
    assert head.target is not None
    return instructions[head.target : head.target + facts.LOOP_LANDING]


# Properties of an opcode besides its name and its argument.
_JUMPS, _GLOBAL, _ATTRIBUTE, _PARTS, _BINARY, _COMPARE, _FUNCTION = range(1, 8)


def _special(name: str) -> int:
    if library.KINDS[name] == library.JUMP:
        return _JUMPS
    if name in facts.PARTS:
        return _PARTS
    if facts.METHOD_BIT and name == "LOAD_ATTR":
        return _ATTRIBUTE
    if facts.BINARY_READ_AS and name == "BINARY_OP":
        return _BINARY
    if facts.COMPARE_TO_BOOL and name == "COMPARE_OP":
        return _COMPARE
    if name == "SET_FUNCTION_ATTRIBUTE":
        return _FUNCTION
    return _GLOBAL if name == "LOAD_GLOBAL" else 0


_RESOLVERS = {name: resolve for name, resolve in library.resolvers().items() if name not in facts.PARTS}
# By opcode: the one to write, the name to show, its roles, the meaning of its argument, its further properties.
_FORMS = {
    op: (
        OPMAP[facts.WRITTEN_AS.get(name, name)],
        facts.READ_AS.get(name, name),
        roles.ROLES.get(facts.READ_AS.get(name, name), 0),
        _RESOLVERS.get(name),
        _special(name),
    )
    for name, op in OPMAP.items()
}


def _decode(code: CodeType) -> Decoded:
    localsplus = localsplus_names(code)
    consts, names = code.co_consts, code.co_names
    instructions: list[Instruction] = []
    index_at: dict[int, int] = {}
    jumps: list[tuple[Instruction, int]] = []
    for opcode, arg, start, offset, target, positions in library.read(code):
        opcode, opname, role, resolve, special = _FORMS[opcode]
        index_at[start] = index = len(instructions)
        if start != offset:
            index_at[offset] = index
        argval = arg if resolve is None or arg is None else resolve(arg, consts, names, localsplus)
        instruction = Instruction(opcode, opname, role, arg, argval, index, offset, positions)
        instructions.append(instruction)
        if special:
            if target is not None:
                jumps.append((instruction, target))
            elif special == _PARTS:
                instructions.append(_split_fused(instruction, consts, names, localsplus))
            elif special == _COMPARE:
                if arg & facts.COMPARE_TO_BOOL:  # type: ignore[operator]
                    instructions.append(_split_comparison(instruction))
            elif special == _FUNCTION:
                instructions[-2].roles |= roles.PREFIX | roles.HALF_MADE  # without its parts the function is incomplete
            else:
                _look_closer(instruction, special, code)

    for instruction, target in jumps:
        instruction.target = instruction.argval = index_at[target]
    for begin, end, target, depth, lasti in library.handlers(code):
        handler = Handler(index_at[target], depth, lasti)
        index = index_at[begin]
        while index < len(instructions) and instructions[index].offset < end:
            instructions[index].handler = handler
            index += 1
    if code.co_cellvars or code.co_freevars:
        closed = {*code.co_cellvars, *code.co_freevars}
        localsplus += name_hidden(instructions, closed)
        if facts.FAST_CELLS:
            _name_loads_of_cells(instructions, closed)
        own = tuple(name for name in localsplus if name not in closed)
    else:
        own = localsplus
    return Decoded(tuple(instructions), index_at, localsplus, own, _first_index(instructions))


def _first_index(instructions: list[Instruction]) -> int:
    for instruction in instructions:
        if not instruction.roles & (roles.SETS_FRAME_UP | roles.DROPS):
            break
        if instruction.opname == "RESUME":
            return instruction.index + 1
    return 0


def _split_fused(
    fused: Instruction, consts: tuple[Any, ...], names: tuple[str, ...], localsplus: tuple[str, ...]
) -> Instruction:
    """Turns a `fused` instruction into the first of its two parts; returns the second."""
    arg = fused.arg
    assert arg is not None
    second = Instruction(0, "", 0, None, None, fused.index + 1, fused.offset, fused.positions)
    first_name, second_name = facts.PARTS[fused.opname]
    arguments: tuple[int | None, int | None] = (arg >> 4, arg & 15)
    if second_name not in library.WITH_ARGUMENT:
        arguments = arg, None
    for part, name, arg in zip((fused, second), (first_name, second_name), arguments):
        part.opcode, part.opname, part.roles, resolve, _ = _FORMS[OPMAP[name]]
        part.arg = part.argval = arg
        if arg is not None and resolve is not None:
            part.argval = resolve(arg, consts, names, localsplus)
    return second


def _split_comparison(comparison: Instruction) -> Instruction:
    """Removes the conversion to bool from a comparison; returns a separate instruction that converts its result."""
    comparison.arg ^= facts.COMPARE_TO_BOOL  # type: ignore[operator]
    opcode, opname, role, _, _ = _FORMS[OPMAP["TO_BOOL"]]
    return Instruction(
        opcode, opname, role, None, None, comparison.index + 1, comparison.offset, comparison.positions
    )


def _look_closer(instruction: Instruction, special: int, code: CodeType) -> None:
    """Names an instruction by the operation that its argument selects."""
    arg = instruction.arg
    assert arg is not None
    opname = None
    if special == _GLOBAL:
        instruction.push_null = bool(arg & 1)
    elif special == _ATTRIBUTE:
        opname = "LOAD_METHOD" if arg & 1 else None
    else:
        opname = facts.BINARY_READ_AS.get(arg)
    if opname is not None:
        _rename(instruction, opname)


def _rename(instruction: Instruction, opname: str) -> None:
    instruction.opname = opname
    instruction.roles = roles.ROLES.get(opname, 0)


def _name_loads_of_cells(instructions: list[Instruction], closed: set[str]) -> None:
    """Names each LOAD_FAST of a cell LOAD_CLOSURE."""
    for instruction in instructions:
        if instruction.opname == "LOAD_FAST" and instruction.argval in closed:
            _rename(instruction, "LOAD_CLOSURE")
