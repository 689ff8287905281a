"""Writes random Python text from templates with holes.

A template is text. ``{t}`` is an expression of the kind *t*; ``{$t}`` a name of that kind; ``{!t}`` one that the
function at hand may assign to; ``{+t}`` a new name, bound from here on; ``{=t}`` a new name, bound in the template's
blocks alone; ``{+t:a}`` the same, called ``{a}`` later on. A line ``{@}`` is a block of statements, ``{@f}`` the body
of a nested function, ``{@@}`` a block that sees no new names. Double braces stand for braces. A template fits where
all names that it asks for exist.

Invariant: a name is used only where it is bound, so that most programs run to their end; whether shapes fit is left
to chance, as exceptions are compared too.
"""
from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Mapping, Sequence

HOLE = re.compile(r"\{\{|\}\}|\{([$!+=]?)(\w+)(?::(\w+))?\}")
BLOCK = re.compile(r"^(\s*)\{(@@|@f|@)\}$")
Table = Mapping[str, Sequence[str]]


class Scope:
    """The names that are bound at a place of the program, by kind."""

    def __init__(self, names: dict[str, list[str]], own: set[str]) -> None:
        self.names, self.own = names, own

    def inner(self, function: bool = False) -> Scope:
        names = {kind: list(found) for kind, found in self.names.items()}
        return Scope(names, set() if function else set(self.own))

    def bind(self, kind: str, name: str) -> None:
        self.names.setdefault(kind, []).append(name)
        self.own.add(name)

    def writable(self, kind: str) -> list[str]:
        return [name for name in self.names.get(kind, ()) if name in self.own]


class Maker:
    """Expands templates: expressions by kind, statements with blocks, and simple ones, which end a nest."""

    def __init__(self, rng: random.Random, expressions: Table, simple: Sequence[str], compound: Sequence[str]) -> None:
        self.rng, self.expressions, self.simple, self.compound = rng, expressions, simple, compound
        self.count = 0

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def fits(self, template: str, scope: Scope) -> bool:
        for mark, kind, _ in HOLE.findall(template):
            if mark == "$" and not scope.names.get(kind) or mark == "!" and not scope.writable(kind):
                return False
        return True

    def pick(self, templates: Sequence[str], scope: Scope) -> str:
        while True:
            template = self.rng.choice(templates)
            if self.fits(template, scope):
                return template

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        table = self.expressions[kind if depth > 0 or kind[-1] == "0" else kind + "0"]
        return self.line(self.pick(table, scope), scope, scope, {}, depth - 1)

    def line(self, template: str, scope: Scope, inner: Scope, called: dict[str, str], depth: int) -> str:
        """One line. New names go to `called`, to `inner`, the scope of the blocks, and to `scope`, that behind them."""
        def fill(match: re.Match[str]) -> str:
            if match[2] is None:
                return match[0][0]
            mark, kind, name = match.groups()
            if kind in called:
                return called[kind]
            if mark == "$":
                return self.rng.choice(scope.names[kind])
            if mark == "!":
                return self.rng.choice(scope.writable(kind))
            if mark:
                new = self.fresh(kind)
                called[name or new] = new
                after.append((mark, kind, new))
                return new
            return self.expression(kind, inner, depth)

        after: list[tuple[str, str, str]] = []
        text = HOLE.sub(fill, template)
        for mark, kind, new in after:
            inner.bind(kind, new)
            if mark == "+" and inner is not scope:
                scope.bind(kind, new)
        return text

    def statement(self, scope: Scope, depth: int) -> list[str]:
        compound = depth > 0 and self.rng.random() < 0.5
        template = self.pick(self.compound if compound else self.simple, scope)
        called: dict[str, str] = {}
        inner, lines = scope.inner(), []
        after = scope.inner()
        for line in template.splitlines():
            block = BLOCK.match(line)
            if block is None:
                lines.append(self.line(line, after, inner, called, 2))
            else:
                within = {"@": inner.inner(), "@f": inner.inner(function=True), "@@": scope.inner()}[block[2]]
                if block[2] == "@f":
                    within.own = {name for name in called.values() if name not in scope.own}
                lines += [block[1] + text for text in self.block(within, depth - 1)]
        scope.names, scope.own = after.names, after.own
        return lines

    def block(self, scope: Scope, depth: int, most: int = 3) -> list[str]:
        lines = []
        for _ in range(self.rng.randint(1, most)):
            lines += self.statement(scope, depth)
        return lines

    def function(self, head: str, scope: Scope, statements: int, results: Sequence[str], depth: int = 2) -> str:
        """A whole function: its head, statements, and a return of some of what is bound."""
        lines = []
        for _ in range(statements):
            lines += self.statement(scope, depth)
        kinds = [kind for kind in results if scope.names.get(kind)]
        chosen = [self.rng.choice(scope.names[kind]) for kind in kinds if self.rng.random() < 0.7]
        lines.append(f"return {', '.join([*chosen, self.expression('t', scope, 1)])}")
        return head + "\n" + textwrap.indent("\n".join(lines), "    ") + "\n"
