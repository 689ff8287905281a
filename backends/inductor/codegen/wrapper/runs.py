"""Kernel runs: decides which consecutive kernels are launched by one call.

A run allocates all its memory at its beginning, and frees at its end what is dead by then. One call for many kernels
takes the least time, several calls take the least memory: a gradient as large as the activations before it need not be
in memory together with them.

Invariant: a run ends early only where the program's memory would otherwise be at its peak, and higher by more than
``TOLERANCE`` than with a run for each kernel.
"""
from __future__ import annotations

import itertools
from collections.abc import Mapping, Set

from dynamo_lite.backends.inductor.codegen.wrapper.arena import storage_bytes
from dynamo_lite.backends.inductor.program import BufferSpec, KernelCall, Program, View

TOLERANCE = 128 * 1024
"""Bytes of memory that are not worth ending a run for, which costs about a microsecond: so little is in a cache
anyway."""


def runs(program: Program, owner: Mapping[str, str], ends: Mapping[str, int], free: Set[str]) -> list[int]:
    """For each step, the first step of its run; a step that is neither a kernel nor a view is a run of its own.

    Args:
        owner: for each name, the name whose memory it shares (``lifetimes.owners``).
        ends: for each owner, the last step that reads its memory.
        free: owners that may be freed after that.
    """
    run_of = _longest(program)
    lives = _Lives.of(program, owner, ends, free)
    if lives is None or lives.total() <= TOLERANCE:
        return run_of
    limit = lives.lowest_peak() + TOLERANCE
    for start in range(len(run_of)):
        if run_of[start] == start:
            stop = _end(lives, run_of, start, limit)
            for at in range(stop, len(run_of)):
                if run_of[at] != start:
                    break
                run_of[at] = stop
    return run_of


def _end(lives: _Lives, run_of: list[int], start: int, limit: int) -> int:
    """The end of the longest run from ``start`` on that stays within the limit."""
    end, here = start, lives.alive[start]
    dying: dict[int, int] = {}
    while end < len(run_of) and run_of[end] == start:
        for size, last in lives.made[end]:
            here += size
            dying[last] = dying.get(last, 0) + size
        if here > limit:
            break
        # Assumes that the run uses up all that it makes, which is a lower bound for every longer run.
        here -= dying.get(end, 0)
        end += 1
    while end > start + 1 and lives.peak(start, end) > limit:
        end -= 1
    return end


def _longest(program: Program) -> list[int]:
    run_of: list[int] = []
    for at, step in enumerate(program.steps):
        goes_on = at > 0 and all(isinstance(s, (KernelCall, View)) for s in (program.steps[at - 1], step))
        run_of.append(run_of[-1] if goes_on else at)
    return run_of


class _Lives:
    """The live ranges of the blocks of memory that the program makes or may free.

    Attributes:
        alive: bytes that are live from before each step until after it, or longer.
        made: for each step, (bytes, last step that reads it) of each block that it makes.
    """

    def __init__(self, steps: int) -> None:
        self.alive = [0] * (steps + 2)
        self.made: list[list[tuple[int, int]]] = [[] for _ in range(steps)]

    @classmethod
    def of(cls, program: Program, owner: Mapping[str, str], ends: Mapping[str, int],
           free: Set[str]) -> _Lives | None:
        """The live ranges of a program; None if some size is not known."""
        steps = len(program.steps)
        lives = cls(steps)
        born = {name: -1 for name in program.inputs if name in free}
        in_place = set()
        for at, step in enumerate(program.steps):
            if isinstance(step, View):
                continue
            for name in _makes(step):
                if owner[name] == name and name not in program.inputs:
                    born.setdefault(name, at)
            if isinstance(step, KernelCall):
                in_place |= {donor for _, donor in step.inplace if donor in free and ends[donor] == at}
        for name, first in born.items():
            size = _bytes(program.buffers.get(name))
            if size is None:
                return None
            last = ends[name] if name in free else steps
            # A donor of a kernel's output is not live beside that output.
            last -= name in in_place and last > first
            if last > first:
                lives.alive[first + 1] += size
                lives.alive[min(last, steps) + 1] -= size
            if first >= 0:
                lives.made[first].append((size, last))
        lives.alive = list(itertools.accumulate(lives.alive))
        return lives

    def total(self) -> int:
        return sum(size for made in self.made for size, _ in made)

    def lowest_peak(self) -> int:
        return max(self.peak(at, at + 1) for at in range(len(self.made)))

    def peak(self, start: int, end: int) -> int:
        """Bytes at the peak if steps ``start`` to ``end`` are one run: those live before it, those it leaves, and the
        most of the others."""
        kept, here, most = self.alive[start], 0, 0
        dying: dict[int, int] = {}
        for at in range(start, end):
            for size, last in self.made[at]:
                if last >= end:
                    kept += size
                else:
                    here += size
                    dying[last] = dying.get(last, 0) + size
            most = max(most, here)
            here -= dying.get(at, 0)
        return kept + most


def _makes(step: object) -> tuple[str, ...]:
    return tuple(name for name in getattr(step, "outputs", ()) if name is not None)


def _bytes(spec: BufferSpec | None) -> int | None:
    if spec is None or not all(isinstance(n, int) for n in (*spec.size, *spec.stride)):
        return None
    return storage_bytes([int(n) for n in spec.size], [int(n) for n in spec.stride], spec.dtype.itemsize)
