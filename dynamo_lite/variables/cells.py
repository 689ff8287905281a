"""Cells: the variables that closures share.

Invariant: a cell has one tracker, whether it came in from outside, is the frame's own or was made by an inlined call.
Every read and write goes through that tracker, and where the cell leaves the trace it is one cell with the contents
that the program gave it last.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..guards.source import CellContentsSource, LocalSource, Source
from .base import MISSING, LazyVariable, VariableTracker, realized, wraps_type
from .constant import COMPARE, ConstantVariable

if TYPE_CHECKING:
    from .protocols import Codegen, Tracer


class CellVariable(VariableTracker):
    """A cell: the variable that closures share.

    Args:
        contents: its value, or MISSING while it is unbound.
        source: where the real cell lives, if it came in from outside.
        local: the variable's name, for the frame's own cells.
    """

    has_identity = True

    def __init__(self, contents: Any = MISSING, source: Source | None = None, local: str | None = None) -> None:
        super().__init__(source)
        self.contents = contents
        self.local = local

    def python_type(self) -> type:
        return types.CellType

    def load(self, tx: Tracer) -> VariableTracker | None:
        """The contents, realized; None while the cell is unbound."""
        if self.contents is MISSING:
            return None
        self.contents = realized(tx, self.contents)
        return self.contents

    def store(self, tx: Tracer, value: Any) -> None:
        """Binds the variable, or unbinds it with MISSING."""
        tx.output.effects.mutate(self)
        self.contents = value

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "cell_contents":
            value = self.load(tx)
            if value is None:
                tx.raise_error(ValueError, "Cell is empty")
            return value
        return super().getattr(tx, name)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        """Compares the contents; an empty cell is less than others (Objects/cellobject.c, cell_richcompare)."""
        if not isinstance(other, CellVariable):
            return None
        mine, theirs = self.load(tx), other.load(tx)
        if mine is None or theirs is None:
            return ConstantVariable(COMPARE[op](mine is not None, theirs is not None))
        return tx.operators.compare(op, mine, theirs)

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            if cg.owns_cell(self):
                cg.emit.load_closure(self.local)  # type: ignore[arg-type]
            else:
                cg.call_constant(types.CellType, lambda: None, count=0)

        cg.build_new(self, make, lambda: self._fill(cg), refers_only=True)

    def _fill(self, cg: Codegen) -> None:
        """Emits code that binds the cell on top of the stack and leaves it there."""
        own, contents = self.local if cg.owns_cell(self) else None, self.contents
        if contents is MISSING:
            if own is not None and own in cg.cell_arguments:
                cg.emit.delete_deref(own)
            return
        if own is not None and own in cg.cell_arguments and _is_argument(contents, own):
            return
        if own is None:
            cg.emit.dup()
        cg.push(contents)
        if own is not None:
            cg.emit.store_deref(own)
            return
        cg.emit.swap(2)
        cg.emit.store_attr("cell_contents")


def _is_argument(value: VariableTracker, name: str) -> bool:
    """Whether a value is the frame's argument `name`, so that the cell holds it from the beginning."""
    return isinstance(value.source, LocalSource) and value.source.local == name


@wraps_type(types.CellType)
def _wrap_cell(tx: Tracer, value: types.CellType, source: Source) -> VariableTracker:
    return new_cell(tx, value, source, "cell_contents")


def new_cell(tx: Tracer, cell: types.CellType, source: Source, name: str) -> CellVariable:
    """The tracker of a real cell; its contents are lazy."""
    try:
        contents: Any = LazyVariable(cell.cell_contents, CellContentsSource(source, name))
    except ValueError:
        contents = MISSING
        tx.guard(source, "cell_empty")
    return CellVariable(contents, source)
