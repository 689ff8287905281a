"""The rules by which users say what becomes of a call: ``register_rule``, ``remove_rule`` and the decorator ``rule``.

Invariants: a user's rule takes precedence over all others for the same callable, and there is at most one per callable.
It affects calls that are captured from then on, never the behavior of the callable in plain Python.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar

from . import table as rules
from .table import Decision, Rule, RuleError

F = TypeVar("F", bound=Callable[..., Any])

# The names by which users refer to rules.
NAMES = {
    "graph": Rule.GRAPH, "inline": Rule.INLINE, "break": Rule.SKIP, "constant": Rule.CONSTANT, "fold": Rule.FOLD,
    "deferred": Rule.DEFERRED, "ask": Rule.ASKED, "replace": Rule.SUBSTITUTED,
}
_OF_MODULES = ("graph", "inline", "break", "fold")
_OF_CLASSES = ("break", "replace")


def register_rule(
    subject: Any, how: str, *, kind: str = "call_skipped", reason: str = "", calls: Callable[..., Any] | None = None
) -> None:
    """Says what the compiler does with calls of a callable, or of a module's functions, that it captures.

    Args:
        subject: a function, method or class; ``"package.module:name"``, a callable by its name, whose module need not
            be imported yet; ``"package.module"``, all functions of the module and of those below it.
        how: "graph" (a node of the graph, as allow_in_graph), "inline" (followed), "break" (called in plain Python),
            "constant" (called once, while compiling), "fold" (called while compiling, with constants), "deferred"
            (called after the graph, for its effect), "ask" (called while compiling, and by a guard at every call),
            "replace" (`calls` is traced in its place).
        kind: for "break", one of the kinds in docs/graph_breaks.md.
        reason: shown where the graph breaks, and by ``python -m dynamo_lite rules``.
        calls: for "replace", a Python function that does the same.

    Raises:
        RuleError: the user has already given a rule for it, or this rule is not possible.
        TypeError: `subject` is neither callable nor a name.
    """
    if not isinstance(subject, str) and not callable(subject):
        raise TypeError(f"a rule is for a callable, or a name of one or of a module, not for {subject!r}")
    if how not in NAMES:
        raise RuleError(f"there is no rule {how!r}; the rules are {', '.join(NAMES)}")
    what, known = "", tuple(NAMES)
    if isinstance(subject, str) and ":" not in subject:
        what, known = "a module", _OF_MODULES
    elif isinstance(subject, type):
        what, known = "a class", _OF_CLASSES
    if how not in known:
        raise RuleError(f"{rules.describe(subject)}: the rules for {what} are {', '.join(known)}, not {how!r}")
    if calls is not None and not isinstance(calls, types.FunctionType):
        raise RuleError(f"{rules.describe(subject)}: a Python function is traced in its place, not {calls!r}")
    rules.say(getattr(subject, "__func__", subject), Decision(NAMES[how], kind, reason, calls))


def rule(how: str, *subjects: Any, kind: str = "call_skipped", reason: str = "") -> Callable[[F], F]:
    """Decorates a function with its rule: ``@rule("break", reason="it talks to the device")``; with "replace", a Python
    function that is traced in place of the `subjects`: ``@rule("replace", library.fast_sum)``.

    Raises:
        RuleError: as for ``register_rule``.
    """
    if (how == "replace") != bool(subjects):
        raise RuleError('rule("replace", ...) takes the callables that it replaces, and other rules take none')

    def register(function: F) -> F:
        for subject in subjects or (function,):
            register_rule(subject, how, kind=kind, reason=reason, calls=function if subjects else None)
        return function

    return register


def remove_rule(subject: Any) -> None:
    """Removes the rule that ``register_rule`` or ``rule`` has set for a callable, module or name.

    Raises:
        RuleError: there is no such rule.
    """
    rules.unsay(getattr(subject, "__func__", subject))
