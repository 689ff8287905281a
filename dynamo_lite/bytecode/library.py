"""The `bytecode` package as this layer uses it.

That package knows the encoding of instructions, jumps, prefixes, caches, exception tables, line tables and code objects
in each Python version. Invariant: no other module imports it, and its slow or faulty parts are worked around here
(found with release 0.19.1; tests/bytecode/test_library.py has a case for each):

* ``ConcreteBytecode.from_code`` takes 0.67 ms for 300 instructions, ``to_bytecode`` 1 ms more, and that forgets byte
  offsets and drops a handler whose range begins at a prefixed instruction, which is how the package itself writes them.
  A first call reads thousands of instructions; ``read`` needs 0.2 ms for 300. Which opcodes have arguments, caches and
  jumps, and what an argument stands for, it takes from the package's tables.
* ``_assemble_code`` makes an object for each instruction and each cache, ``_assemble_locations`` compares the location
  of each with the one before, and items and locations are checked one by one. Code written in one loop, by runs of one
  location, and nothing checked twice: a function of 120 instructions and caches is assembled in 0.8 ms and not in 1.0.
* ``const_key`` takes constants for the same one if they marshal to the same bytes: two empty lists, or an array and its
  bytes. Ours go in wrapped: wrappers can't be marshalled, and are then told apart by identity.
* ``_pack_location`` writes columns of 128 and more in the short form, whose bytes then look like the starts of entries:
  all lines after them are wrong. It never ends for an instruction that ends on an earlier line than it begins.
* The fused instructions for two locals go wrong when a local's number is 16 or more; ``instructions`` takes them apart.
* From 3.12 on an inlined comprehension may use the slot of a cell for a local of its own; the package writes that for
  3.13 and later only. ``Writer.add_slot`` writes another instruction first, and puts the right opcode in afterwards.
* It does not know all intrinsic functions of 3.13; ``Writer.add_intrinsic`` puts their numbers in afterwards.
* The package's flow analysis, which computes stack sizes and the depths at which handlers start, does not follow a jump
  into a ``try``; ``assembler`` knows both.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from bytecode import Bytecode, Compare, ConcreteBytecode, Instr, Intrinsic1Op, Intrinsic2Op, Label, TryBegin, TryEnd
from bytecode import CellVar as Cell
from bytecode import FreeVar as Free
from bytecode.concrete import HAS_COMPARE, HAS_CONST, HAS_FREE, HAS_LOCAL, HAS_NAME, ConcreteInstr
from bytecode.instr import (
    BITFLAG2_OPCODES,
    BITFLAG_OPCODES,
    HAS_JUMP,
    INTRINSIC_1OP,
    INTRINSIC_2OP,
    MIN_INSTRUMENTED_OPCODE,
    UNSET,
    BinaryOp,
    InstrLocation,
    opcode_has_argument,
)

from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.roles import ROLES, TOUCHES_CELL

__all__ = ["Cell", "Free", "Instr", "Label", "TryBegin", "TryEnd"]

# (lineno, end_lineno, col_offset, end_col_offset), as from code.co_positions()
RawPositions = tuple[int | None, int | None, int | None, int | None]
NO_POSITIONS: RawPositions = (None, None, None, None)

OPMAP = {name: op for name, op in dis.opmap.items() if op < min(MIN_INSTRUMENTED_OPCODE, 256)}
OPNAME = {op: name for name, op in OPMAP.items()}

# Kinds of arguments of an instruction; in a new one: a number, any object, a name, (flag, name), (flag, flag, name),
# the name of a local, the name of a cell or free variable, a Label, an operator, the number of an intrinsic function,
# the name of anything with a slot (only in new ones that stand for old ones).
PLAIN, CONST, NAME, FLAG_NAME, FLAGS_NAME, LOCAL, CELL, JUMP, COMPARE, INTRINSIC, SLOT = range(11)


def _kind(name: str, op: int) -> int:
    if op in HAS_JUMP:
        return JUMP
    if ROLES.get(name, 0) & TOUCHES_CELL:  # some versions list these among the opcodes for locals
        return CELL
    if op in HAS_NAME:
        return FLAG_NAME if op in BITFLAG_OPCODES else FLAGS_NAME if op in BITFLAG2_OPCODES else NAME
    for kind, ops in ((CONST, HAS_CONST), (LOCAL, HAS_LOCAL), (CELL, HAS_FREE), (COMPARE, HAS_COMPARE)):
        if op in ops:
            return kind
    return INTRINSIC if op in INTRINSIC_1OP or op in INTRINSIC_2OP else PLAIN


KINDS: dict[str, int] = {name: _kind(name, op) for name, op in OPMAP.items()}
WITH_ARGUMENT = frozenset(name for name, op in OPMAP.items() if opcode_has_argument(op))

COMPARISONS = {symbol: Compare(i) for i, symbol in enumerate(dis.cmp_op)}
_IN_PLACE = "INPLACE_"
_SYMBOLS = {
    "ADD": "+", "AND": "&", "FLOOR_DIVIDE": "//", "LSHIFT": "<<", "MATRIX_MULTIPLY": "@", "MULTIPLY": "*",
    "REMAINDER": "%", "OR": "|", "POWER": "**", "RSHIFT": ">>", "SUBTRACT": "-", "TRUE_DIVIDE": "/", "XOR": "^",
    "SUBSCR": "[]",
}  # fmt: skip
# The symbols of BINARY_OP's operators, by operator number.
BINARY_SYMBOLS = [
    _SYMBOLS[op.name.removeprefix(_IN_PLACE)] + "=" * op.name.startswith(_IN_PLACE) for op in sorted(BinaryOp)
]
COMMON_CONSTANTS: list[Any] = getattr(opcode, "_common_constants", [])
_COMPARE_SYMBOLS = tuple(dis.cmp_op)


# Reading

_EXTENDED_ARG = dis.EXTENDED_ARG
_POSITIONS = dis.Positions


def _after(name: str) -> tuple[int, int, bool]:
    """For an opcode: bytes of caches, which way it jumps (1 forward, -1 backward, 0), whether it has an argument."""
    has_argument = name in WITH_ARGUMENT
    instruction = ConcreteInstr(name, 0) if has_argument else ConcreteInstr(name)
    direction = instruction.is_forward_rel_jump() - instruction.is_backward_rel_jump()
    return 2 * instruction.use_cache_opcodes(), direction, has_argument


_AFTER = {op: _after(name) for name, op in OPMAP.items() if name not in ("CACHE", "EXTENDED_ARG")}
# An instruction as read: opcode, argument, offset of its first prefix, its own offset, jump target's offset, positions.
Read = tuple[int, int | None, int, int, int | None, dis.Positions]


def read(code: CodeType) -> list[Read]:
    """The instructions, prefixes and caches left out and the interpreter's specializations undone."""
    raw = code.co_code
    all_positions = list(code.co_positions())
    previous: RawPositions | None = None
    positions = _POSITIONS()
    found: list[Read] = []
    after = _AFTER
    size, start, offset, extended = len(raw), 0, 0, 0
    while offset < size:
        op = raw[offset]
        arg: int | None = raw[offset + 1] | extended
        if op == _EXTENDED_ARG:
            extended = arg << 8  # type: ignore[operator]
            offset += 2
            continue
        if all_positions[offset >> 1] != previous:
            previous = all_positions[offset >> 1]
            positions = _POSITIONS._make(previous)
        caches, direction, has_argument = after[op]
        end = offset + 2 + caches
        target = end + 2 * direction * arg if direction else None  # type: ignore[operator]
        found.append((op, arg if has_argument else None, start, offset, target, positions))
        start = offset = end
        extended = 0
    return found


def handlers(code: CodeType) -> list[tuple[int, int, int, int, bool]]:
    """The exception table: offsets of begin, end and handler, the stack's depth there, whether lasti is pushed."""
    if not code.co_exceptiontable:
        return []
    entries = ConcreteBytecode()._parse_exception_table(code.co_exceptiontable)
    return [(2 * e.start_offset, 2 * e.stop_offset + 2, 2 * e.target, e.stack_depth, e.push_lasti) for e in entries]


Resolver = Callable[[int, Sequence[Any], Sequence[str], Sequence[str]], Any]


def resolvers() -> dict[str, Resolver]:
    """By opcode, a function that gives an argument's meaning from it and the code's constants, names and slots."""
    by_kind: dict[int, Resolver] = {
        CONST: lambda arg, consts, names, slots: consts[arg],
        NAME: lambda arg, consts, names, slots: names[arg],
        FLAG_NAME: lambda arg, consts, names, slots: names[arg >> 1],
        FLAGS_NAME: lambda arg, consts, names, slots: names[arg >> 2],
        LOCAL: lambda arg, consts, names, slots: slots[arg],
        CELL: lambda arg, consts, names, slots: slots[arg],
        COMPARE: lambda arg, consts, names, slots: _COMPARE_SYMBOLS[arg >> facts.COMPARE_SHIFT],
    }
    found = {name: by_kind[kind] for name, kind in KINDS.items() if kind in by_kind}
    if COMMON_CONSTANTS:
        found["LOAD_COMMON_CONSTANT"] = lambda arg, consts, names, slots: COMMON_CONSTANTS[arg]
    found["BINARY_OP"] = lambda arg, consts, names, slots: BINARY_SYMBOLS[arg]
    return found


def operand(name: str, arg: int, argval: Any) -> Any:
    """The argument for a new instruction that has the same effect as a decoded one; jumps have a label instead."""
    kind = KINDS[name]
    if kind == FLAG_NAME:
        return bool(arg & 1), argval
    if kind == FLAGS_NAME:
        return bool(arg & 1), bool(arg & 2), argval
    if kind == COMPARE:
        return Compare((arg >> facts.COMPARE_SHIFT) + (arg & 16 if facts.COMPARE_SHIFT > 4 else 0))
    return arg if kind in (PLAIN, INTRINSIC) else argval


# Writing


# The constructor checks all arguments, which takes 0.2 ms for 300; ours come from ``assembler`` and ``operand``.
_new_instruction = Instr._from_trusted


# Has a slot for its argument and no cache, like the instructions that it stands in for.
_SLOT_STAND_IN = "LOAD_DEREF"


class _Constant:
    """A wrapper of a constant, equal to no other wrapper because it can't be marshalled."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Writer:
    """Collects instructions, labels and the limits of handlers, then makes the code object."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._constants: dict[int, _Constant] = {}
        self._locations: dict[RawPositions, InstrLocation] = {}
        self._stand_ins: dict[int, tuple[str, int | None]] = {}

    def add(self, name: str, argument: Any, positions: RawPositions) -> None:
        """Adds an instruction; the argument is ignored if the opcode has none."""
        location = self._locations.get(positions)
        if location is None:
            location = self._locations[positions] = InstrLocation._from_tuple(*_sane(positions))
        if name not in WITH_ARGUMENT:
            argument = UNSET
        self.items.append(_new_instruction(name, OPMAP[name], argument, location))

    def add_slot(self, name: str, variable: Cell | Free, positions: RawPositions) -> None:
        """Adds an instruction for locals that acts on the slot of a cell or free variable, whatever the slot holds."""
        self.add(_SLOT_STAND_IN, variable, positions)
        self._stand_ins[id(self.items[-1])] = name, None

    def add_intrinsic(self, name: str, number: int, positions: RawPositions) -> None:
        """A call of one of the interpreter's own functions."""
        self.add(name, Intrinsic1Op(0) if OPMAP[name] in INTRINSIC_1OP else Intrinsic2Op(0), positions)
        self._stand_ins[id(self.items[-1])] = name, number

    def _replace_stand_ins(self, concrete: ConcreteBytecode) -> None:
        instructions = (i for i in concrete if isinstance(i, ConcreteInstr) and i.name != "CACHE")
        for item, instruction in zip((i for i in self.items if isinstance(i, Instr)), instructions, strict=True):
            if id(item) in self._stand_ins:
                name, number = self._stand_ins[id(item)]
                instruction.set(name, instruction.arg if number is None else number)

    def constant(self, value: Any) -> _Constant:
        """The argument that stands for a constant."""
        wrapped = self._constants.get(id(value))
        if wrapped is None:
            wrapped = self._constants[id(value)] = _Constant(value)
        return wrapped

    def finish(
        self, argnames: Sequence[str], freevars: Sequence[str], cellvars: Sequence[str], stacksize: int,
        attributes: Mapping[str, Any],
    ) -> CodeType:  # fmt: skip
        """The code object; `attributes` are those of ``Bytecode`` that it is to have."""
        symbolic = Bytecode()
        list.extend(symbolic, self.items)  # the package's own checks each item
        symbolic.argnames = list(argnames)
        symbolic.argcount = len(argnames)
        symbolic.freevars = list(freevars)
        symbolic.cellvars = list(cellvars)
        for name, value in attributes.items():
            setattr(symbolic, name, value)
        concrete = symbolic.to_concrete_bytecode(compute_exception_stack_depths=False)
        concrete.consts = [constant.value for constant in concrete.consts]
        if self._stand_ins:
            self._replace_stand_ins(concrete)
        concrete.__class__ = _Concrete
        return concrete.to_code(stacksize=stacksize, compute_exception_stack_depths=False)


def _sane(positions: RawPositions) -> RawPositions:
    """Positions that can be written; a syntax tree that a program has made may have any."""
    line, end_line, column, end_column = positions
    if line is None or line < 0:
        return NO_POSITIONS
    if column is None or end_column is None or end_line is None or column < 0 or end_line < line:
        return line, None, None, None
    if end_column < (column if end_line == line else 0):
        return line, None, None, None
    return positions


class _Concrete(ConcreteBytecode):
    """Instructions that are written faster, and whose line table can be read by all of Python."""

    def _assemble_code(self) -> tuple[bytes, list[tuple[int, int, int, InstrLocation | None]]]:
        """The bytes, and runs of them that have one location: (offset, size, the code's first line, location)."""
        code = bytearray()
        runs: list[tuple[int, int, int, InstrLocation | None]] = []
        line, begin = self.first_lineno, 0
        location: InstrLocation | None = None
        for instruction in list.__iter__(self):
            if instruction._location is not location:
                if code:
                    runs.append((begin, len(code) - begin, line, location))
                begin, location = len(code), instruction._location
            arg = instruction._arg
            if arg is UNSET:
                code += bytes((instruction._opcode, 0))
            elif arg < _PREFIXED:
                code += bytes((instruction._opcode, arg))
            else:
                code += instruction.assemble()
        if code:
            runs.append((begin, len(code) - begin, line, location))
        return bytes(code), runs

    def _pack_location(self, buf: bytearray, size: int, lineno: int, location: InstrLocation | None) -> None:
        if location is None or max(location.col_offset or 0, location.end_col_offset or 0) < _FIRST_BIG_COLUMN:
            super()._pack_location(buf, size, lineno, location)
            return
        assert location.lineno is not None and location.end_lineno is not None
        assert location.col_offset is not None and location.end_col_offset is not None
        buf.append(self._pack_location_header(_LONG_FORM, size))
        buf += self._encode_location_svarint(location.lineno - lineno)
        buf += self._encode_location_varint(location.end_lineno - location.lineno)
        buf += self._encode_location_varint(location.col_offset + 1)
        buf += self._encode_location_varint(location.end_col_offset + 1)


# The least argument that does not fit an instruction.
_PREFIXED = 256
# Objects/locations.md: the entries that have varints, and the first byte of an entry.
_LONG_FORM = 14
_FIRST_BIG_COLUMN = 128
