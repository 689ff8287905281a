"""Numbers that only the running graph knows and that are used as sizes: the expressions that they are computed from,
how they compare, and what the program asserts about them.

A size that depends on elements is a symbol of its own kind (``symbols.environment``); so is a number out of a tensor
that is used as a size. A comparison of such a symbol that the trace can't answer is a :class:`RunningCondition`, which
the graph computes. Conditions that ``torch._check`` asserts about it are taken for granted from then on. So is the side
that a branch takes if its other side only raises.

Invariant: a node of the graph checks each condition that is taken for granted, before any node that relies on it. Where
a check fails, the frame runs again in plain Python, which raises the program's own exception.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...runtime.running_sizes import check, number_within
from ...symbols import integers as ints
from ...symbols.environment import HIGHEST, Undecidable
from ...symbols.integers import Index
from ...symbols.nodes import IntNode, symbolic_int
from ...symbols.relations import Condition, compare, negated
from ..constant import COMPARE
from .scalars import ScalarVariable, is_unknown, new_number

if TYPE_CHECKING:
    from ..protocols import Tracer

LOWEST = -HIGHEST
_COMPARED = {function: op for op, function in COMPARE.items() if op in ("==", "!=", "<", "<=", ">", ">=")}


class RunningCondition(ScalarVariable):
    """A bool that the graph computes: whether a condition on sizes holds."""

    condition: Condition

    @classmethod
    def of(cls, tx: Tracer, op: str, left: Index, right: Index) -> RunningCondition:
        """The bool ``left op right``, as a node of the graph."""
        symbols = tx.output.symbols
        sides = tuple(x if isinstance(x, int) else symbols.number(tx, x).node for x in (left, right))
        fake = new_number(tx.output, bool, None)
        node = tx.output.create_node(tx, "call_function", COMPARE[op], sides, {}, fake, False, counted=False)
        made = cls(node, bool, fake, None)
        made.condition = compare(op, left, right)
        return made


def condition_of(tx: Tracer, value: Any) -> Condition | None:
    """The condition on sizes that a bool of the graph expresses; None if it expresses none."""
    if isinstance(value, RunningCondition):
        return value.condition
    node = value.node if isinstance(value, ScalarVariable) and value.origins is None and value.cls is bool else None
    if node is None or node.op != "call_function" or node.target not in _COMPARED or len(node.args) != 2:
        return None
    sides = [size_expression(tx, a) for a in node.args]
    if any(side is None for side in sides):
        return None
    return compare(_COMPARED[node.target], *sides)  # type: ignore[arg-type]


def take_for_granted(tx: Tracer, value: ScalarVariable, truth: bool = True) -> None:
    """Takes for granted from now on that a bool which the graph computes equals `truth`, and has the graph check it.

    Raises:
        Undecidable: no sizes can fulfil the condition.
    """
    condition = condition_of(tx, value)
    node = tx.output.create_node(
        tx, "call_function", check, (value.node, truth), {}, new_number(tx.output, bool, None), False, counted=False)
    node.meta["raises"] = True
    tx.output.assume(tx.root_visit())
    if condition is not None:
        env = tx.output.symbols.env
        condition = condition if truth else negated(condition)
        if env.known(condition) is False:
            raise Undecidable(condition)
        env.check(condition)


# ---------------------------------------------------------------- numbers out of tensors
_ARITHMETIC: dict[Any, Callable[[Index, Index], Index]] = {
    operator.add: ints.add, operator.mul: ints.mul, operator.sub: lambda a, b: ints.add(a, ints.mul(b, -1)),
}


def size_expression(tx: Tracer, value: Any) -> Index | None:
    """An argument of the graph as an expression over symbols; None if it is not an int."""
    if type(value) is int:
        return value
    if not isinstance(value, fx.Node):
        return None
    fake = value.meta.get("example_value")
    if isinstance(fake, torch.SymInt) and isinstance(fake.node, IntNode):
        return fake.node.expr
    if not is_unknown(fake) or not isinstance(fake, torch.SymInt):
        return None
    known: Index | None = value.meta.get("as_size")
    if known is None:
        known = value.meta["as_size"] = _expression_of(tx, value)
    return tx.output.symbols.env.simplified(known)


def _expression_of(tx: Tracer, node: fx.Node) -> Index:
    made = _ARITHMETIC.get(node.target) if node.op == "call_function" else None
    if made is not None and len(node.args) == 2:
        sides = [size_expression(tx, a) for a in node.args]
        if None not in sides:
            return made(*sides)  # type: ignore[arg-type]
    output = tx.output
    expr = output.symbols.env.define(LOWEST, HIGHEST)
    fake = symbolic_int(output.symbols.env, expr)
    number = output.create_node(
        tx, "call_function", number_within, (node, LOWEST, HIGHEST), {}, fake, False, counted=False)
    number.meta["raises"] = True
    output.symbols.define(tx, expr, number)
    return expr


def as_sizes(tx: Tracer, args: Any, least: int) -> Any:
    """Arguments of the graph with symbols in place of numbers out of tensors, which are taken to be at least `least`;
    None if there are no such numbers."""
    found = False

    def size(node: fx.Node) -> Any:
        nonlocal found
        fake = node.meta.get("example_value")
        is_running = isinstance(fake, torch.SymInt) and isinstance(fake.node, IntNode) and (
            tx.output.symbols.is_running(fake.node.expr))
        if not is_running and not (is_unknown(fake) and isinstance(fake, torch.SymInt)):
            return node
        expr = size_expression(tx, node)
        assert expr is not None
        found = True
        ensure_least(tx, expr, least)
        now = tx.output.symbols.env.simplified(expr)
        return now if isinstance(now, int) else tx.output.symbols.number(tx, now).node

    made = fx.node.map_arg(args, size)
    return made if found else None


def ensure_least(tx: Tracer, expr: Index, least: int) -> None:
    """Takes for granted that a number which only the running graph knows is at least `least`."""
    if tx.output.symbols.env.known(compare(">=", expr, least)) is not True:
        take_for_granted(tx, RunningCondition.of(tx, ">=", expr, least))
