"""Whether a condition may hold anywhere in a block of scores, from the least and largest rows and columns of the block:
a few operations on numbers where a test of each element would be a block of work (interval arithmetic; Moore, 1966).

Invariant: if the text of ``may`` is false for a block, the condition holds for none of its elements.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Optional, Union

import torch

from dynamo_lite.backends.inductor.codegen.triton.body import Body
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.scheduler.kernel import BLOCK

Truth = Union[bool, str]
"""What is known of a test: its value, or the text that computes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the largest value of a number in a block: constants, or texts of integers. ``exact``: each is the
    value of an element, or there is one value."""

    least: float | str
    most: float | str


class BlockBounds:
    """Writes such tests.

    Attributes:
        body: gets the loads of numbers that are the same in the whole block.
        extents: the texts of the largest value of each loop variable of a block.
        complete: whether all tests that were asked for are as strict as intervals allow; if not, elements that could
            only be known from memory were taken to hold.
    """

    def __init__(self, body: Body, extents: Mapping[ix.Var, str]) -> None:
        self.body, self.extents = body, extents
        self.complete = True

    def may(self, node: Node, holds: bool = True) -> Truth:
        """Whether a condition may hold (or not hold) for an element of the block."""
        if node.op == "const":
            return bool(node.attr) is holds
        if node.op == "not":
            return self.may(node.args[0], not holds)
        if node.op in ("and", "or"):
            a, b = (self.may(arg, holds) for arg in node.args)
            return _both(a, b) if (node.op == "and") is holds else _either(a, b)
        if node.op == "where":
            condition, x, y = node.args
            return _either(_both(self.may(condition), self.may(x, holds)),
                           _both(self.may(condition, False), self.may(y, holds)))
        if node.op in _COMPARED:
            return self._compared(node.op if holds else _OPPOSITE[node.op], *node.args)
        if node.op == "load" and self._is_one_number(node):
            text = self.body.text(node)
            return text if holds else f"({text} == 0)"
        self.complete = False
        return True

    def _compared(self, op: str, a: Node, b: Node) -> Truth:
        for x, y, same in ((a, b, op), (b, a, _TURNED[op])):
            if x.op == "where":
                condition, first, second = x.args
                return _either(_both(self.may(condition), self._compared(same, first, y)),
                               _both(self.may(condition, False), self._compared(same, second, y)))
        left, right = self._bounds(a), self._bounds(b)
        if left is None or right is None:
            self.complete = False
            return True
        return _COMPARED[op](left, right)

    # ------------------------------------------------------------ numbers
    def _bounds(self, node: Node) -> Bounds | None:
        """The bounds of a number; None if they are not known."""
        if node.op == "const":
            return None if isinstance(node.attr, float) and math.isnan(node.attr) else Bounds(node.attr, node.attr)
        if node.dtype.is_floating_point or node.dtype is torch.bool:
            return None
        if node.op == "index":
            return self._of_index(node.attr)
        if node.op == "load":
            return Bounds(*[self.body.text(node)] * 2) if self._is_one_number(node) else None
        if node.op == "cast" and _is_wider(node.args[0].dtype, node.dtype):
            return self._bounds(node.args[0])
        if node.op in _NUMBERS and node.dtype is torch.int64:
            args = [self._bounds(arg) for arg in node.args]
            return None if None in args else _NUMBERS[node.op](*args)
        return None

    def _is_one_number(self, load: Node) -> bool:
        """Whether a load reads the same element in the whole block, and in all blocks of columns."""
        atoms = list(ix.atoms_of(load.attr[1]))
        return not any(isinstance(a, ix.Indirect) or a in self.extents or isinstance(a, ix.Sym) and a.name in _MOVING
                       for a in atoms)

    def _of_index(self, x: ix.Index) -> Bounds | None:
        """The bounds of an index that is affine in the block's loops, or such an index divided by a number."""
        if isinstance(x, int):
            return Bounds(x, x)
        if len(x.terms) == 1 and not x.const:
            ((monomial, k),) = x.terms.items()
            (a, *more) = monomial
            if k == 1 and not more and isinstance(a, ix.FloorDiv) and isinstance(a.divisor, int):
                found = self._of_index(a.expr)
                if found is None or not ix.never_negative(a.expr):
                    return None
                return Bounds(*(f"(({end}) // {a.divisor})" for end in (found.least, found.most)))
        terms = ix.affine_terms(x)
        if terms is None or not all(isinstance(k, int) and v in self.extents for v, k in terms[0].items()):
            return None
        offset = self.body.index(terms[1])
        ends: list[str] = []
        for sign in (-1, 1):
            grown = [f"{k} * ({self.extents[v]})" for v, k in terms[0].items() if isinstance(k, int) and k * sign > 0]
            ends.append(f"({' + '.join([offset, *grown])})")
        return Bounds(*ends)


_MOVING = BLOCK - {"own_batch"}


def _is_wider(narrow: torch.dtype, wide: torch.dtype) -> bool:
    return not narrow.is_floating_point and narrow is not torch.bool and narrow.itemsize <= wide.itemsize and (
        wide.is_signed and narrow.is_signed)


def _both(a: Truth, b: Truth) -> Truth:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return f"({a} & {b})"


def _either(a: Truth, b: Truth) -> Truth:
    if isinstance(a, bool):
        return True if a else b
    if isinstance(b, bool):
        return True if b else a
    return f"({a} | {b})"


def _less(a: float | str, sign: str, b: float | str) -> Truth:
    if isinstance(a, str) or isinstance(b, str):
        infinite = [x for x in (a, b) if not isinstance(x, str) and not float(x).is_integer()]
        return True if infinite else f"({a} {sign} {b})"
    return a < b if sign == "<" else a <= b


def _equal(a: Bounds, b: Bounds) -> Truth:
    return _both(_less(a.least, "<=", b.most), _less(b.least, "<=", a.most))


def _unequal(a: Bounds, b: Bounds) -> Truth:
    """Only of constants something is known."""
    known = not any(isinstance(x, str) for x in (a.least, a.most, b.least, b.most))
    return a != b if known else True


_COMPARED: dict[str, Callable[[Bounds, Bounds], Truth]] = {
    "lt": lambda a, b: _less(a.least, "<", b.most), "le": lambda a, b: _less(a.least, "<=", b.most),
    "gt": lambda a, b: _less(b.least, "<", a.most), "ge": lambda a, b: _less(b.least, "<=", a.most),
    "eq": _equal, "ne": _unequal}
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _sum(a: float | str, sign: str, b: float | str) -> str:
    return f"({a} {sign} ({b}))"


def _magnitude(a: Bounds) -> Optional[Bounds]:
    # The least magnitude of a range is at its nearer end, or 0.
    return Bounds(f"tl.maximum(tl.maximum({a.least}, {_sum(0, '-', a.most)}), 0)",
                  f"tl.maximum({_sum(0, '-', a.least)}, {a.most})")


# Of 64-bit integers, which no sum of positions exceeds.
_NUMBERS: dict[str, Callable[..., Optional[Bounds]]] = {
    "add": lambda a, b: Bounds(_sum(a.least, "+", b.least), _sum(a.most, "+", b.most)),
    "sub": lambda a, b: Bounds(_sum(a.least, "-", b.most), _sum(a.most, "-", b.least)),
    "neg": lambda a: Bounds(_sum(0, "-", a.most), _sum(0, "-", a.least)),
    "abs": _magnitude,
}
