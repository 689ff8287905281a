"""Turns a list of symbolic operations into a code object.

An operation names what it refers to (a constant, a local, a cell, a label); slots, indices, jump distances and
directions, ``EXTENDED_ARG``, inline caches, both tables and the stack size are worked out here. Invariant: operations
come out in the order in which they went in, one instruction each, after a prologue made from the cells and free
variables; so operation i is instruction ``prologue_length(...) + i`` of the decoded result.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.tables import (
    ExceptionEntry,
    RawPositions,
    encode_exception_table,
    encode_locations,
)


class Label:
    """A place in the list of operations: before operation `position`; placed exactly once."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: int | None = None


class HandlerRef(NamedTuple):
    """The handler that covers an operation; `depth` is what stays on the stack when it is entered."""

    label: Label
    depth: int
    lasti: bool = False


# What the argument of an operation is.
PLAIN, CONST, NAME, GLOBAL, LOCAL, FREE, JUMP = range(7)

ARGUMENT_KIND: dict[int, int] = {}
for _op in facts.HAS_CONST:
    ARGUMENT_KIND[_op] = CONST
for _op in facts.HAS_NAME:
    ARGUMENT_KIND[_op] = NAME
for _op in facts.HAS_LOCAL:
    ARGUMENT_KIND[_op] = LOCAL
for _op in facts.HAS_FREE:
    ARGUMENT_KIND[_op] = FREE
for _op in facts.HAS_JUMP:
    ARGUMENT_KIND[_op] = JUMP
ARGUMENT_KIND[facts.OPMAP["LOAD_GLOBAL"]] = GLOBAL
ARGUMENT_KIND[facts.OPMAP["KW_NAMES"]] = CONST


class Op:
    """One operation. `arg` is a plain integer, a constant, a name, (name, push_null) for GLOBAL, or a Label."""

    __slots__ = ("arg", "handler", "kind", "opcode", "positions")

    def __init__(
        self, opcode: int, kind: int, arg: Any, positions: RawPositions, handler: HandlerRef | None = None
    ) -> None:
        self.opcode = opcode
        self.kind = kind
        self.arg = arg
        self.positions = positions
        self.handler = handler

    def __repr__(self) -> str:
        return f"<{facts.OPNAME[self.opcode]} {self.arg!r}>"


class AssemblyError(Exception):
    """The operations can't be expressed; always a mistake of the caller."""


def prologue_length(cellvars: Sequence[str], freevars: Sequence[str]) -> int:
    """How many instructions set a frame up: a MAKE_CELL per cell, COPY_FREE_VARS for free variables, RESUME."""
    return len(cellvars) + bool(freevars) + 1


class _Pool:
    """Indices of equal things, in order of first use. Constants are pooled by identity: 1, True and 1.0 are equal."""

    __slots__ = ("index", "items")

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items: list[Any] = list(items)
        self.index: dict[Any, int] = {item: i for i, item in enumerate(self.items)}

    def add(self, item: Any, key: Any) -> int:
        i = self.index.get(key)
        if i is None:
            i = self.index[key] = len(self.items)
            self.items.append(item)
        return i


def assemble(
    ops: Sequence[Op],
    *,
    name: str,
    filename: str,
    firstlineno: int,
    qualname: str | None = None,
    argnames: Sequence[str] = (),
    freevars: Sequence[str] = (),
    cellvars: Sequence[str] = (),
    flags: int = 0x3,
    posonlyargcount: int = 0,
    stacksize: int | None = None,
    prologue_positions: RawPositions | None = None,
) -> CodeType:
    """All parameters are positional. `stacksize` is computed when it isn't given."""
    consts, names = _Pool(), _Pool()
    varnames = _Pool(argnames)
    for op in ops:
        if op.kind == LOCAL:
            varnames.add(op.arg, op.arg)
    slots = dict(varnames.index)
    for cell in cellvars:
        slots.setdefault(cell, len(slots))
    plain_slots = len(slots)
    for i, free in enumerate(freevars):
        if free in slots:
            raise AssemblyError(f"{free!r} is both a free variable and a local or cell")
        slots[free] = plain_slots + i
    closed = {*cellvars, *freevars}

    positions = prologue_positions or (firstlineno, firstlineno, 0, 0)
    prologue: list[Op] = []
    if freevars:
        prologue.append(Op(facts.OPMAP["COPY_FREE_VARS"], PLAIN, len(freevars), positions))
    prologue.extend(Op(facts.OPMAP["MAKE_CELL"], FREE, cell, positions) for cell in cellvars)
    prologue.append(Op(facts.OPMAP["RESUME"], PLAIN, 0, positions))
    shift = len(prologue)
    everything = [*prologue, *ops]

    args = _resolve(everything, consts, names, slots, closed, shift)
    units = _layout(everything, args, shift)
    if stacksize is None:
        stacksize = stack_size(ops, args[shift:])
    code, locations = _write(everything, args, units, shift)
    return CodeType(
        len(argnames),
        posonlyargcount,
        0,
        len(varnames.items),
        stacksize,
        flags,
        code,
        tuple(consts.items),
        tuple(names.items),
        tuple(varnames.items),
        filename,
        name,
        name if qualname is None else qualname,
        firstlineno,
        encode_locations(locations, firstlineno),
        encode_exception_table(_exception_entries(everything, units, shift)),
        tuple(freevars),
        tuple(cellvars),
    )


def _resolve(
    ops: Sequence[Op], consts: _Pool, names: _Pool, slots: dict[str, int], closed: set[str], shift: int
) -> list[int]:
    """Arguments as integers; for a jump the index of the target, made a distance by `_layout`."""
    args: list[int] = []
    for op in ops:
        kind, arg = op.kind, op.arg
        if kind == PLAIN:
            args.append(arg or 0)
        elif kind == CONST:
            args.append(consts.add(arg, id(arg)))
        elif kind == LOCAL:
            if arg in closed:
                raise AssemblyError(f"{facts.OPNAME[op.opcode]} {arg!r}: the name is a cell here")
            args.append(slots[arg])
        elif kind == NAME:
            args.append(names.add(arg, arg))
        elif kind == GLOBAL:
            args.append(names.add(arg[0], arg[0]) << 1 | bool(arg[1]))
        elif kind == FREE:
            if arg not in closed:
                raise AssemblyError(f"{facts.OPNAME[op.opcode]} {arg!r}: the name is no cell here")
            args.append(slots[arg])
        else:
            if arg.position is None:
                raise AssemblyError(f"{facts.OPNAME[op.opcode]} jumps to a label that was never placed")
            args.append(arg.position + shift)
    return args


def _extensions(arg: int) -> int:
    return 0 if arg < 256 else 1 if arg < 65536 else 2 if arg < 16777216 else 3


def _layout(ops: Sequence[Op], args: list[int], shift: int) -> list[int]:
    """Start of each operation in code units (and the end of the last); turns jump targets in `args` into distances."""
    caches = facts.CACHE_ENTRIES
    jumps = [(i, args[i]) for i, op in enumerate(ops) if op.kind == JUMP]
    extended = [0 if op.kind == JUMP else _extensions(arg) for op, arg in zip(ops, args)]
    sizes = [1 + caches[op.opcode] + more for op, more in zip(ops, extended)]
    while True:
        starts = [0] * (len(ops) + 1)
        total = 0
        for i, size in enumerate(sizes):
            starts[i] = total
            total += size
        starts[-1] = total
        changed = False
        for i, target in jumps:
            distance = starts[target] - starts[i + 1]
            args[i] = abs(distance)
            more = _extensions(abs(distance))
            if more > extended[i]:
                sizes[i] += more - extended[i]
                extended[i] = more
                changed = True
        if not changed:
            return starts


def _write(
    ops: Sequence[Op], args: Sequence[int], units: Sequence[int], shift: int
) -> tuple[bytes, list[tuple[int, RawPositions]]]:
    out = bytearray()
    locations: list[tuple[int, RawPositions]] = []
    caches, extended_arg = facts.CACHE_ENTRIES, facts.EXTENDED_ARG
    for i, op in enumerate(ops):
        opcode, arg = op.opcode, args[i]
        size = units[i + 1] - units[i]
        if op.kind == JUMP:
            opcode = _directed(opcode, backward=op.arg.position + shift <= i)
        for level in range(size - 1 - caches[opcode], 0, -1):
            out.append(extended_arg)
            out.append((arg >> (8 * level)) & 255)
        out.append(opcode)
        out.append(arg & 255)
        if caches[opcode]:
            out.extend(bytes(2 * caches[opcode]))
        locations.append((size, op.positions))
    return bytes(out), locations


def _directed(opcode: int, *, backward: bool) -> int:
    forward = facts.TO_FORWARD.get(opcode, opcode)
    if not backward:
        return forward
    if forward not in facts.TO_BACKWARD:
        raise AssemblyError(f"{facts.OPNAME[opcode]} can't jump backward")
    return facts.TO_BACKWARD[forward]


def _exception_entries(ops: Sequence[Op], units: Sequence[int], shift: int) -> list[ExceptionEntry]:
    entries: list[ExceptionEntry] = []
    i, total = 0, len(ops)
    while i < total:
        handler = ops[i].handler
        start = i
        i += 1
        if handler is None:
            continue
        while i < total and ops[i].handler == handler:
            i += 1
        label, depth, lasti = handler
        if label.position is None:
            raise AssemblyError("a handler's label was never placed")
        entries.append(ExceptionEntry(units[start], units[i], units[label.position + shift], depth, lasti))
    return entries


def stack_size(ops: Sequence[Op], args: Sequence[int]) -> int:
    """Deepest stack over all paths from the first operation, handlers included."""
    depths: list[int | None] = [None] * len(ops)
    pending = [(0, 0)]
    deepest = 0
    effect, no_fall_through = dis.stack_effect, facts.NO_FALL_THROUGH
    while pending:
        i, depth = pending.pop()
        while i < len(ops):
            known = depths[i]
            if known is not None and known >= depth:
                break
            depths[i] = depth
            op = ops[i]
            handler = op.handler
            if handler is not None:
                pending.append((_placed(handler.label), handler.depth + handler.lasti + 1))
            arg = args[i] if op.opcode >= facts.HAVE_ARGUMENT else None
            if op.kind == JUMP:
                taken = depth + effect(op.opcode, arg, jump=True)
                deepest = max(deepest, taken)
                pending.append((_placed(op.arg), taken))
            if op.opcode in no_fall_through:
                break
            depth += effect(op.opcode, arg, jump=False)
            if depth > deepest:
                deepest = depth
            if depth < 0:
                raise AssemblyError(f"operation {i} ({op!r}) takes more than the stack holds")
            i += 1
        deepest = max(deepest, depth)
    return deepest


def _placed(label: Label) -> int:
    if label.position is None:
        raise AssemblyError("a label was never placed")
    return label.position
