"""The table of calls in words: the rule for one callable and its reason, or all rows.

Invariant: what is shown is what :func:`dynamo_lite.rules.table.decide` says, by the same function that a trace asks.
"""
from __future__ import annotations

import builtins
import difflib
import importlib
import inspect
import os
import types
from typing import Any

from ..break_kinds import BREAK_KINDS
from ..rules.table import Decision, Level, Rule, all_rows, decide, decide_module, describe

_LEVELS = {
    Level.USER: "what the user has said", Level.CALLABLE: "a row of its own", Level.METHOD: "the row of the method",
    Level.CLASS: "the row of its class", Level.MODULE: "the row of the module", Level.DEFAULT: "what it is",
}
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class UnknownName(LookupError):
    """Raised for a name that belongs to no module or callable."""


def find(name: str) -> Any:
    """The module or callable of a name, ``package.module.name`` or ``package.module:name``; the module is imported.

    Raises:
        UnknownName: there is none; says which are near.
    """
    parts = name.replace(":", ".").split(".")
    found: Any = builtins
    rest = parts
    for end in range(1, len(parts) + 1):
        try:
            found, rest = importlib.import_module(".".join(parts[:end])), parts[end:]
        except (ImportError, ValueError):  # no module, but perhaps a name in the last one, or a builtin
            break
    for part in rest:
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=3)
            home = getattr(found, "__name__", describe(found))
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UnknownName(f"there is no {name}: {home} has no {part!r}{hint}")
        found = getattr(found, part)
    if not callable(found) and not isinstance(found, types.ModuleType):
        raise UnknownName(f"{name} is no module and can't be called: a {type(found).__qualname__}")
    return found


def _where(decision: Decision) -> str:
    return decision.where().removeprefix(_ROOT)


def _reason(decision: Decision) -> str:
    if decision.reason:
        return decision.reason
    if decision.rule in (Rule.SKIP, Rule.ELEMENTS):
        return BREAK_KINDS[decision.kind].why
    text = inspect.getdoc(decision.calls) if decision.calls is not None else None
    return text.splitlines()[0] if text else ""


def show(name: str) -> str:
    """How calls of a callable, or of a module's Python functions, are treated: the rule, the reason, the row.

    Raises:
        UnknownName: there is no such thing.
    """
    subject = find(name)
    of_module = isinstance(subject, types.ModuleType)
    decision = decide_module(subject.__name__) if of_module else decide(subject)
    lines = [f"{name}{' (its Python functions)' if of_module else ''}: {decision.rule.value}"]
    if decision.rule in (Rule.SKIP, Rule.ELEMENTS):
        lines.append(f"  kind of break: {decision.kind}")
    reason = _reason(decision)
    if reason:
        lines.append(f"  reason: {reason}")
    if decision.calls is not None:
        lines.append(f"  by: {describe(decision.calls)}")
    about = f" {describe(decision.subject)}" if decision.level in (Level.MODULE, Level.METHOD, Level.CLASS) else ""
    lines.append(f"  decided by {_LEVELS[decision.level]}{about}, at {_where(decision)}")
    return "\n".join(lines)


def show_all() -> str:
    """All rows, one per line: the name, the rule, the kind of break, the place of its definition."""
    rows = sorted((_line(decision) for decision in all_rows()), key=str.lower)
    return "\n".join(rows)


def _line(decision: Decision) -> str:
    level = {Level.MODULE: " (module)", Level.CLASS: " (instances)", Level.USER: " (user)"}.get(decision.level, "")
    kind = f" [{decision.kind}]" if decision.rule in (Rule.SKIP, Rule.ELEMENTS) else ""
    return f"{describe(decision.subject)}{level}: {decision.rule.name}{kind}  {_where(decision)}"
