"""Binding of a call's arguments to a Python function's parameters.

Invariant: arguments that do not fit raise the same TypeError as in CPython, word for word, and errors are detected in
CPython's order (Python/ceval.c, initialize_locals).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ...bytecode.facts import facts
from ..base import VariableTracker
from ..constant import ConstantVariable

if TYPE_CHECKING:
    from ..protocols import BaseFunctionVariable, Tracer

VARARGS, VARKEYWORDS = 0x04, 0x08
Bound = dict[str, VariableTracker]


def bind_arguments(
    tx: Tracer, function: BaseFunctionVariable, args: Sequence[VariableTracker], kwargs: Bound
) -> Bound:
    """The values of the parameters for a call, by name."""
    code = function.code()
    npos, nkw = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    positional, keyword_only = names[:npos], names[npos : npos + nkw]
    bound: Bound = dict(zip(positional, args))
    rest: Bound = {}
    by_name = {*positional[code.co_posonlyargcount :], *keyword_only}
    for key, value in kwargs.items():
        if key not in by_name:
            if not code.co_flags & VARKEYWORDS:
                _refuse_keyword(tx, function, kwargs, key)
            rest[key] = value
        elif key in bound:
            _fail(tx, function, f"got multiple values for argument {key!r}")
        else:
            bound[key] = value
    if len(args) > npos and not code.co_flags & VARARGS:
        _too_many(tx, function, len(args), bound)
    if len(bound) < npos + nkw:
        _take_defaults(tx, function, bound)
    slot = npos + nkw
    if code.co_flags & VARARGS:
        bound[names[slot]] = tx.values.new_tuple(list(args[npos:]))
        slot += 1
    if code.co_flags & VARKEYWORDS:
        bound[names[slot]] = tx.values.new_dict({ConstantVariable(k): v for k, v in rest.items()})
    return bound


def _take_defaults(tx: Tracer, function: BaseFunctionVariable, bound: Bound) -> None:
    code = function.code()
    npos, nkw = code.co_argcount, code.co_kwonlyargcount
    positional, keyword_only = code.co_varnames[:npos], code.co_varnames[npos : npos + nkw]
    defaults = function.defaults(tx)
    required = positional[: npos - len(defaults)]
    _check_missing(tx, function, "positional", [name for name in required if name not in bound])
    for name, default in zip(positional[len(required) :], defaults):
        bound.setdefault(name, default)
    if any(name not in bound for name in keyword_only):
        keyword_defaults = function.keyword_defaults(tx)
        for name in keyword_only:
            if name not in bound and name in keyword_defaults:
                bound[name] = keyword_defaults[name]
        _check_missing(tx, function, "keyword-only", [name for name in keyword_only if name not in bound])


# ---------------------------------------------------------------- errors
def _fail(tx: Tracer, function: BaseFunctionVariable, what: str) -> NoReturn:
    tx.raise_error(TypeError, f"{function.function_name()}() {what}")


def _refuse_keyword(tx: Tracer, function: BaseFunctionVariable, kwargs: Bound, key: str) -> NoReturn:
    code = function.code()
    wrong = [name for name in code.co_varnames[: code.co_posonlyargcount] if name in kwargs]
    if wrong:
        text = ", ".join(wrong)
        _fail(tx, function, f"got some positional-only arguments passed as keyword arguments: '{text}'")
    named = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    meant = facts.suggestion(list(named), key)
    proposal = f". Did you mean '{meant}'?" if meant is not None else ""
    _fail(tx, function, f"got an unexpected keyword argument '{key}'{proposal}")


def _too_many(tx: Tracer, function: BaseFunctionVariable, given: int, bound: Bound) -> NoReturn:
    code = function.code()
    npos, nkw = code.co_argcount, code.co_kwonlyargcount
    defaults = len(function.defaults(tx))
    takes = f"from {npos - defaults} to {npos}" if defaults else str(npos)
    more = sum(name in bound for name in code.co_varnames[npos : npos + nkw])
    extra = f" positional argument{_s(given)} (and {more} keyword-only argument{_s(more)})" if more else ""
    verb = "was" if given == 1 and not more else "were"
    plural = "s" if defaults else _s(npos)
    _fail(tx, function, f"takes {takes} positional argument{plural} but {given}{extra} {verb} given")


def _check_missing(tx: Tracer, function: BaseFunctionVariable, kind: str, missing: list[str]) -> None:
    if missing:
        quoted = [repr(name) for name in missing]
        text = " and ".join(quoted) if len(quoted) < 3 else ", ".join(quoted[:-1]) + f", and {quoted[-1]}"
        _fail(tx, function, f"missing {len(quoted)} required {kind} argument{_s(len(quoted))}: {text}")


def _s(n: int) -> str:
    return "" if n == 1 else "s"
