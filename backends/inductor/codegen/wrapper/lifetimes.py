"""Liveness and reuse of buffers: determines which names share memory, when each is read last, and whose memory an
output can take over.

Invariants: memory that an output, an input or a constant shares is never reused; a name is dropped only after the last
step that reads it or another view of its memory.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Set

from dynamo_lite.backends.aot.passes import is_view
from dynamo_lite.backends.inductor.codegen.wrapper.runs import runs
from dynamo_lite.backends.inductor.program import (
    ExternCall,
    KernelCall,
    Program,
    View,
    step_reads,
    step_writes,
)


@dataclasses.dataclass(slots=True)
class MemoryPlan:
    """The wrapper's memory management around each step.

    Attributes:
        reuse: for an output of a kernel, the name of the dead buffer whose memory it takes over.
        drop_after: for each step, the names that no later step reads.
        run_of: for each step, the first step of its run (``runs.runs``).
    """

    reuse: dict[str, str]
    drop_after: list[list[str]]
    run_of: list[int]


def plan_memory(program: Program, given: Set[str] = frozenset()) -> MemoryPlan:
    """The plan of liveness and reuse for a program.

    Args:
        given: inputs that the program may free, because it owns them.
    """
    owner = owners(program)
    last_read = _last_reads(program)
    pinned = {owner.get(n, n) for n in (*program.inputs, *program.constants) if n not in given}
    pinned |= {owner[name] for name in program.outputs if isinstance(name, str)}
    groups: dict[str, list[str]] = {}
    for name, own in owner.items():
        groups.setdefault(own, []).append(name)
    written = {name: index for index, step in enumerate(program.steps) for name in step_writes(step)}
    # The live range of a buffer that nobody reads (a kernel's workspace) is the step that makes it.
    group_end = {own: max(last_read.get(n, written.get(n, -1)) for n in names) for own, names in groups.items()}
    ending: dict[int, list[str]] = {}
    for own, end in group_end.items():
        if own not in pinned:
            ending.setdefault(end, []).append(own)
    from_kernels = {name for step in program.kernel_calls() for name in step.outputs}
    run_of = runs(program, owner, group_end, group_end.keys() - pinned)
    local = _local(program, group_end, owner, run_of) - pinned
    free: dict[object, list[str]] = {}
    reuse: dict[str, str] = {}
    taken: set[str] = set()
    drop_after: list[list[str]] = []
    for index, step in enumerate(program.steps):
        if isinstance(step, KernelCall):
            may_replace = dict(step.inplace)
            for name in step.outputs:
                if name in pinned and name in program.inputs:
                    continue
                donor = may_replace.get(name)
                if donor is not None and not (
                        donor in from_kernels and owner[donor] == donor and donor not in pinned
                        and group_end[donor] == index and _layout_key(program, donor) == _layout_key(program, name)):
                    donor = None
                if name in local:
                    donor = None if donor in taken else donor
                elif donor is None or donor in taken:
                    shelf = free.get(_layout_key(program, name))
                    donor = shelf.pop() if shelf else None
                if donor is not None:
                    reuse[name] = donor
                    taken.add(donor)
        drops = []
        for own in ending.get(index, ()):
            drops.extend(groups[own])
            if own in from_kernels and own not in taken and own not in local:
                free.setdefault(_layout_key(program, own), []).append(own)
        drop_after.append(drops)
    return MemoryPlan(reuse, drop_after, run_of)


def _local(program: Program, group_end: dict[str, int], owner: dict[str, str], run_of: list[int]) -> set[str]:
    """Buffers that live in one run of kernels only: the writer places them in the run's arena."""
    found = set()
    for at, step in enumerate(program.steps):
        if isinstance(step, KernelCall):
            found |= {name for name in step.outputs
                      if owner[name] == name and run_of[max(at, group_end.get(name, at))] == run_of[at]}
    return found


def owners(program: Program) -> dict[str, str]:
    """For each name, the name of the buffer whose memory it may share."""
    owner = {name: name for name in (*program.inputs, *program.constants)}
    for step in program.steps:
        if isinstance(step, View):
            owner[step.name] = owner[step.base]
        elif isinstance(step, ExternCall):
            reads = step.reads()
            shared = owner[reads[0]] if reads and is_view(step.target) else None
            for name in step_writes(step):
                owner[name] = shared or name
        else:
            for name in step_writes(step):
                owner.setdefault(name, name)
    return owner


def _last_reads(program: Program) -> dict[str, int]:
    last: dict[str, int] = {}
    for index, step in enumerate(program.steps):
        for name in step_reads(step):
            last[name] = index
    return last


def _layout_key(program: Program, name: str) -> object:
    spec = program.buffers[name]
    return spec.size, spec.stride, spec.dtype, spec.device
