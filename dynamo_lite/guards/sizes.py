"""Guards on symbolic integers: the values that a symbol may have, and a trace's decisions about several symbols.

Invariant: if the guards made here hold in a call, the trace's decisions hold in it.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..symbols import integers as ints
from ..symbols.environment import Environment
from ..symbols.integers import Division, FloorDiv, Index, Mod, Sym
from ..symbols.relations import Relation, is_short
from .guard import GuardSet, because
from .source import Source

_PUSH, _LOAD, _ADD, _MUL, _FLOORDIV, _MOD = range(6)
_COMPARISONS = {"==": 0, "!=": 1, ">=": 2}
_ARITHMETIC: dict[int, Callable[[int, int], int]] = {
    _ADD: operator.add, _MUL: operator.mul, _FLOORDIV: operator.floordiv, _MOD: operator.mod}
_COMPARING: tuple[Callable[[int, int], bool], ...] = (operator.eq, operator.ne, operator.ge)


class SizeCondition(NamedTuple):
    """Expected value of a guard of the kind "relation": the operands of the check, and its text.

    Attributes:
        program: (code, operand) pairs in postfix notation, as the guard program's step takes them.
        comparison: number of the comparison with zero, as in the guard program's step.
        words: the condition as the user would write it, with the reason for it.
        shared: whether the condition says that two sizes share a symbol because they were equal.
    """

    program: tuple[tuple[int, int], ...]
    comparison: int
    words: str
    shared: bool = False

    def holds(self, values: Sequence[int]) -> bool:
        """Whether the condition holds, computed as the guard program's step does it. `values` are the operands that the
        program loads."""
        stack: list[int] = []
        for code, operand in self.program:
            if code in (_PUSH, _LOAD):
                stack.append(operand if code == _PUSH else values[operand])
                continue
            right, left = stack.pop(), stack.pop()
            if code in (_FLOORDIV, _MOD) and right == 0:
                return False
            stack.append(_ARITHMETIC[code](left, right))
        return _COMPARING[self.comparison](stack.pop(), 0)


def guard_decisions(guards: GuardSet, env: Environment, sources: Mapping[Sym, Source]) -> None:
    """Adds a guard for each decision of a trace.

    Args:
        guards: the guards of the trace, to which those of the decisions are added.
        env: the trace's knowledge of its symbols.
        sources: for each symbol that came in from outside, where its value lives.
    """
    for decision in [d for d in env.decisions if not is_short(env.whole(d.condition.expr))]:
        env.fix_symbols(decision.condition.expr, decision.why)
    reasons: dict[Any, dict[str, None]] = {}
    for decision in env.decisions:
        condition = decision.condition
        if _is_in_limits(env, condition):
            symbol = next(iter(condition.expr.terms))[0]
            if condition.op == "==":
                reasons.pop(symbol, None)
            reasons.setdefault(symbol, {})[decision.why] = None
    for symbol, source in sources.items():
        guards.add(source, "int_range", *env.limits(symbol), " and ".join(filter(None, reasons.get(symbol, ()))))
    for decision in env.decisions:
        condition = decision.condition
        if not _is_in_limits(env, condition) and is_short(env.whole(condition.expr)):
            guard_condition(guards, condition.op, env.whole(condition.expr), sources, decision.why)


def guard_condition(
    guards: GuardSet, op: str, x: Index, sources: Mapping[Sym, Source], why: str, shared: bool = False
) -> None:
    """Adds the guard that requires ``x op 0``; arguments as in :class:`SizeCondition`."""
    symbols = sorted(ints.symbols_of(x), key=lambda s: s.name)
    program: list[tuple[int, int]] = []
    _write(x, {symbol: place for place, symbol in enumerate(symbols)}, program)
    words = f"{_words(op, x, sources)}{because(why)}"
    first, *others = [sources[symbol] for symbol in symbols]
    guards.add(first, "relation", SizeCondition(tuple(program), _COMPARISONS[op], words, shared), *others)


def _is_in_limits(env: Environment, condition: Relation) -> bool:
    """Whether a condition says no more than the limits of a symbol do."""
    if len(condition.expr.terms) != 1 or condition.op == "!=":
        return False
    ((monomial, k),) = condition.expr.terms.items()
    return len(monomial) == 1 and monomial[0] in env.hints and monomial[0] not in env.parts and (
        condition.op == ">=" or abs(k) == 1)


def _write(x: Index, places: Mapping[Sym, int], program: list[tuple[int, int]]) -> None:
    """Appends the codes that compute `x`. `places` has each symbol's position among the operands."""
    if isinstance(x, int):
        program.append((_PUSH, x))
        return
    first = True
    for monomial, k in x.terms.items():
        started = k != 1
        if started:
            program.append((_PUSH, k))
        for a in monomial:
            if isinstance(a, Sym):
                program.append((_LOAD, places[a]))
            elif isinstance(a, Division):
                _write(a.expr, places, program)
                _write(a.divisor, places, program)
                program.append((_FLOORDIV if isinstance(a, FloorDiv) else _MOD, 0))
            else:
                raise AssertionError(f"{a} is no part of a size")
            if started:
                program.append((_MUL, 0))
            started = True
        if not first:
            program.append((_ADD, 0))
        first = False
    if x.const:
        program += [(_PUSH, x.const), (_ADD, 0)]


# ---------------------------------------------------------------- words
def _words(op: str, x: Index, sources: Mapping[Sym, Source]) -> str:
    """Text of a condition as a program would write it: added terms on the left, subtracted terms on the right."""
    assert not isinstance(x, int)
    if op != ">=" and not x.const and len(x.terms) == 1:
        ((monomial, _),) = x.terms.items()
        if len(monomial) == 1 and isinstance(monomial[0], Mod):
            name = _text(monomial[0].expr, sources)
            return f"{name} is {'' if op == '==' else 'not '}a multiple of {_text(monomial[0].divisor, sources)}"
    left = ints.polynomial({m: k for m, k in x.terms.items() if k > 0}, max(x.const, 0))
    right = ints.polynomial({m: -k for m, k in x.terms.items() if k < 0}, max(-x.const, 0))
    if op == ">=" and isinstance(left, int):
        return f"{_text(right, sources)} <= {left}"
    return f"{_text(left, sources)} {op} {_text(right, sources)}"


def _text(x: Index, sources: Mapping[Sym, Source]) -> str:
    if isinstance(x, int):
        return str(x)
    parts = []
    for monomial, k in x.terms.items():
        factors = [_atom_text(a, sources) for a in monomial]
        parts.append(" * ".join(([str(k)] if k != 1 else []) + factors))
    if x.const:
        parts.append(str(x.const))
    return " + ".join(parts)


def _atom_text(a: Any, sources: Mapping[Sym, Source]) -> str:
    if isinstance(a, Division):
        return f"({_operand(a.expr, sources)} {a.sign} {_operand(a.divisor, sources)})"
    return sources[a].name if a in sources else str(a)


def _operand(x: Index, sources: Mapping[Sym, Source]) -> str:
    text = _text(x, sources)
    return f"({text})" if " " in text else text

