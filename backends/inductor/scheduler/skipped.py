"""Columns of scores that need not be computed: those in which a condition gives all of a block's scores minus infinity.

A softmax gives such a score the weight 0, so that neither the score nor its value matters. That the kernels between two
products behave like this is derived by abstract interpretation (``may_skip``; Cousot and Cousot, 1977): values are
known constants, finite numbers, numbers that depend on how many columns are computed, or unknown.

Invariant: if ``may_skip`` holds, then without columns whose scores are minus infinity the kernels store the same
results as with them, and the weights of these columns are 0 (or NaN in a row all of whose weights are NaN).
"""
from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Store


class Abstract(enum.Enum):
    """What is known of a value that is no known constant."""

    FINITE = "a finite number"
    UNKNOWN = "any value, the same whether columns are left out or not"
    COUNTED = "a value that depends on which columns are computed"


_LARGEST = 1e12
"""Magnitude of constants that a program combines with scores without overflow, which are smaller than 1e24."""

Value = Any
"""A constant (float, int, bool) or an ``Abstract``."""

_IDENTITY: dict[str, Value] = {"sum": 0.0, "max": -math.inf, "min": math.inf, "any": False, "all": True}


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """``node`` holds, or does not if ``inverted``; or, if ``added``, it is a number other than minus infinity."""

    node: Node
    inverted: bool = False
    added: bool = False

    def of(self, builder: Builder, places: Mapping[ix.Var, ix.Index]) -> Node:
        """The condition as a node, with loop variables replaced."""
        node = builder.substitute(self.node, places)
        if self.added:
            return builder.op("ne", node, builder.const(-math.inf, node.dtype))
        return builder.op("not", node) if self.inverted else node


@dataclasses.dataclass(frozen=True, slots=True)
class Mask:
    """Which scores are not minus infinity: those for which the condition holds. ``scores``: the ids of the nodes that
    are masked scores; none if the buffer holds these."""

    condition: Condition
    scores: frozenset[int]


def stored_mask(kernel: Kernel, scores: str) -> Mask | None:
    """The mask by which a kernel stores scores; None if there is none that could be evaluated before the product."""
    stored = [s for s in kernel.statements() if isinstance(s, Store) and s.buffer == scores]
    if len(stored) != 1:
        return None
    value = stored[0].value
    while value.op == "cast":
        (value,) = value.args
    found = _condition(value, scores)
    return None if found is None else Mask(found, frozenset())


def loaded_mask(kernel: Kernel, scores: str) -> Mask | None:
    """The mask that a kernel applies to the scores wherever it uses them; None if there is none, or more than one."""
    roots = [s.value for s in kernel.statements()]
    masked = {n.id: c for n in walk(roots) for c in [_condition(n, scores)] if c is not None}
    conditions = dict.fromkeys(masked.values())
    # Masked scores are not searched for scores.
    unmasked = any(n.op == "load" and n.attr[0] == scores for n in walk(roots, masked))
    if len(conditions) != 1 or unmasked:
        return None
    return Mask(next(iter(conditions)), frozenset(masked))


def _condition(value: Node, scores: str) -> Condition | None:
    """The condition under which a ``where``, or a sum of a score and a mask, is not minus infinity; None for other
    nodes, and if the condition is known only after the product. In the sum, scores are taken to be finite."""
    if value.op == "where":
        node, a, b = value.args
        if not _is_known(node, scores) or not (_is_minus_infinity(a) or _is_minus_infinity(b)):
            return None
        return Condition(node, inverted=_is_minus_infinity(a))
    if value.op == "add":
        for mask, score in (value.args, value.args[::-1]):
            if _is_known(mask, scores) and not _is_known(score, scores) and _may_exclude(mask) and _is_bounded(
                    score, scores):
                return Condition(mask, added=True)
    return None


def _is_bounded(value: Node, scores: str) -> bool:
    """Whether a value computed from scores that are far from overflow is finite, too. (Its sum with minus infinity is
    NaN otherwise.) Rounded to float16, scores above 65,504 are infinite."""
    overflow = any(n.op in ("exp", "exp2") or n.op == "div" and n.args[1].op != "const" or n.dtype is torch.float16
                   for n in walk((value,)))
    return not overflow and (
        _evaluate(value, {scores: Abstract.FINITE}, {}, {}, Abstract.FINITE) is Abstract.FINITE)


def _may_exclude(mask: Node) -> bool:
    """Whether an added value is likely to be a mask: it is minus infinity somewhere, or read from a matrix. The test of
    any other would be a waste of time."""
    return any(_is_minus_infinity(n) or n.op == "load" and len(n.vars) > 1 for n in walk((mask,)))


def _is_known(node: Node, scores: str) -> bool:
    """Whether a value is known before the product."""
    return not any(n.op in ("acc", "bounded") or n.op == "load" and n.attr[0] == scores for n in walk((node,)))


def _is_minus_infinity(n: Node) -> bool:
    return n.op == "const" and isinstance(n.attr, float) and n.attr == -math.inf


def may_skip(kernels: Sequence[Kernel], scores: str, weights: str, local: set[str], masked: frozenset[int]) -> bool:
    """Whether columns with scores of minus infinity may be left out.

    Args:
        kernels: those between the products, in order.
        scores, weights: the buffer that the first one reads, and the one that the second product reads.
        local: buffers that nothing else reads.
        masked: the nodes that are scores, by id, besides what is loaded from ``scores``.
    """
    return all(_Row(scores, local, masked, empty).passes(kernels, weights) for empty in (False, True))


class _Row:
    """What the kernels compute from the columns of one row that are left out.

    Attributes:
        empty: whether all scores of the row are minus infinity; otherwise at least one is finite.
    """

    def __init__(self, scores: str, local: set[str], masked: frozenset[int], empty: bool):
        self.local, self.empty = local, empty
        score = -math.inf if empty else Abstract.FINITE
        self.left_out: dict[str, Value] = {scores: -math.inf}
        self.others: dict[str, Value] = {scores: score}
        self.masked_left_out: dict[int, Value] = dict.fromkeys(masked, -math.inf)
        self.masked_others: dict[int, Value] = dict.fromkeys(masked, score)

    def passes(self, kernels: Sequence[Kernel], weights: str) -> bool:
        """Whether all results are the same without the columns that are left out."""
        return all(map(self._kernel, kernels)) and self._vanishes(self.left_out[weights])

    def _vanishes(self, weight: Value) -> bool:
        return weight == 0 or self.empty and isinstance(weight, float) and math.isnan(weight)

    def _kernel(self, kernel: Kernel) -> bool:
        accs: dict[str, Value] = {}
        left_out, others = dict(self.left_out), dict(self.others)  # scratch memory included
        for stage in kernel.stages:
            for s in stage.statements:
                skipped = _evaluate(s.value, left_out, accs, self.masked_left_out)
                other = _evaluate(s.value, others, accs, self.masked_others)
                if isinstance(s, Accumulate):
                    accs[s.acc] = self._reduced(s.kind, skipped, other)
                elif stage.inner:
                    if s.buffer not in self.local and s.buffer not in kernel.scratch:
                        return False  # each column is stored
                    left_out[s.buffer], others[s.buffer] = skipped, other
                elif skipped is Abstract.COUNTED:
                    return False
                elif s.buffer in self.local:
                    left_out[s.buffer] = others[s.buffer] = skipped
        self.left_out, self.others = left_out, others
        return True

    def _reduced(self, kind: str, skipped: Value, other: Value) -> Value:
        """The result of a reduction over a row."""
        if kind not in _IDENTITY or not _same(skipped, _IDENTITY[kind]):
            # Without a finite score all columns are alike, so that these results do not depend on their number.
            alike = self.empty and kind in ("max", "min", "any", "all") and not isinstance(skipped, Abstract)
            nan = self.empty and isinstance(skipped, float) and math.isnan(skipped)
            return skipped if alike or nan else Abstract.COUNTED
        if self.empty:
            return skipped
        # One score at least is finite; of the others nothing is known but that they are as these or left out.
        if kind in ("any", "all"):
            return other if isinstance(other, bool) else Abstract.UNKNOWN
        return Abstract.FINITE if other is Abstract.FINITE else Abstract.UNKNOWN


def _same(a: Value, b: Value) -> bool:
    return not isinstance(a, Abstract) and a == b


def _evaluate(root: Node, loads: dict[str, Value], accs: dict[str, Value], nodes: dict[int, Value],
              acc: Value = Abstract.UNKNOWN) -> Value:
    """The value of an expression, given those of buffers, reductions and some nodes. ``acc``: of other reductions."""
    values: dict[int, Value] = {}
    for n in walk((root,), nodes):
        if n.id in nodes:
            values[n.id] = nodes[n.id]
        elif n.op == "load":
            values[n.id] = loads.get(n.attr[0], Abstract.UNKNOWN)
        elif n.op == "acc":
            values[n.id] = accs.get(n.attr, acc)
        elif n.op == "const":
            values[n.id] = n.attr
        else:
            values[n.id] = _operation(n, [values[a.id] for a in n.args])
    return values[root.id]


def _operation(n: Node, args: list[Value]) -> Value:
    if n.op == "where" and not isinstance(args[0], Abstract):
        return args[1] if args[0] else args[2]
    if any(a is Abstract.COUNTED for a in args):
        return Abstract.COUNTED
    if n.op == "cast":
        return _cast(n, args[0])
    special = _SPECIAL.get(n.op)
    known = not any(isinstance(a, Abstract) for a in args)
    if special is not None and not known:
        return special(*args)
    if not known or n.op not in OPS or not args:
        return Abstract.UNKNOWN
    result = OPS[n.op].reference(*(torch.tensor(a, dtype=operand.dtype) for a, operand in zip(args, n.args)))
    return result.item()


def _cast(n: Node, value: Value) -> Value:
    if isinstance(value, Abstract):
        return value if n.dtype.is_floating_point or value is not Abstract.FINITE else Abstract.UNKNOWN
    return torch.tensor(value, dtype=n.args[0].dtype).to(n.dtype).item()


def _finite(*args: Value) -> Value:
    """The result of an operation whose result is finite for finite operands."""
    return Abstract.FINITE if all(map(_is_finite, args)) else Abstract.UNKNOWN


def _is_finite(x: Value) -> bool:
    """Whether a value is a number far from overflow, so that its product with another such number is finite."""
    return x is Abstract.FINITE or not isinstance(x, Abstract) and abs(x) < _LARGEST


def _is_infinite(x: Value) -> bool:
    return not isinstance(x, Abstract) and math.isinf(x)


def _sum(sign: int) -> Callable[[Value, Value], Value]:
    def result(a: Value, b: Value) -> Value:
        if _is_infinite(a) and _is_finite(b):
            return a
        if _is_infinite(b) and _is_finite(a):
            return sign * b
        return _finite(a, b)

    return result


def _product(a: Value, b: Value) -> Value:
    if _is_finite(a) and _is_finite(b) and (_same(a, 0) or _same(b, 0)):
        return 0.0
    return _finite(a, b)


def _quotient(a: Value, b: Value) -> Value:
    if not isinstance(b, Abstract):
        return _finite(a, b) if 1 / _LARGEST < abs(b) else Abstract.UNKNOWN
    if b is not Abstract.FINITE or not _is_finite(a):
        return Abstract.UNKNOWN
    # If the divisor is 0, too, it is the sum of weights that are all 0, and all columns are NaN.
    if _same(a, 0):
        return 0.0
    # The reciprocal of a small divisor is infinite, and its product with 0 is NaN.
    return Abstract.FINITE if a is Abstract.FINITE else Abstract.UNKNOWN


def _chosen(condition: Value, a: Value, b: Value) -> Value:
    return a if a is b or _same(a, b) else _finite(a, b)


def _multiplied_and_added(a: Value, b: Value, c: Value) -> Value:
    return _sum(1)(_product(a, b), c)


def _compared(equal: bool) -> Callable[[Value, Value], Value]:
    def result(a: Value, b: Value) -> Value:
        for x, y in ((a, b), (b, a)):
            if x is Abstract.FINITE and not isinstance(y, Abstract) and not math.isfinite(y):
                return not equal
        return Abstract.UNKNOWN

    return result


_SPECIAL: dict[str, Callable[..., Value]] = {
    "add": _sum(1), "sub": _sum(-1), "mul": _product, "div": _quotient, "eq": _compared(True),
    "ne": _compared(False), "where": _chosen, "fma": _multiplied_and_added, "exp": _finite,
    "exp2": _finite, "neg": _finite, "abs": _finite, "tanh": _finite, "sin": _finite, "cos": _finite, "erf": _finite,
}
