"""Turns a list of symbolic operations into a code object.

An operation names its operand (a constant, a local, a cell, a label); the `bytecode` package does the encoding
(``library``). This module adds the frame's set-up and computes the stack size and the depths of handlers.
Invariant: operations come out in the order in which they went in, one instruction each, after a prologue made from the
cells and free variables; so operation i is instruction ``prologue_length(...) + i`` of the decoded result.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from dynamo_lite.bytecode import library
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.library import (
    CELL,
    CONST,
    FLAG_NAME,
    FLAGS_NAME,
    INTRINSIC,
    JUMP,
    LOCAL,
    OPMAP,
    PLAIN,
    SLOT,
    WITH_ARGUMENT,
    RawPositions,
)
from dynamo_lite.bytecode.roles import NO_FALL_THROUGH, ROLES

_Variables = dict[str, library.Cell | library.Free]


class Label(library.Label):
    """A place in the list of operations: before operation `position`; placed exactly once."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: int | None = None


class HandlerRef(NamedTuple):
    """The handler that covers an operation; `depth` is the number of stack slots kept on entry."""

    label: Label
    depth: int
    lasti: bool = False


class Op:
    """One operation. `kind` tells the meaning of `arg` (``library.PLAIN`` to ``library.SLOT``)."""

    __slots__ = ("arg", "handler", "kind", "name", "positions")

    def __init__(
        self, name: str, kind: int, arg: Any, positions: RawPositions, handler: HandlerRef | None = None
    ) -> None:
        self.name = name
        self.kind = kind
        self.arg = arg
        self.positions = positions
        self.handler = handler

    def __repr__(self) -> str:
        return f"<{self.name} {self.arg!r}>"


class AssemblyError(Exception):
    """The operations can't be expressed; always a mistake of the caller."""


def prologue_length(cellvars: Sequence[str], freevars: Sequence[str]) -> int:
    """How many instructions set a frame up: a MAKE_CELL per cell, COPY_FREE_VARS for free variables, RESUME."""
    return len(cellvars) + bool(freevars) + 1


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
    variables: _Variables = {cell: library.Cell(cell) for cell in cellvars}
    for free in freevars:
        if free in variables or free in argnames:
            raise AssemblyError(f"{free!r} is both a free variable and a local or cell")
        variables[free] = library.Free(free)
    if stacksize is None:
        stacksize = stack_size(ops)
    writer = library.Writer()
    positions = prologue_positions or (firstlineno, firstlineno, 0, 0)
    if freevars:
        writer.add("COPY_FREE_VARS", len(freevars), positions)
    for cell in cellvars:
        writer.add("MAKE_CELL", variables[cell], positions)
    writer.add("RESUME", 0, positions)
    _write(writer, ops, variables)
    return writer.finish(
        argnames,
        freevars,
        cellvars,
        stacksize,
        {
            "posonlyargcount": posonlyargcount,
            "flags": flags & ~facts.DROPPED_FLAGS,
            "filename": filename,
            "name": name,
            "qualname": name if qualname is None else qualname,
            "first_lineno": firstlineno,
        },
    )


def _write(writer: library.Writer, ops: Sequence[Op], variables: _Variables) -> None:
    """Hands all operations to the writer, with labels and the bounds of handler ranges between them."""
    labels = _labels(ops)
    items = writer.items
    handler, begin = None, None
    for i, op in enumerate(ops):
        changes = op.handler is not handler and op.handler != handler
        if changes and begin is not None:
            items.append(library.TryEnd(begin))
            begin = None
        if i in labels:
            items.extend(labels[i])
        if changes:
            handler = op.handler
            if handler is not None:
                begin = library.TryBegin(*_entry(handler))
                items.append(begin)
        name, kind, arg = op.name, op.kind, op.arg
        if kind == CONST:
            arg = writer.constant(arg)
        elif kind == JUMP:
            name = _directed(op, i)
        elif kind == CELL or (kind == LOCAL and arg in variables):
            arg = _variable(op, variables)
        elif kind == SLOT and arg in variables:
            writer.add_slot(name, variables[arg], op.positions)
            continue
        elif kind == INTRINSIC:
            writer.add_intrinsic(name, arg, op.positions)
            continue
        writer.add(name, arg, op.positions)
    if begin is not None:
        items.append(library.TryEnd(begin))
    items.extend(labels.get(len(ops), ()))


def _labels(ops: Sequence[Op]) -> dict[int, list[Label]]:
    """The labels that a jump or a handler refers to, by position."""
    seen: set[Label] = set()
    labels: dict[int, list[Label]] = {}
    for op in ops:
        for label in (op.arg if op.kind == JUMP else None, op.handler.label if op.handler is not None else None):
            if label is not None and label not in seen:
                seen.add(label)
                labels.setdefault(_placed(label), []).append(label)
    return labels


def _entry(handler: HandlerRef) -> tuple[Label, bool, int]:
    return handler.label, handler.lasti, handler.depth


def _directed(op: Op, index: int) -> str:
    name = facts.directed(op.name, backward=_placed(op.arg) <= index)
    if name is None:
        raise AssemblyError(f"{op.name} jumps backward, which this Python has no instruction for")
    return name


def _variable(op: Op, variables: _Variables) -> library.Cell | library.Free:
    variable = variables.get(op.arg)
    if variable is None:
        raise AssemblyError(f"{op.name} {op.arg!r}: the name is no cell here")
    if op.kind == LOCAL:
        raise AssemblyError(f"{op.name} {op.arg!r}: the name is a cell here")
    return variable


def stack_size(ops: Sequence[Op]) -> int:
    """Maximal stack depth over all paths from the first operation, handlers included."""
    depths: list[int | None] = [None] * len(ops)
    pending = [(0, 0)]
    deepest = 0
    effect = dis.stack_effect
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
            opcode, arg = OPMAP[op.name], _effect_argument(op)
            if op.kind == JUMP:
                taken = depth + effect(opcode, arg, jump=True)
                deepest = max(deepest, taken)
                pending.append((_placed(op.arg), taken))
            if ROLES.get(op.name, 0) & NO_FALL_THROUGH:
                break
            depth += effect(opcode, arg, jump=False)
            if depth > deepest:
                deepest = depth
            if depth < 0:
                raise AssemblyError(f"operation {i} ({op!r}) takes more than the stack holds")
            i += 1
        deepest = max(deepest, depth)
    return deepest


def _effect_argument(op: Op) -> int | None:
    """The argument, as far as the effect on the stack depends on it."""
    if op.name not in WITH_ARGUMENT:
        return None
    if op.kind == PLAIN:
        return op.arg or 0
    return int(op.arg[0]) if op.kind in (FLAG_NAME, FLAGS_NAME) else 0


def _placed(label: Label) -> int:
    if label.position is None:
        raise AssemblyError("a label was never placed")
    return label.position
