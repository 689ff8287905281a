"""Narrowing of 64-bit integers: values that are known to fit 32 bits are compared and cast as 32-bit integers.

Positions that a loop computes (`arange`, the row and column of a mask, the class of a one-hot gradient) are 64-bit
integers in the program, and one 64-bit value halves the number of lanes of a kernel's vectors. Such values usually end
in a comparison or a cast, which gives the same result for the 32-bit number. The other operand of a comparison may be a
64-bit value that is uniform over the lanes, such as a row's label: it is clamped to a range just beyond that of the
narrow operand.

Invariant: the value of each statement stays the same; only the dtypes of intermediate integers change.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel

Range = tuple[int, int]
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_NARROW = {torch.bool: (0, 1), **{d: (torch.iinfo(d).min, torch.iinfo(d).max)
                                  for d in (torch.uint8, torch.int8, torch.int16, torch.int32)}}
_LIMITS = _NARROW[torch.int32]


def narrow_integers(builder: Builder, kernel: Kernel) -> None:
    """Narrows the integers in a kernel's values. The vector loops must have been chosen."""
    vectors = {v for v in map(kernel.vector, kernel.stages) if v is not None}
    statements = kernel.statements()
    narrow = _Narrowing(builder, vectors)
    values = [s.value for s in statements]
    while True:
        replaced = narrow.replacements(values)
        if not replaced:
            break
        # A replacement may contain further nodes to replace, in the condition of a ``where``.
        values = builder.substitute_all(values, {}, replaced)
    for s, value in zip(statements, values):
        s.value = value


class _Narrowing:
    """Makes 32-bit forms of 64-bit nodes.

    Attributes:
        vectors: the variables of the vector loops.
        ranges: the ranges of integers by the node's id; None if unknown or not representable in 32 bits.
        made: the 32-bit forms of 64-bit nodes by the node's id; None if there is none.
    """

    def __init__(self, builder: Builder, vectors: set[ix.Var]):
        self.builder = builder
        self.vectors = vectors
        self.ranges: dict[int, Range | None] = {}
        self.made: dict[int, Node | None] = {}

    def replacements(self, roots: Sequence[Node]) -> dict[Node, Node]:
        """The comparisons and casts of 64-bit values that vary over lanes, with their 32-bit replacements."""
        found = {}
        for n in walk(roots):
            if n.args and n.args[0].dtype is torch.int64 and not self.vectors.isdisjoint(n.vars):
                new = self._cast(n) if n.op == "cast" else self._comparison(n) if n.op in _COMPARISONS else None
                if new is not None:
                    found[n] = new
        return found

    def _cast(self, n: Node) -> Node | None:
        value = self._narrow(n.args[0])
        return None if value is None else self.builder.cast(value, n.dtype)

    def _comparison(self, n: Node) -> Node | None:
        sides = [self._narrow(a) for a in n.args]
        for k in (0, 1):
            if sides[k] is None:
                sides[k] = self._clamped(n.args[k], self._range(n.args[1 - k]))
        a, b = sides
        if a is None or b is None:
            return None
        return self.builder.op(n.op, a, b)

    def _clamped(self, n: Node, other: Range | None) -> Node | None:
        """A 32-bit form of a value that is uniform over the lanes, clamped so that it compares with all values of
        ``other`` like the original; None if there is none."""
        if other is None or not self.vectors.isdisjoint(n.vars):
            return None
        low, high = other[0] - 1, other[1] + 1
        if low < _LIMITS[0] or high > _LIMITS[1]:
            return None
        ops = self.builder
        if n.op == "const":
            return ops.const(min(max(n.attr, low), high), torch.int32)
        least = ops.op("maximum", n, ops.const(low, torch.int64))
        return ops.cast(ops.op("minimum", least, ops.const(high, torch.int64)), torch.int32)

    # ------------------------------------------------------------ nodes in 32 bits
    def _narrow(self, n: Node) -> Node | None:
        """The 32-bit form of a 64-bit node; None unless the ranges of the node and of all its operands fit."""
        if n.id not in self.made:
            self.made[n.id] = self._narrowed(n) if self._range(n) is not None else None
        return self.made[n.id]

    def _narrowed(self, n: Node) -> Node | None:
        ops = self.builder
        if n.op == "const":
            return ops.const(n.attr, torch.int32)
        if n.op == "index":
            return ops.index(n.attr, torch.int32)
        if n.op == "cast":
            return ops.cast(n.args[0], torch.int32)
        args = [self._narrow(a) if a.dtype is torch.int64 else a for a in n.args]
        if any(a is None for a in args):
            return None
        return ops.op(n.op, *(a for a in args if a is not None))

    # ------------------------------------------------------------ ranges
    def _range(self, n: Node) -> Range | None:
        """The bounds of an integer, if they are known and fit 32 bits, and the node can be computed in 32 bits; else
        None."""
        if n.id not in self.ranges:
            known = self._known(n)
            fits = known is not None and _LIMITS[0] <= known[0] and known[1] <= _LIMITS[1]
            self.ranges[n.id] = known if fits else None
        return self.ranges[n.id]

    def _known(self, n: Node) -> Range | None:
        if n.op == "const":
            return int(n.attr), int(n.attr)
        if n.op == "index":
            bounds = ix.value_range(n.attr)
            if bounds is None or not isinstance(bounds[0], int) or not isinstance(bounds[1], int):
                return None
            return bounds[0], bounds[1]
        if n.op == "cast":
            return _NARROW.get(n.args[0].dtype)
        known = [self._range(a) for a in n.args if a.dtype is torch.int64]
        ranges = [r for r in known if r is not None]
        return _computed(n.op, ranges) if len(ranges) == len(known) else None


def _computed(op: str, ranges: Sequence[Range]) -> Range | None:
    """The range of an operation's result; None for operations that are not computed in 32 bits."""
    if op == "neg":
        (low, high), = ranges
        return -high, -low
    if op == "where":
        (a, b), (c, d) = ranges
        return min(a, c), max(b, d)
    if op in ("add", "sub", "mul", "maximum", "minimum"):
        (a, b), (c, d) = ranges
        if op == "mul":
            corners = [x * y for x in (a, b) for y in (c, d)]
            return min(corners), max(corners)
        if op == "maximum":
            return max(a, c), max(b, d)
        if op == "minimum":
            return min(a, c), min(b, d)
        return (a + c, b + d) if op == "add" else (a - d, b - c)
    return None
