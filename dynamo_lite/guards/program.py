"""Builds the guard program from guards: assigns registers to paths, orders the checks, collects the graph's inputs.

The program is linear. A path is loaded once, after its parents and directly before its first check or use. Guards that
depend on the state of one dict alone form a block, which a call skips while that dict is unchanged. Invariant: a
register is written once, and each instruction reads only registers that were written before it.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from .. import log
from .._guards import GuardProgram, dict_states
from .blocks import PAIR_KINDS, split_blocks
from .guard import KINDS, Guard
from .source import PathKey, Source


class StepTexts(Sequence[str]):
    """The requirement of each step of a program, in words. A text is for logs and is made when it is read."""

    def __init__(self) -> None:
        self._words: list[Callable[[], str]] = []

    def append(self, words: Callable[[], str]) -> None:
        self._words.append(words)

    def __len__(self) -> int:
        return len(self._words)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return [words() for words in self._words[index]] if isinstance(index, slice) else self._words[index]()


@dataclasses.dataclass
class _Builder:
    """Collects the steps of a program and their texts, with the register and the depth of each path."""

    steps: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    texts: StepTexts = dataclasses.field(default_factory=StepTexts)
    registers: dict[PathKey, int] = dataclasses.field(default_factory=dict)
    depths: dict[PathKey, int] = dataclasses.field(default_factory=dict)

    def register(self, source: Source) -> int:
        key = source.key
        known = self.registers.get(key)
        if known is not None:
            return known
        parents = tuple(self.register(parent) for parent in source.parents())
        register = self.registers[key] = len(self.registers)
        self.emit(source.load_step(register, parents), functools.partial(_exists, source))
        return register

    def emit(self, step: tuple[Any, ...], words: Callable[[], str]) -> None:
        self.steps.append(step)
        self.texts.append(words)

    def depth(self, source: Source) -> int:
        """Number of loads that precede the load of a source on its path."""
        known = self.depths.get(source.key)
        if known is None:
            known = self.depths[source.key] = max(map(self.depth, source.parents()), default=-1) + 1
        return known

    def check(self, guard: Guard) -> None:
        if guard.kind in _SPECIAL:
            _SPECIAL[guard.kind](self, guard)
        else:
            self.emit((guard.kind, self.register(guard.source), *guard.expected), lambda: guard.text)

    def all_registers(self, guard: Guard, others: Iterable[Source]) -> list[int]:
        """The registers of the guard's source and of the other sources that the guard is about."""
        return [self.register(guard.source), *(self.register(other) for other in others)]

    def block(self, holder: Source, guards: list[Guard]) -> None:
        """Adds a block of checks, which a call skips while the dict at `holder` is unchanged."""
        def words() -> str:
            return f"{holder.name} is a dict"

        register = self.register(holder)
        self.emit(("begin_same", register), words)
        for guard in sorted(guards, key=lambda g: (self.depth(g.source), KINDS[g.kind].rank)):
            self.check(guard)
        self.emit(("end_same", register), words)


def _pair(builder: _Builder, guard: Guard) -> None:
    registers = builder.all_registers(guard, guard.expected)
    step = ("not_same", registers) if guard.kind == "not_same" else (guard.kind, *registers)
    builder.emit(step, lambda: f"{guard.source.name} {KINDS[guard.kind].words(guard.expected[0].name)}")


def _without_source(builder: _Builder, guard: Guard) -> None:
    builder.emit((guard.kind, *guard.expected), lambda: guard.text)


def _all_distinct(builder: _Builder, guard: Guard) -> None:
    builder.emit(("not_same", builder.all_registers(guard, guard.expected)), lambda: guard.text)


def _apart(builder: _Builder, guard: Guard) -> None:
    changed, *others = guard.expected
    registers = builder.all_registers(guard, others)
    # With more changed dicts than this, sorting all of them takes fewer comparisons than comparing each with all.
    few = changed <= 2 * len(registers).bit_length()
    builder.emit(("not_same", registers, changed) if few else ("not_same", registers), lambda: guard.text)


def _disjoint(builder: _Builder, guard: Guard) -> None:
    changed, *others = guard.expected
    builder.emit(("disjoint", builder.all_registers(guard, others), changed), lambda: guard.text)


def _memory_offset(builder: _Builder, guard: Guard) -> None:
    other, distance = guard.expected
    builder.emit(("memory_offset", *builder.all_registers(guard, [other]), distance),
                 lambda: f"{guard.source.name} {KINDS[guard.kind].words(other.name, distance)}")


def _relation(builder: _Builder, guard: Guard) -> None:
    condition, *others = guard.expected
    operands = tuple(builder.all_registers(guard, others))
    builder.emit(("relation", operands, condition.program, condition.comparison), lambda: condition.words)


def _without_last(builder: _Builder, guard: Guard) -> None:
    # The last expected value is only for the text: the name of the dtype, which the step has as code and bits, or a
    # reason.
    builder.emit((guard.kind, builder.register(guard.source), *guard.expected[:-1]), lambda: guard.text)


def _class_version(builder: _Builder, guard: Guard) -> None:
    builder.emit((guard.kind, builder.register(guard.source), guard.expected[0]), lambda: guard.text)


# Kinds of guard that involve a second path, or whose step is not (kind, register, *expected).
_SPECIAL: dict[str, Callable[[_Builder, Guard], None]] = {
    "tensor_same": _pair, "not_same": _pair, "callable_eq": _without_source, "all_distinct": _all_distinct,
    "apart": _apart, "disjoint": _disjoint, "memory_offset": _memory_offset, "relation": _relation,
    "tensor": _without_last, "int_range": _without_last, "class_version": _class_version,
}


def build_program(
    guards: Sequence[Guard], state: tuple[Any, ...] | None, collect: Sequence[Source]
) -> tuple[GuardProgram, Sequence[str]]:
    """Builds the guard program of a cache entry.

    Args:
        guards: the guards to check.
        state: operands of the check of torch's global state; None if it is not checked.
        collect: the sources whose values the compiled code receives, in order.

    Returns:
        the program, and for each of its steps a text that says what it requires.
    """
    builder = _Builder()
    if state is not None:
        builder.emit(("global_state", *state), KINDS["global_state"].words)
    every, blocks = split_blocks(guards, collect)
    by_source: dict[PathKey, list[Guard]] = {}
    pairs = []
    for guard in every:
        if guard.kind in PAIR_KINDS:
            pairs.append(guard)
        else:
            by_source.setdefault(guard.source.key, []).append(guard)
    parts: list[tuple[int, Source | None, list[Guard]]]
    # Values of arguments come first, then the values that are reached from them; definitions of classes come last.
    parts = [((10_000 if group[0].kind == "class_version" else 0) + builder.depth(group[0].source), None, group)
             for group in by_source.values()]
    parts += [(builder.depth(source) + 1, source, group) for source, group in blocks]
    for _, source, group in sorted(parts, key=lambda part: part[0]):
        if source is not None:
            builder.block(source, group)
            continue
        for guard in sorted(group, key=lambda g: KINDS[g.kind].rank):
            builder.check(guard)
    for guard in pairs:
        builder.check(guard)
    for slot, source in enumerate(collect):
        builder.emit(("collect", builder.register(source), slot), functools.partial(_exists, source))
    program = GuardProgram(builder.steps, len(collect), len(builder.registers))
    if not dict_states() and log.first_time("guards", "no dict watcher"):
        log.artifact("guards").warning("CPython has no dict watcher left: each call looks at every dict again")
    return program, builder.texts


def _exists(source: Source) -> str:
    return f"{source.name} exists"


def describe_step(texts: Sequence[str], step: int) -> str:
    """The requirement of the failing step, in words."""
    return texts[step] if 0 <= step < len(texts) else "unknown guard"


def guard_lines(guards: Sequence[Guard]) -> list[str]:
    """The guards as text, one per line, grouped by path."""
    return sorted((g.text for g in guards), key=lambda text: text.split(" ", 1)[0])
