"""Topics of templates: a program draws a few of them and writes mostly what they hold, so that within a topic
everything meets everything ("swarm testing", Groce and others, 2012)."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Topical:
    """Statements of a topic, and expressions that are added to those of each kind."""

    name: str
    simple: tuple[str, ...]
    compound: tuple[str, ...]
    expressions: Mapping[str, tuple[str, ...]]


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line)


def group(name: str, simple: str = "", compound: str = "", **expressions: str) -> Topical:
    """A topic from text: simple statements and expressions one a line, compound ones with an empty line between."""
    blocks = tuple(block.strip("\n") for block in compound.split("\n\n") if block.strip())
    return Topical(name, _lines(simple), blocks, {kind: _lines(text) for kind, text in expressions.items()})
