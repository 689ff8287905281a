"""In-place writes: if a graph overwrites an input, the kernel that computes the new contents writes them to the input
directly, instead of to a buffer that is copied.

Invariant: an input is written early only if no later step reads its old contents, and no later step may fail: a call
that raises has not changed its inputs yet.
"""
from __future__ import annotations

import dataclasses

from dynamo_lite.backends.inductor.codegen.wrapper.lifetimes import owners
from dynamo_lite.backends.inductor.program import (
    CopyInto,
    ExternCall,
    KernelCall,
    Program,
    Step,
    step_reads,
    step_writes,
)


def written_in_place(program: Program) -> Program:
    """The program with as few copies into inputs as possible."""
    copies = [step for step in program.steps if isinstance(step, CopyInto)]
    if not copies:
        return program
    owner = owners(program)
    made_by = {name: at for at, step in enumerate(program.steps) if isinstance(step, KernelCall)
               for name in step.outputs}
    last_call = max((at for at, step in enumerate(program.steps) if isinstance(step, ExternCall)
                     or isinstance(step, KernelCall) and step.faults), default=-1)
    # For the memory of each name, the steps that read it, and by which name.
    looks: dict[str, list[tuple[int, str]]] = {}
    writes: dict[str, int] = {}
    for at, step in enumerate(program.steps):
        for name in step_reads(step):
            looks.setdefault(owner[name], []).append((at, name))
        for name in step_writes(step):
            writes[owner[name]] = writes.get(owner[name], 0) + 1
    several_names = {owner[name] for name in owner if owner[name] != name}
    renamed: dict[str, str] = {}
    done: list[CopyInto] = []
    for copy in copies:
        source, target = copy.src, copy.dst
        at = made_by.get(source, -1)
        if at < last_call or at == last_call and not _checks_first(program.steps[at]):
            continue
        if (source in renamed or source in program.inputs or source in program.outputs
                or source in several_names or writes[target] > 1 or not _same_layout(program, source, target)):
            continue
        kernel = program.steps[at]
        assert isinstance(kernel, KernelCall)
        later = [look for look in looks.get(target, ()) if look[0] >= at]
        if later and (later != [(at, target)] or (source, target) not in kernel.inplace):
            continue
        renamed[source] = target
        done.append(copy)
    if not renamed:
        return program
    steps = [_renamed(step, renamed) for step in program.steps if not any(step is copy for copy in done)]
    buffers = {name: spec for name, spec in program.buffers.items() if name not in renamed}
    return dataclasses.replace(program, steps=steps, buffers=buffers)


def _checks_first(step: Step) -> bool:
    """Whether the step is a kernel that checks all indices before it writes anything."""
    return isinstance(step, KernelCall) and step.checks_first


def _same_layout(program: Program, a: str, b: str) -> bool:
    x, y = program.buffers[a], program.buffers[b]
    return (x.size, x.stride, x.dtype, x.device) == (y.size, y.stride, y.dtype, y.device)


def _renamed(step: Step, names: dict[str, str]) -> Step:
    if isinstance(step, KernelCall):
        inplace = tuple(pair for pair in step.inplace if pair[0] not in names and pair[1] not in names.values())
        return dataclasses.replace(
            step, args=tuple(names.get(n, n) for n in step.args), outputs=tuple(names.get(n, n) for n in step.outputs),
            inplace=inplace)
    if isinstance(step, CopyInto):
        return dataclasses.replace(step, src=names.get(step.src, step.src))
    return step
