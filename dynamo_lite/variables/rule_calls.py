"""What a call of a function or class written in C becomes, by its rule in the table of calls.

Each rule's function is registered beside what it needs (``calls_by``): ``(tx, called, decision, args, kwargs) ->
tracker``, or None where the rule says nothing about such a call; `called` is the tracker of the function or class.
Invariant: a rule has one function; a rule without one says nothing here.
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
    """Registers what calls by a rule become."""

    def register(caller: Caller) -> Caller:
        if CALLERS.setdefault(rule, caller) is not caller:
            raise RuleError(f"calls by the rule {rule.name} have a function: {CALLERS[rule].__module__}")
        return caller

    return register
