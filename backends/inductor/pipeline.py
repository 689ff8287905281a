"""The passes that turn an aten graph into a program, in order.

Invariant: a pass reads the result of the one before it and does not change it. Everything that depends on the target is
asked of the ``Target``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from dynamo_lite import log
from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor import target_info
from dynamo_lite.backends.inductor.codegen.cpp.target import cpp_target
from dynamo_lite.backends.inductor.complex_pairs import in_pairs
from dynamo_lite.backends.inductor.gpu_info import TYPICAL, GpuInfo
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.late_decisions import share_windows
from dynamo_lite.backends.inductor.lowering import LoweredGraph, lower
from dynamo_lite.backends.inductor.scheduler import Kernel, schedule
from dynamo_lite.backends.inductor.target import Target, Tuning

__all__ = ["BY_RULE", "Tuning", "lower_and_schedule", "target_named"]

BY_RULE = Tuning()


def lower_and_schedule(
    graph: torch.fx.Graph, constants: Mapping[str, torch.Tensor] | None, target: Target
) -> prog.Program:
    """The program of an aten graph (``aot.graph``).

    Args:
        constants: the tensors that the graph's ``get_attr`` nodes name.
        target: the target that kernels are generated for.
    """
    with log.phase("lowering"):
        lowered = lower(in_pairs(graph), constants, target.abilities)
    if log.enabled("ir"):
        log.artifact("ir").info("%s", _loops_as_text(lowered))
    with log.phase("scheduling"):
        scheduled = schedule(lowered, target.arrangement)
    kernels = [step for step in scheduled.steps if isinstance(step, Kernel)]
    if log.enabled("schedule"):
        for kernel in kernels:
            log.artifact("schedule").info("%s", kernel.describe())
    with log.phase(f"{target.name}_codegen"):
        sources = target.write(kernels)
    names = iter(sources.symbols)
    steps: list[prog.Step] = [
        _call(lowered, step, next(names), target.reports) if isinstance(step, Kernel) else step
        for step in scheduled.steps
    ]
    program = prog.Program(
        lowered.inputs,
        lowered.constants,
        lowered.symbols,
        {name: _spec(lowered, buffer) for name, buffer in _used(lowered, steps).items()},
        steps,
        lowered.outputs,
        sources.text,
        {**scheduled.metrics, "kernels": len(kernels)},
        sources.libraries,
        tuple(lowered.faults),
        target.launches,
        decisions=tuple(_decisions(kernels)),
    )
    if __debug__:
        program.check()
    return program


def target_named(name: str, tuning: Tuning = BY_RULE, gpu: GpuInfo = TYPICAL) -> Target:
    """The target with a given name: "cpp", C++ for the processor's vector instructions; "triton", Triton kernels on
    CPU tensors, in Triton's interpreter; or "cuda", Triton kernels on a GPU.

    Args:
        tuning: how the target's choices are made.
        gpu: the GPU's properties, for "cuda".
    """
    if name in ("triton", "cuda"):
        # Imported when asked for: graphs with C++ kernels do not need Triton's code generator.
        from dynamo_lite.backends.inductor.codegen.triton.target import triton_target

        return triton_target(name == "cuda", tuning, gpu)
    return cpp_target(target_info.current(), tuning)


def _loops_as_text(lowered: LoweredGraph) -> str:
    """The result of lowering, before fusion: loop nests, library calls, views, writes to inputs."""
    lines = [f"inputs {', '.join(lowered.inputs)}; loops marked * are reduced over"]
    for operation in lowered.operations:
        if isinstance(operation, LoopNest):
            buffer = operation.buffer
            layout = f"{str(buffer.dtype).removeprefix('torch.')} {list(buffer.size)}, strides {list(buffer.stride)}"
            lines += [f"# {buffer.name}: {layout}; {'; '.join(dict.fromkeys(operation.origin))}", operation.describe()]
        elif isinstance(operation, prog.ExternCall):
            given = [*map(_argument, operation.args), *(f"{k}={_argument(v)}" for k, v in operation.kwargs.items())]
            results = ", ".join(str(name) for name in operation.outputs)
            lines.append(f"{results}{' = ' if results else ''}{operation.target}({', '.join(given)})  # a library call")
        elif isinstance(operation, prog.View):
            spec = lowered.buffers[operation.name]
            place = f"size {list(spec.size)}, strides {list(spec.stride)}, offset {operation.offset}"
            lines.append(f"{operation.name} = {operation.base} as {place}")
        else:
            lines.append(f"{operation.dst}[...] = {operation.src}  # an input is overwritten")
    return "\n".join([*lines, f"return {', '.join(str(getattr(o, 'value', o)) for o in lowered.outputs)}"])


def _argument(value: object) -> str:
    if isinstance(value, prog.BufferRef):
        return value.name
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_argument, value)) + "]"
    return str(value.expr) if isinstance(value, prog.SizeRef) else repr(value)


def _used(lowered: LoweredGraph, steps: list[prog.Step]) -> dict[str, Buffer]:
    """The buffers that exist when the program runs, without those that fusion has removed."""
    names = dict.fromkeys((*(n for n in lowered.inputs if n in lowered.buffers), *lowered.constants))
    for step in steps:
        names.update(dict.fromkeys((*prog.step_reads(step), *prog.step_writes(step))))
    return {name: lowered.buffers[name] for name in names}


def _spec(lowered: LoweredGraph, buffer: Buffer) -> prog.BufferSpec:
    return prog.BufferSpec(buffer.name, tuple(buffer.size), tuple(buffer.stride), buffer.dtype, buffer.device)


def _call(lowered: LoweredGraph, kernel: Kernel, symbol: str, reports: bool) -> prog.KernelCall:
    """The step of a program that calls a kernel."""
    work = max((b.size for b in kernel.buffers.values()), key=_volume, default=())
    origin = ", ".join(dict.fromkeys(o.partition(" <- ")[0] for o in kernel.origin))
    return prog.KernelCall(
        symbol,
        tuple(kernel.buffers),
        kernel.outputs,
        sizes=tuple(ix.atom(ix.Sym(name)) for name in kernel.symbols()),
        work=_volume(work),
        origin=origin,
        inplace=kernel.inplace,
        faults=reports and kernel.faults(),
        checks_first=any(stage.check for stage in kernel.stages),
        part=_part(kernel),
    )


def _decisions(kernels: list[Kernel]) -> Iterator[prog.Decision]:
    for kernel in kernels:
        sharing = None if kernel.tiles is None else kernel.tiles.sharing
        if sharing is not None and sharing.late is not None:
            yield prog.Decision(sharing.late.names, share_windows, sharing.late.described)


def _part(kernel: Kernel) -> int | None:
    """Number of bytes that a kernel writes to parts of a buffer; None if it is no such kernel."""
    writes = [stage for stage in kernel.stages if stage.ordered]
    if not writes:
        return None
    return sum(_volume(tuple(v.size for v in w.inner)) * w.statements[0].value.dtype.itemsize for w in writes)


def _volume(size: tuple[ix.Index, ...]) -> int:
    volume = ix.product(size)
    return volume if isinstance(volume, int) else 1 << 20
