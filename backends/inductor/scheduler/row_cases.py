"""What is stored for a row of scores, in terms of its largest score and the sum of its exponentials alone.

A second function of the same scores, as ``logsumexp`` beside a softmax, has reductions of its own: its scores are 0 in
rows without any, and what it subtracts is 0 where the largest score is infinite. Case by case these are numbers, or the
reductions that the softmax has: the largest score is finite, infinite of either sign, or NaN (partial evaluation by
cases; Jones, Gomard and Sestoft, 1993).

Invariant: a node made by ``by_cases`` has the value of the original one, for whole rows of any scores.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate


def by_cases(
    builder: Builder, node: Node, largest: Accumulate, total: Accumulate, reductions: Sequence[Accumulate]
) -> Node | None:
    """A value of a row that depends on no reductions but ``largest`` and ``total``; None if it can't be shown to."""
    finite = _Case(builder, largest, total, reductions, None).value(node)
    if finite is None:
        return None
    chosen, most = finite, builder.acc(largest.acc, largest.value.dtype, frozenset())
    for special in (-math.inf, math.inf, math.nan):
        value = _Case(builder, largest, total, reductions, special).value(node)
        if value is None or value.op != "const":
            return None
        test = builder.op("ne", most, most) if math.isnan(special) else builder.op(
            "eq", most, builder.const(special, most.dtype))
        chosen = builder.op("where", test, value, chosen)
    return chosen


class _Case:
    """Values in rows whose largest score is ``special``, or finite if that is None."""

    def __init__(self, builder: Builder, largest: Accumulate, total: Accumulate, reductions: Sequence[Accumulate],
                 special: float | None) -> None:
        self.builder, self.special = builder, special
        self.largest, self.total = largest, total
        self.score = largest.value
        self.reductions = {a.acc: a for a in reductions}
        self.found: dict[str, Node | None] = {}

    def value(self, root: Node) -> Node | None:
        """The value, which is a constant or depends on no other reduction than ``largest`` and ``total``."""
        made = self._simplified(root)
        allowed = {self.largest.acc, self.total.acc} if self.special is None else set()
        loose = any(n.op == "acc" and n.attr not in allowed or n is self.score for n in walk((made,)))
        return None if loose else made

    def _simplified(self, root: Node) -> Node:
        done: dict[int, Node] = {}
        for n in walk((root,), {self.score.id: self.score}):
            if n is self.score:
                # Without a finite score all of a row's are alike.
                done[n.id] = n if self.special != -math.inf else self._number(-math.inf, n)
            elif n.op == "acc":
                done[n.id] = self._reduction(n) or n
            else:
                done[n.id] = self._operation(n, tuple(done[a.id] for a in n.args))
        return done[root.id]

    def _number(self, value: float, like: Node) -> Node:
        return self.builder.const(value, like.dtype)

    def _operation(self, n: Node, args: tuple[Node, ...]) -> Node:
        if n.op == "where" and args[0].op == "const":
            return args[1] if args[0].attr else args[2]
        if not args or n.op not in OPS and n.op != "cast":
            return n
        if all(a.op == "const" for a in args):
            given = [torch.tensor(a.attr, dtype=a.dtype) for a in args]
            result = given[0].to(n.dtype) if n.op == "cast" else OPS[n.op].reference(*given)
            return self.builder.const(result.item(), n.dtype)
        if n.op in _STRICT and any(_is(a, math.nan) for a in args):
            return self._number(math.nan, n)
        if n.op == "sub" and _is(args[1], 0.0):
            return args[0]
        if self.special is None and n.op in ("eq", "ne"):
            finite = self._is_largest(args[0]) or _is_magnitude(args[0]) and self._is_largest(args[0].args[0])
            if finite and args[1].op == "const" and not math.isfinite(args[1].attr):
                return self.builder.const(n.op == "ne", torch.bool)
        return self.builder.rebuild(n, args)

    def _is_largest(self, n: Node) -> bool:
        return n.op == "acc" and n.attr == self.largest.acc

    def _reduction(self, n: Node) -> Node | None:
        """What a reduction of a row is; None if that is not known."""
        if n.attr == self.largest.acc:
            return n if self.special is None else self._number(self.special, n)
        if n.attr not in self.found:
            a = self.reductions.get(n.attr)
            self.found[n.attr] = None if a is None else self._reduced(a, n)
        return self.found[n.attr]

    def _reduced(self, a: Accumulate, n: Node) -> Node | None:
        value, builder = self._simplified(a.value), self.builder
        if value.op == "const":
            same = a.kind in ("max", "min", "any", "all") or a.kind == "sum" and (
                value.attr == 0 or not math.isfinite(value.attr))
            return builder.const(value.attr, n.dtype) if same else None
        if a.kind == "max" and value is self.score:
            return self._reduction(builder.acc(self.largest.acc, n.dtype, frozenset()))
        if a.kind == "all" and value.op == "eq" and value.args[0] is self.score and _is(value.args[1], -math.inf):
            return builder.const(False, torch.bool)  # one score at least is larger, or NaN
        if a.kind != "sum" or value.op != "exp":
            return None
        if value.args[0] is self.score and self.special == math.inf:
            return self._number(math.inf, n)  # with an exponential of infinity, and none that is NaN
        difference = value.args[0]
        exponential = difference.op == "sub" and difference.args[0] is self.score and self._is_largest(
            difference.args[1])
        return builder.acc(self.total.acc, n.dtype, n.vars) if exponential and self.special is None else None


# Operations with a result of NaN if any operand is NaN.
_STRICT = frozenset({"add", "sub", "mul", "div", "exp", "exp2", "log", "log2", "neg", "abs", "tanh", "sqrt"})


def _is(n: Node, value: float) -> bool:
    if n.op != "const" or isinstance(n.attr, bool):
        return False
    return math.isnan(n.attr) if math.isnan(value) else bool(n.attr == value)


def _is_magnitude(n: Node) -> bool:
    return n.op == "abs"
