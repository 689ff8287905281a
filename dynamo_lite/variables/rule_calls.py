"""Registry of the functions that evaluate a call of a function or class written in C, one per rule of the table of
calls.

Each function is registered in the module that implements the rule (``calls_by``): ``(tx, called, decision, args,
kwargs) -> tracker``, or None where the rule does not cover the call; `called` is the tracker of the function or class.
Invariant: a rule has at most one function; a rule without one covers no such calls.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..rules.table import Decision, Rule, RuleError

if TYPE_CHECKING:
    from .base import VariableTracker
    from .protocols import Tracer

Caller = Callable[
    ["Tracer", "VariableTracker", Decision, "list[VariableTracker]", "dict[str, VariableTracker]"],
    "VariableTracker | None"]
CALLERS: dict[Rule, Caller] = {}


def calls_by(rule: Rule) -> Callable[[Caller], Caller]:
    """Registers the function that evaluates calls to which a rule applies."""

    def register(caller: Caller) -> Caller:
        if CALLERS.setdefault(rule, caller) is not caller:
            raise RuleError(f"calls by the rule {rule.name} have a function: {CALLERS[rule].__module__}")
        return caller

    return register
