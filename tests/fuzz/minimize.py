"""A smaller program that still differs: statements and expressions are taken away for as long as it does.

The method is delta debugging over the syntax tree (Zeller and Hildebrandt, "Simplifying and Isolating
Failure-Inducing Input", 2002): a change is kept if the smaller program still differs. Invariant: the result is source
text that ``compare`` reports. """
from __future__ import annotations

import ast
import copy
import itertools
import time
from collections.abc import Callable, Iterator

Step = Callable[[ast.Module], Iterator[ast.Module]]
BODIES = ("body", "orelse", "finalbody")


def minimize(source: str, differs: Callable[[str], bool], seconds: float = 60.0) -> str:
    """The smallest program found in `seconds`; ``differs`` says whether a source text still shows the difference."""
    end = time.monotonic() + seconds
    tree = ast.parse(source)
    size = None
    while size != len(ast.unparse(tree)) and time.monotonic() < end:
        size = len(ast.unparse(tree))
        for step in (_cuts, _flattened, _simplified):
            tree = _reduce(tree, step, differs, end)
    return ast.unparse(tree)


def _reduce(tree: ast.Module, step: Step, differs: Callable[[str], bool], end: float) -> ast.Module:
    """Takes what one kind of step can take. After a success the next variants are those behind it."""
    tried = 0
    while time.monotonic() < end:
        for smaller in itertools.islice(step(tree), tried, None):
            if time.monotonic() > end:
                return tree
            try:
                text = ast.unparse(ast.fix_missing_locations(smaller))
                compile(text, "<smaller>", "exec")
            except (SyntaxError, ValueError):
                tried += 1
                continue
            if differs(text):
                tree = ast.parse(text)
                break
            tried += 1
        else:
            return tree
    return tree


def _cuts(tree: ast.Module) -> Iterator[ast.Module]:
    """Without some statements of a block, large parts first."""
    for k in range(sum(1 for _ in _blocks(tree))):
        size = len(_block(tree, k))
        step = size
        while step:
            for start in reversed(range(0, size, step)):
                yield _cut(tree, k, start, start + step)
            step //= 2


def _flattened(tree: ast.Module) -> Iterator[ast.Module]:
    for k in range(sum(1 for _ in _blocks(tree))):
        for i in range(len(_block(tree, k))):
            yield from _flatten(tree, k, i)


def _simplified(tree: ast.Module) -> Iterator[ast.Module]:
    for k in range(sum(1 for _ in _expressions(tree))):
        yield from _simplify(tree, k)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    # ast.walk goes level by level: outer blocks, which hold most, come before their parts.
    for node in ast.walk(tree):
        for name in (*BODIES, "handlers"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body:
                yield body


def _block(tree: ast.AST, k: int) -> list[ast.stmt]:
    for i, body in enumerate(_blocks(tree)):
        if i == k:
            return body
    return []


def _cut(tree: ast.Module, k: int, start: int, stop: int) -> ast.Module:
    copied = copy.deepcopy(tree)
    body = _block(copied, k)
    was = len(body)
    del body[start:stop]
    if not body and was:
        body.append(ast.Pass())
    return copied


def _flatten(tree: ast.Module, k: int, i: int) -> Iterator[ast.Module]:
    """A compound statement is replaced by one of its blocks."""
    for name in BODIES:
        copied = copy.deepcopy(tree)
        body = _block(copied, k)
        inner = getattr(body[i], name, None)
        if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
            body[i:i + 1] = inner
            yield copied


def _expressions(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                yield node, name, None, value
            elif isinstance(value, list):
                for i, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield node, name, i, item


def _simplify(tree: ast.Module, k: int) -> Iterator[ast.Module]:
    """An expression is replaced by one of its parts."""
    parts = len([c for c in ast.iter_child_nodes(list(_expressions(tree))[k][3]) if isinstance(c, ast.expr)])
    for p in range(parts):
        copied = copy.deepcopy(tree)
        node, name, i, value = list(_expressions(copied))[k]
        part = [c for c in ast.iter_child_nodes(value) if isinstance(c, ast.expr)][p]
        if i is None:
            setattr(node, name, part)
        else:
            getattr(node, name)[i] = part
        yield copied
    copied = copy.deepcopy(tree)
    node, name, i, value = list(_expressions(copied))[k]
    if i is not None and isinstance(node, (ast.Call, ast.List, ast.Tuple, ast.Set)) and name in ("args", "elts"):
        del getattr(node, name)[i]
        yield copied
