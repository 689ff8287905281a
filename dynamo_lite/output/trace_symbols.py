"""The symbols of a trace: their sources, the graph nodes that compute with them, and the guards that they need.

Invariant: a source has one symbol, and an expression has one node in a graph.
"""
from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from ..guards import GuardSet
from ..guards.sizes import guard_condition, guard_decisions
from ..guards.source import PathKey, Source
from ..symbols import integers as ints
from ..symbols.environment import HIGHEST, Environment
from ..symbols.integers import Atom, Division, Expr, Index, Sym
from ..symbols.nodes import expression_of, symbolic_int
from ..symbols.relations import Condition
from ..variables.numbers.scalars import ScalarVariable

if TYPE_CHECKING:
    from ..variables.protocols import Tracer


class TraceSymbols:
    """The symbols of one trace.

    Args:
        env: makes the environment of the symbols; called when the first symbol is needed.
    """

    def __init__(self, env: Callable[[], Environment]) -> None:
        self._make_env = env
        self._env: Environment | None = None
        self.sources: dict[Sym, Source] = {}
        self._of_source: dict[PathKey, Expr] = {}
        self._roots: dict[Sym, Callable[[Tracer], fx.Node]] = {}
        self._numbers: dict[tuple[int, Index], ScalarVariable] = {}
        self._shared: dict[Any, Expr] = {}
        self._tracer: Tracer | None = None  # the tracer that defined symbols known at run time only

    @property
    def any(self) -> bool:
        """Whether there are symbols."""
        return self._env is not None

    @property
    def decided(self) -> int:
        """How many conditions have been decided."""
        return 0 if self._env is None else len(self._env.decisions)

    @property
    def env(self) -> Environment:
        """The environment, which knows the symbols' values and ranges."""
        if self._env is None:
            self._env = self._make_env()
        return self._env

    def on_a_border(self) -> bool:
        """Whether the comparisons leave a symbol one possible value although the program has not tested for that value:
        the trace then serves only the border between two cases, such as the call at which a window is just full."""
        if self._env is None:
            return False
        asked = {s for d in self._env.decisions if d.condition.op == "==" for s in ints.symbols_of(d.condition.expr)}
        limits = (self._env.limits(symbol) for symbol in self.sources if symbol not in asked)
        return any(low == high for low, high in limits)

    def enter(self, tx: Tracer) -> None:
        """From now on, decisions are attributed to the program line that this tracer evaluates."""
        self.env.place = lambda: _place(tx)

    def add(
        self, tx: Tracer, source: Source, value: int, lowest: int, root: Callable[[Tracer], fx.Node],
        highest: int = HIGHEST,
    ) -> Expr:
        """The symbol of an int from outside whose value in this call is `value`.

        Args:
            root: makes the graph node that computes the symbol.
        """
        known = self._of_source.get(source.key)
        if known is not None:
            return known
        self.enter(tx)
        expr = self.env.new(f"s{len(self.sources)}", value, lowest, highest)
        (symbol,) = ints.symbols_of(expr)
        self.sources[symbol] = source
        self._of_source[source.key] = expr
        self._roots[symbol] = root
        return expr

    def define(self, tx: Tracer, expr: Expr, node: fx.Node) -> None:
        """Registers the node that computes a symbol known at run time only."""
        self.enter(tx)
        (symbol,) = ints.symbols_of(expr)
        self._roots[symbol] = lambda _: node
        self._tracer = tx

    @property
    def any_running(self) -> bool:
        """Whether there are symbols that are known at run time only."""
        return self._tracer is not None

    def is_running(self, x: Index) -> bool:
        """Whether an expression is known at run time only."""
        return self._env is not None and self._env.is_running(x)

    def hangs_on_the_run(self, condition: Condition) -> bool:
        """Whether a condition is decided at run time only."""
        return self._env is not None and self._env.known(condition) is None and self._env.hangs_on_the_run(condition)

    def output_number(self, x: Index) -> ScalarVariable:
        """An expression that is known at run time only, as a number for the graph to return."""
        assert self._tracer is not None
        return self.number(self._tracer, x)

    def share(self, expr: Expr, value: int, guards: GuardSet, grows: bool = False) -> Expr:
        """The symbol to use for a size: that of the first size with this value, with a guard on their equality. A size
        that grows from call to call shares no symbol with one that does not, since they are equal by chance."""
        first = self._shared.setdefault((value, grows), expr)
        if first is expr:
            return expr
        guard_condition(guards, "==", ints.add(expr, ints.mul(first, -1)), self.sources, "", shared=True)
        return first

    def forget(self) -> None:
        """Drops references to the trace. The graph's fake tensors keep the environment alive."""
        if self._env is not None:
            self._env.place = lambda: ""
        self._roots.clear()
        self._numbers.clear()
        self._tracer = None

    # -- descriptions and guards
    def describe(self, x: Index) -> str:
        """An expression in the user's names."""
        names = {s: source.name for s, source in self.sources.items()}
        return names.get(next(iter(ints.symbols_of(x)))) or str(x) if not isinstance(x, int) else str(x)

    def whole(self, x: Index) -> Index:
        """The expression rewritten in terms of symbols from outside only."""
        return self.env.whole(x)

    def guard(self, guards: GuardSet) -> None:
        """Adds the guards for all decisions."""
        if self._env is not None and not self._env.frozen:
            guard_decisions(guards, self._env, self.sources)
            self._env.frozen = True

    # -- the graph
    def number(self, tx: Tracer, x: Index) -> ScalarVariable:
        """A graph number that computes an expression."""
        key = (id(tx.output.graph), x)
        known = self._numbers.get(key)
        if known is None or known.node._erased:
            origins = self._origins(x)
            fake = symbolic_int(self.env, x)
            known = self._numbers[key] = ScalarVariable(self._node(tx, self.whole(x)), int, fake, origins)
        return known

    def _node(self, tx: Tracer, x: Index) -> Any:
        if isinstance(x, int):
            return x
        total: Any = None
        for monomial, k in x.terms.items():
            part: Any = k if k != 1 else None
            for a in monomial:
                factor = self._of_atom(tx, a)
                part = factor if part is None else self._made(tx, operator.mul, part, factor)
            total = part if total is None else self._made(tx, operator.add, total, part)
        return self._made(tx, operator.add, total, x.const) if x.const else total

    def _of_atom(self, tx: Tracer, a: Atom) -> fx.Node:
        key = (id(tx.output.graph), ints.atom(a))
        known = self._numbers.get(key)
        if known is not None and not known.node._erased:
            return known.node
        if isinstance(a, Division):
            # Also cached: a value that is repeatedly divided and added to itself doubles its number of terms each time.
            node = self._made(tx, a.of, self._node(tx, a.expr), self._node(tx, a.divisor))
        else:
            assert isinstance(a, Sym)
            node = self._roots[a](tx)
        self._numbers[key] = ScalarVariable(node, int, symbolic_int(self.env, key[1]), self._origins(key[1]))
        return node

    def _origins(self, x: Index) -> frozenset[PathKey] | None:
        """Paths of the values that an expression is computed from; None if it is known at run time only."""
        if self.is_running(x):
            return None
        return frozenset(self.sources[s].key for s in ints.symbols_of(self.whole(x)))

    def _made(self, tx: Tracer, function: Any, left: Any, right: Any) -> fx.Node:
        values = [n.meta["example_value"] if isinstance(n, fx.Node) else n for n in (left, right)]
        fake = function(*values)
        if any(self.is_running(expression_of(n)) for n in values):
            return tx.output.create_node(tx, "call_function", function, (left, right), {}, fake, False, counted=False)
        return tx.output.compute_at_entry(tx, "call_function", function, (left, right), fake)


def _place(tx: Tracer) -> str:
    """Source line and position of the program line that is being traced."""
    stack = tx.user_stack()
    if not stack:
        return ""
    frame = stack[-1]
    return f"`{frame.line}` at {os.path.basename(frame.filename)}:{frame.lineno}"
