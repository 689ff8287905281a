"""The guards of a cache entry as a tree of paths, for people to read.

Invariant: each guard is on one line, below the value through which its path leads.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .guard import KINDS, Guard
from .source import Source


@dataclasses.dataclass
class _Node:
    """A value: its name, its requirements in words, and the values reached from it, by path."""

    name: str
    words: list[str] = dataclasses.field(default_factory=list)
    children: dict[object, _Node] = dataclasses.field(default_factory=dict)


def guard_tree(guards: Sequence[Guard]) -> str:
    """One line for each value, with its requirements, indented below the value that it was reached from."""
    root = _Node("")
    for guard in guards:
        node = root
        for source in _path(guard.source):
            node = node.children.setdefault(source.key, _Node(source.name))
        node.words.append(_words(guard))
    lines: list[str] = []
    for child in root.children.values():
        _write(child, 0, lines)
    return "\n".join(lines)


def _path(source: Source) -> list[Source]:
    path = [source]
    while path[-1].parents():
        path.append(path[-1].parents()[0])
    return path[::-1]


def _words(guard: Guard) -> str:
    return guard.text.removeprefix(guard.source.name).strip() if guard.kind in KINDS else guard.text


def _write(node: _Node, depth: int, lines: list[str]) -> None:
    while not node.words and len(node.children) == 1:  # an intermediate value without requirements gets no line
        (node,) = node.children.values()
    lines.append("  " * depth + node.name + (": " + "; ".join(node.words) if node.words else ""))
    for child in node.children.values():
        _write(child, depth + 1, lines)
