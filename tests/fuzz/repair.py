"""Takes statements out of a random program until plain Python runs it to its end: chance writes long programs that
fail early.

Invariant: what is taken out is decided by what plain Python does, which is the same each time, so a seed still names
one program. """
from __future__ import annotations

import ast
import random

from . import harness

ROUNDS = 25
CALLS = (0, 1)


def repair(head: str, body: str, rng: random.Random, options: harness.Options) -> str:
    """`body`, the function ``f``, without the statements that raise when it is called; some programs keep theirs."""
    keep = rng.random() < 0.25
    for _ in range(ROUNDS):
        line = None if keep else _fails(head, body, options)
        if line is None or not (shorter := _without(body, line)):
            break
        body = shorter
    return body


def _fails(head: str, body: str, options: harness.Options) -> int | None:
    """The line of `body` at which a call of it ends by an exception."""
    before = head.count("\n")
    for seen in harness.plainly(head + body, options, CALLS) or ():
        if seen[0][0] == "raised":
            return next((line - before for name, line in reversed(seen[0][3]) if line > before), None)
    return None


def _without(body: str, line: int) -> str | None:
    """`body` without the smallest statement at a line; None if that can't be."""
    tree = ast.parse(body)
    smallest = None
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            children = getattr(node, name, None)
            for i, child in enumerate(children if isinstance(children, list) else ()):
                if child.lineno <= line <= (child.end_lineno or child.lineno):
                    size = (child.end_lineno or 0) - child.lineno
                    if not isinstance(child, ast.FunctionDef) and (smallest is None or size <= smallest[0]):
                        smallest = (size, getattr(node, name), i)
    if smallest is None:
        return None
    _, siblings, i = smallest
    if isinstance(siblings[i], ast.Return):
        siblings[i] = _tame(siblings[i])
    else:
        siblings[i] = ast.Pass()
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    try:
        compile(text, "<fuzz>", "exec")
    except SyntaxError:
        return None    # a nonlocal name whose binding has gone
    return text


def _tame(statement: ast.stmt) -> ast.stmt:
    """A return without its last expression, which is the one that is not just a name."""
    assert isinstance(statement, ast.Return)
    value = statement.value
    if isinstance(value, ast.Tuple) and len(value.elts) > 1:
        return ast.Return(ast.Tuple(value.elts[:-1], ast.Load()))
    return ast.Return(ast.Name("x", ast.Load()))
