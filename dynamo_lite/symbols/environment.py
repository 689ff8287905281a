"""A trace's knowledge of its symbols: the value of each in the traced call, and the decisions made about them.

A trace follows one call. Where it has to know how integers compare, the answer is the one of this call, and the
condition becomes a guard: the trace is valid for every call in which the condition has the same outcome. A condition
that holds for all values of its symbols, or that follows from earlier decisions, needs no guard.

Some symbols are known only to the running graph, such as the number of rows that ``nonzero`` finds. No guard at entry
can tell how they compare, so a comparison raises :class:`Undecidable` if it follows neither from their limits nor from
the conditions that the graph checks.

Invariants: every answer of :meth:`Environment.decide` follows from ``decisions``, from ``checked`` and from the
symbols' lowest values; a symbol that was found equal to an expression is replaced by it in all expressions asked for
later; decisions are about symbols from outside alone; the values of the traced call fulfil the checked conditions.
"""
from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..exc import Unsupported
from . import integers as ints
from .integers import Atom, Expr, Index, Mod, Sym
from .intervals import Interval, Intervals
from .records import Malformed, condition_as_data, condition_of
from .relations import Compound, Condition, Relation, compare, is_short, negated, relation

HIGHEST = (1 << 62) - 1
_EXAMPLE = 29  # example value of a size that only the running graph knows; unusual as a size in programs
_TRIED = 256  # number of candidates tried for a value that fulfils the checked conditions


class NumbersAsked(Exception):
    """C++ decomposes an operator and asks for symbolic sizes as numbers; the operator's decomposition in Python may
    do without them."""


class Frozen(Exception):
    """A condition would have to be decided after the guards were made."""


class Undecidable(Unsupported):
    """A condition on a number that only the running graph knows."""

    def __init__(self, condition: Condition, why: str = "") -> None:
        super().__init__("data_dependent_guard", f"{why or 'the program'} needs to know whether {condition}")


def _no() -> bool:
    return False


class Decision(NamedTuple):
    """A condition that the trace depends on, and the reason for deciding it."""

    condition: Relation
    why: str


class Environment:
    """The symbols of one trace.

    Args:
        place: gives the trace's current place in the user's program, for the texts of guards.
    """

    def __init__(self, place: Callable[[], str] = lambda: "") -> None:
        self.place = place
        self.decisions: list[Decision] = []
        self.frozen = False
        # Name of the operator that is being run, and the reasons for which symbols were fixed to a number.
        self.operator = ""
        self.fixed: list[str] = []
        # True: operators are decomposed in Python, because C++'s decomposition of one asked for sizes as numbers.
        # False: that has failed or is not wanted. None: C++ decomposes.
        self.decomposes_in_python: bool | None = None
        # Whether the operator call in progress may raise NumbersAsked; its caller then repeats it.
        self.may_call_again: Callable[[], bool] = _no
        self.hints: dict[Sym, int] = {}
        # Symbols of sizes that may be 1, a size for which operators treat a dimension differently; see
        # :meth:`elsewhere`.
        self._from_one: list[Sym] = []
        # Remembered results of operators; see `fake.symbolic_cache`.
        self.results: dict[Any, Any] = {}
        # Symbols made by :meth:`_divide`, each with the symbol and the divisor of which it is the quotient.
        self.parts: dict[Sym, tuple[Sym, int]] = {}
        self._intervals = Intervals()
        self._limits = self._intervals.limits
        self._same: dict[Atom, Index] = {}
        # Results of :meth:`simplified` since the last change of `_same`.
        self._simplified: dict[Expr, Index] = {}
        self._known: set[Relation] = set()
        # Answers of :meth:`known` since the last :meth:`_learn`, and results of :meth:`compared`: torch asks the same
        # questions for each tensor that it makes.
        self._answers: dict[Relation, bool | None] = {}
        self._compared: dict[tuple[str, Index, Index], Condition] = {}
        # Expressions that :meth:`is_computable` has accepted since the last change of a hint.
        self._computable: set[Expr] = set()
        # For sums of terms, without the constant: the lower bound that follows from decided inequalities.
        self._bounds: dict[frozenset[tuple[tuple[Atom, ...], int]], int] = {}
        # Symbols that only the running graph knows, each with its lowest and highest value.
        self._running: dict[Sym, tuple[int, int]] = {}
        # Symbols from outside about which the program wants nothing to be decided (mark_unbacked).
        self._unbacked: set[Sym] = set()
        # The conditions on such symbols that the graph checks.
        self.checked: list[Relation] = []

    def new(self, name: str, value: int, lowest: int, highest: int = HIGHEST) -> Expr:
        """A new symbol with the value `value` in this call; the caller makes the guard for `lowest` and `highest`."""
        symbol = Sym(name, lowest)
        self.hints[symbol] = value
        self._limits[symbol] = (lowest, highest)
        self._answers.clear()
        if lowest == 1:
            self._from_one.append(symbol)
        return ints.atom(symbol)

    def define(self, lowest: int, highest: int) -> Expr:
        """A new symbol that only the running graph knows; the graph checks its limits. Where an example value is
        needed, by which nothing is decided, it is some number within the limits."""
        name = f"u{len(self._running)}"
        expr = self.new(name, min(max(_EXAMPLE, lowest), highest), lowest, highest)
        self._running[next(iter(ints.symbols_of(expr)))] = lowest, highest
        return expr

    def is_running(self, x: Index) -> bool:
        """Whether an expression depends on a symbol that only the running graph knows."""
        return bool(self._running) and any(s in self._running for s in ints.symbols_of(self.whole(x)))

    def set_unbacked(self, x: Index) -> None:
        """Forbids decisions about the symbols of `x`, as if only the running graph knew them."""
        self._unbacked |= ints.symbols_of(x)

    def check(self, condition: Condition) -> None:
        """Assumes a condition from now on, because the graph checks it.

        Raises:
            Undecidable: no example values that fulfil the condition were found.
        """
        if self.known(condition) is True:
            return
        if isinstance(condition, Compound) and condition.op == "and":
            for part in condition.parts:
                self.check(part)
            return
        found = relation(condition.op, self.simplified(condition.expr)) if isinstance(condition, Relation) else False
        if not isinstance(found, Relation) or self.frozen:
            raise Undecidable(condition)
        self._choose_values(found)
        self.checked.append(found)
        self._learn(found)

    def _choose_values(self, condition: Relation) -> None:
        """Gives a symbol that only the running graph knows another example value if the checked conditions don't
        hold."""
        checked = [*self.checked, condition]
        if all(self.holds(c) for c in checked):
            return
        for symbol in sorted(ints.symbols_of(self.whole(condition.expr)) & self._running.keys(), key=lambda s: s.name):
            before = self.hints[symbol]
            low, high = self._running[symbol]
            near = sorted(range(max(low, -_TRIED), min(high, _TRIED) + 1), key=lambda n: (n < 2, abs(n)))
            near += range(max(low, high - _TRIED), high + 1)
            ends = (ints.mul(c.expr, sign) for c in checked for sign in (1, -1))
            others = (self.value(ints.add(ints.atom(symbol), end)) for end in ends)
            for value in (*near, *(v for v in others if low <= v <= high)):
                self._set_value(symbol, value)
                if all(self.holds(c) for c in checked):
                    return
            self._set_value(symbol, before)
        raise Undecidable(condition)

    def _set_value(self, symbol: Sym, value: int) -> None:
        self.hints[symbol] = value
        self._computable.clear()
        for part, (of, step) in self.parts.items():
            if of == symbol:
                self._set_value(part, value // step)
        for other, x in self._same.items():
            if other in self._running and symbol in ints.symbols_of(x):
                self.hints[other] = self.value(x)  # type: ignore[index]

    def value(self, x: Index) -> int:
        """The value of an expression in this call."""
        return ints.evaluate(x, self.hints.__getitem__)

    @contextlib.contextmanager
    def instead(self, values: dict[Sym, int]) -> Iterator[None]:
        """A context in which symbols have other values, as in another call."""
        before = {symbol: self.hints[symbol] for symbol in values}
        self.hints.update(values)
        self._computable.clear()
        try:
            yield
        finally:
            self.hints.update(before)
            self._computable.clear()

    def from_one(self) -> frozenset[Sym]:
        """The symbols of sizes that are 1 in some of the calls that the trace is valid for, but not in all of them."""
        if not self._from_one:
            return frozenset()
        open_ones = [x for x in map(self.simplified, map(ints.atom, self._from_one)) if not isinstance(x, int)]
        return frozenset(s for x in open_ones if self.known(compare("==", x, 1)) is None for s in ints.symbols_of(x))

    def elsewhere(self, symbols: Iterable[Sym]) -> dict[Sym, int] | None:
        """Values of symbols in another call that the trace is valid for: 1, or more than 1 if they are 1 in this call.
        None if none of the few values that are tried is admitted."""
        for other in (1, 3, 2, 5):
            values = dict.fromkeys(symbols, other)
            if all(self.hints[s] != 1 for s in values) == (other == 1) and self._admits(values):
                return values
        return None

    def another_call(self, symbols: Iterable[Sym]) -> dict[Sym, int] | None:
        """Values of symbols, each different from that in this call, in another call that the trace is valid for. None
        if none of the few values that are tried is admitted."""
        hints = {symbol: self.hints[symbol] for symbol in symbols}
        for more in (1, 2, 7, -1):
            values = {symbol: hint + more for symbol, hint in hints.items()}
            if self._admits(values):
                return values
        return None

    def _admits(self, values: dict[Sym, int]) -> bool:
        """Whether the trace is valid, as far as is decided, for a call in which symbols have these values."""
        if any(not low <= values[s] <= high for s in values for low, high in [self._limits.get(s, (1, HIGHEST))]):
            return False
        with self.instead(values):
            return all(d.condition.holds(self.value(self.simplified(d.condition.expr))) for d in self.decisions)

    def simplified(self, x: Index) -> Index:
        """The expression after replacing symbols that were found equal to other expressions."""
        if not self._same or isinstance(x, int):
            return x
        found = self._simplified.get(x)
        if found is None:
            found = self._simplified[x] = ints.replace(x, self._same.get)
        return found

    def whole(self, x: Index) -> Index:
        """The expression over symbols from outside alone: named quotients (`parts`) become divisions again."""
        parts: dict[Atom, Index] = {s: ints.floordiv(ints.atom(of), step) for s, (of, step) in self.parts.items()}
        while any(s in parts for s in ints.symbols_of(x)):
            x = ints.replace(x, parts.get)
        return x

    def limits(self, symbol: Sym) -> tuple[int, int]:
        """The lowest and the highest value that a symbol may have."""
        return self._limits[symbol]

    # -- data for another process
    def described(self) -> str:
        """All knowledge as a text: environments with equal texts answer every question alike."""
        symbols = [(s.name, s.lower, self._limits[s]) for s in self.hints]
        parts = [(s.name, of.name, step) for s, (of, step) in self.parts.items()]
        same = [(str(a), str(x)) for a, x in self._same.items()]
        running = ([(s.name, limits) for s, limits in self._running.items()], [str(c) for c in self.checked],
                   sorted(s.name for s in self._unbacked))
        return repr((symbols, parts, same, running, [str(d.condition) for d in self.decisions]))

    def since(self, start: int) -> tuple[Any, ...]:
        """The decisions from number `start` on, as data, about symbols from outside alone."""
        found = []
        for decision in self.decisions[start:]:
            condition = relation(decision.condition.op, self.whole(decision.condition.expr))
            if isinstance(condition, Relation):
                found.append((condition_as_data(condition), decision.why))
        return tuple(found)

    def takes_over(self, decisions: tuple[Any, ...]) -> bool:
        """Makes the decisions that :meth:`since` of an equal environment returned.

        Returns:
            False if one of the conditions does not hold in this call; nothing is decided then.

        Raises:
            Malformed: the data does not describe decisions.
        """
        try:
            found = [(condition_of(data), str(why)) for data, why in decisions]
        except (TypeError, ValueError) as error:
            raise Malformed(f"no decisions: {error}") from error
        symbols = {s for condition, _ in found if isinstance(condition, Relation)
                   for s in ints.symbols_of(condition.expr)}
        if self.frozen or not symbols <= self.hints.keys() or not all(self.holds(c) for c, _ in found):
            return False
        for condition, why in found:
            self.decide(condition, why)
        return True

    # -- questions
    def known(self, condition: Condition) -> bool | None:
        """Whether a condition holds in every call that the trace is valid for; None if that can't be told."""
        if isinstance(condition, bool):
            return condition
        if isinstance(condition, Compound):
            answers = [self.known(part) for part in condition.parts]
            decides = condition.op == "or"
            return decides if decides in answers else None if None in answers else not decides
        try:
            return self._answers[condition]
        except KeyError:
            answer = self._answers[condition] = self._answer(condition)
            return answer

    def compared(self, op: str, a: Index, b: Index) -> Condition:
        """The condition ``a op b``, where `op` is one of Python's comparisons; remembered."""
        found = self._compared.get((op, a, b))
        if found is None:
            found = self._compared[op, a, b] = compare(op, a, b)
        return found

    def _answer(self, condition: Relation) -> bool | None:
        found = relation(condition.op, self.simplified(condition.expr))
        if isinstance(found, bool):
            return found
        assert isinstance(found, Relation)
        if found in self._known:
            return True
        if negated(found) in self._known:
            return False
        low, high = self._within_bounds(found.expr, *self._intervals.shifted(found.expr))
        if found.op == ">=":
            return True if low >= 0 else False if high < 0 else None
        return found.op == "!=" if low > 0 or high < 0 else None

    def _within_bounds(self, x: Expr, low: float, high: float) -> Interval:
        """Narrows an interval of `x` by decided inequalities on expressions that differ from `x` by a constant."""
        if not self._bounds:
            return low, high
        least = self._bounds.get(frozenset(x.terms.items()))
        most = self._bounds.get(frozenset((m, -k) for m, k in x.terms.items()))
        if least is not None:
            low = max(low, x.const + least)
        if most is not None:
            high = min(high, x.const - most)
        return low, high

    # -- decisions
    def decide(self, condition: Condition, why: str = "") -> bool:
        """Whether a condition holds in this call; from now on that answer is required of every call of the trace.

        Args:
            condition: the condition to decide.
            why: the reason for the question, if it is not the line of the program that is being traced.

        Raises:
            Frozen: the guards have been made already.
            Undecidable: the condition depends on a symbol that only the running graph knows.
        """
        known = self.known(condition)
        if known is not None:
            return known
        if isinstance(condition, Compound):
            return self._decide_compound(condition, why)
        assert isinstance(condition, Relation)
        found = relation(condition.op, self.simplified(condition.expr))
        assert isinstance(found, Relation)
        if self.hangs_on_the_run(found):
            raise Undecidable(found, why or self._of_operator())
        holds = found.holds(self.value(found.expr))
        true = found if holds else negated(found)
        assert isinstance(true, Relation)
        if self.frozen:
            raise Frozen(str(true))
        self.decisions.append(Decision(true, why or self.place()))
        self._learn(true)
        return holds

    def _decide_compound(self, condition: Compound, why: str) -> bool:
        """Decides a single part of a compound where this part alone gives the outcome in this call, else all parts."""
        decides = condition.op == "or"
        parts = [part for part in condition.parts if self.known(part) is None]
        for part in parts:
            if not self.hangs_on_the_run(part) and self.holds(part) is decides:
                self.decide(part, why)
                return decides
        for part in parts:
            self.decide(part, why)
        return not decides

    def hangs_on_the_run(self, condition: Condition) -> bool:
        """Whether a condition depends on a symbol that only the running graph knows, or that is treated as such."""
        if isinstance(condition, Compound):
            return any(map(self.hangs_on_the_run, condition.parts))
        if not isinstance(condition, Relation) or not self._running and not self._unbacked:
            return False
        return any(s in self._running or s in self._unbacked for s in ints.symbols_of(self.whole(condition.expr)))

    def holds(self, condition: Condition) -> bool:
        """Whether a condition holds in this call; decides nothing."""
        if isinstance(condition, bool):
            return condition
        if isinstance(condition, Compound):
            answers = map(self.holds, condition.parts)
            return any(answers) if condition.op == "or" else all(answers)
        return condition.holds(self.value(condition.expr))

    def agrees(self, low: Index, high: Index, why: str = "") -> bool:
        """Whether ``low <= high``; if it holds in this call, it is required of every call from now on. Returns False,
        without a guard, if it does not hold in this call or can't be guarded any more."""
        condition = compare("<=", low, high)
        known = self.known(condition)
        if known is not None:
            return known
        if self.frozen or self.hangs_on_the_run(condition):
            return False
        return self.holds(condition) and self.decide(condition, why)

    def certain(self, low: Index, high: Index) -> bool:
        """Whether ``low <= high`` is known without a further guard."""
        return self.known(compare("<=", low, high)) is True

    def fix(self, x: Index, why: str = "") -> int:
        """The value of `x` in this call, which from now on is required of every call that the trace is valid for."""
        value = self.value(x)
        condition = relation("==", ints.add(x, -value))
        if self.known(condition) is None:
            if self.hangs_on_the_run(condition):
                raise Undecidable(condition, why or self._of_operator())
            self.fixed.append(why or self._of_operator())
            self.decide(condition, self.fixed[-1])
        return value

    def bounded(self, x: Index) -> Index:
        """The expression itself, or its value in this call if a guard could not compute the expression."""
        if isinstance(x, int) or self.frozen or x in self._computable:
            return x
        if self.is_computable(x):
            self._computable.add(x)
            return x
        self.fix_symbols(x, "an expression too long for guards")
        return self.value(x)

    def is_computable(self, x: Index) -> bool:
        """Whether a guard can compute an expression, as one of four parts of a condition, with 64-bit integers and the
        values of this call."""
        return isinstance(x, int) or is_short(x, 4) and ints.evaluate_size(x, self.hints.__getitem__) <= HIGHEST

    def fix_symbols(self, x: Index, why: str) -> None:
        """Fixes the symbols of `x` to their values in this call, for every call that the trace is valid for."""
        for symbol in sorted(ints.symbols_of(self.whole(x)), key=lambda s: s.name):
            self.fix(ints.atom(symbol), why)

    def _of_operator(self) -> str:
        place = self.place()
        return f"{self.operator}, in {place}" if self.operator and place else self.operator or place

    # -- consequences
    def _learn(self, true: Relation) -> None:
        self._answers.clear()
        self._known.add(true)
        if true.op == "==":
            self._replace(true.expr)
            return
        self._narrow(true)
        if true.op == ">=" and len(true.expr.terms) > 1:
            terms = frozenset(true.expr.terms.items())
            self._bounds[terms] = max(self._bounds.get(terms, -true.expr.const), -true.expr.const)

    def _replace(self, zero: Expr) -> None:
        """Draws a conclusion from ``zero == 0``: a symbol or remainder that is a term by itself equals the rest of the
        expression and is replaced by it."""
        best = self._alone_in(zero)
        running = self.is_running(zero)
        if best is None or running and isinstance(best, Sym) and best not in self._running:
            return  # a symbol from outside is not replaced by one that is known later
        k = zero.terms[(best,)]
        rest = ints.add(zero, ints.mul(ints.atom(best), -k))
        value = ints.mul(rest, -k)
        if isinstance(best, Mod):
            if value != 0:
                return
            self._divide(best)
        if isinstance(best, Sym):
            if not running:
                self._narrow_by(best, value)
            if isinstance(value, int):
                self._limits[best] = value, value
        self._becomes(best, value)

    def _alone_in(self, zero: Expr) -> Atom | None:
        """The newest symbol that is a term by itself and occurs nowhere else in an expression; else such a
        remainder."""
        best: Atom | None = None
        for monomial, k in zero.terms.items():
            a = monomial[0]
            if len(monomial) == 1 and abs(k) == 1 and isinstance(a, (Sym, Mod)):
                others = {m for m in zero.terms if m != monomial}
                if any(a in ints.atoms_of(Expr({m: 1}, 0)) for m in others):
                    continue
                # The newest symbol is replaced, so that symbols that came in first stay.
                if best is None or isinstance(a, Sym) and (isinstance(best, Mod) or self._age(a) > self._age(best)):
                    best = a
        return best

    def _becomes(self, a: Atom, value: Index) -> None:
        """Replaces an atom by `value` from now on."""
        new: dict[Atom, Index] = {a: value}
        self._same = {other: ints.replace(x, new.get) for other, x in self._same.items()} | new
        self._simplified.clear()

    def _age(self, a: Atom) -> int:
        if not isinstance(a, Sym):
            return -1
        return list(self.hints).index(a) + (len(self.hints) if a in self._running else 0)

    def _divide(self, zero: Mod) -> None:
        """Draws a conclusion from ``x % d == 0``: ``k * d * (x // d)`` equals ``k * x``. A symbol ``x`` is replaced by
        ``d`` times a new symbol, its quotient."""
        x = zero.expr
        if isinstance(x, int) or not isinstance(zero.divisor, int) or len(x.terms) != 1 or x.const:
            return
        ((monomial, k),) = x.terms.items()
        symbol = monomial[0]
        step = zero.divisor // math.gcd(zero.divisor, k)
        if len(monomial) != 1 or not isinstance(symbol, Sym) or step == 1 or symbol in self._same:
            return
        low, high = self._limits[symbol]
        part = Sym(f"{symbol.name}_by_{step}", -(-low // step))
        self.hints[part] = self.hints[symbol] // step
        self._limits[part] = (-(-low // step), high // step)
        self.parts[part] = (symbol, step)
        self._becomes(symbol, ints.mul(ints.atom(part), step))

    def _narrow_by(self, symbol: Sym, value: Index) -> None:
        """Applies the limits of `symbol` to `value`, which it was found equal to, if `value` is a symbol itself."""
        if isinstance(value, Expr) and not value.const and len(value.terms) == 1:
            ((monomial, k),) = value.terms.items()
            other = monomial[0]
            if len(monomial) == 1 and k == 1 and isinstance(other, Sym):
                (a, b), (c, d) = self._limits[symbol], self._limits[other]
                self._limits[other] = max(a, c), min(b, d)

    def _narrow(self, true: Relation) -> None:
        """Narrows the limits of a symbol by ``k*s + c >= 0`` or ``!= 0``. If they leave one value, the symbol is
        replaced by this number."""
        if len(true.expr.terms) != 1:
            return
        ((monomial, k),) = true.expr.terms.items()
        symbol, c = monomial[0], true.expr.const
        if len(monomial) != 1 or not isinstance(symbol, Sym):
            return
        low, high = self._limits[symbol]
        if true.op == ">=":
            if k > 0:
                low = max(low, -(c // k))
            else:
                high = min(high, c // -k)
        elif c % k == 0:
            low += low == -c // k
            high -= high == -c // k
        self._limits[symbol] = low, high
        if low == high and symbol not in self._same:
            self._becomes(symbol, int(low))
