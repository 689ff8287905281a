"""Writes the lines of the wrapper that launch kernels from Python, one call per kernel.

On a GPU, the device of a run of kernels is made current around them, and they are launched in its current stream, like
the library's kernels. ``on_device`` has the functions for that; they are not in a wrapper's namespace, because only a
torch built for GPUs has them.

Invariant: the caller's current device is restored, whatever is raised.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dynamo_lite.backends.inductor.codegen.wrapper.faults import new_fault, raise_fault
from dynamo_lite.backends.inductor.program import KernelCall, Program

Bind = Callable[[str, Any], str]


def launch_lines(
    program: Program, calls: Sequence[tuple[KernelCall, list[str]]], bind: Bind, fresh: Callable[[str], str]
) -> list[str]:
    """The lines that launch kernels.

    Args:
        calls: the kernels, each with its arguments as text.
        bind: puts a value into the wrapper's namespace and returns its name there.
        fresh: returns a new variable of the given name or a similar one.
    """
    lines: list[str] = []
    for device, some in itertools.groupby(calls, lambda pair: device_of(program, pair[0])):
        on_gpu = device.type == "cuda"
        index = device.index or 0
        stream, before = (fresh("stream"), fresh("device_before")) if on_gpu else ("", "")
        indent = "    " if on_gpu else ""
        if on_gpu:
            lines += [f"{before} = exchange_device({index})", "try:", f"{indent}{stream} = current_stream({index})"]
        for call, arguments in some:
            lines.append(f"{indent}# {call.origin or call.symbol}")
            given = [stream, *arguments] if on_gpu else arguments
            fault = fresh("fault") if call.faults else ""
            if fault:
                lines.append(f"{indent}{fault} = {bind('new_fault', new_fault)}()")
                given = [*given, fault]
            lines.append(f"{indent}{launcher_of(call.symbol, index)}({', '.join(given)})")
            if fault:
                lines.append(f"{indent}{bind('raise_fault', raise_fault)}({fault}, {bind('faults', program.faults)})")
        if on_gpu:
            lines += ["finally:", f"{indent}restore_device({before})"]
    return lines


def device_of(program: Program, call: KernelCall) -> torch.device:
    """The device of the tensors that a kernel writes. Tensors that it reads may be on the host."""
    return program.buffers[(call.outputs or call.args)[0]].device


def launcher_of(symbol: str, device: int) -> str:
    """The name of the function that launches a kernel on a device."""
    return f"{symbol}_on{device}" if device else symbol


def gpus_of(program: Program) -> tuple[int, ...]:
    """Indices of the GPUs on which the program runs kernels."""
    devices = [device_of(program, call) for call in program.kernel_calls()]
    return tuple(sorted({device.index or 0 for device in devices if device.type == "cuda"}))


def on_device() -> Mapping[str, Any]:
    """The functions that the lines call besides kernels."""
    runtime = torch._C
    return {"exchange_device": runtime._cuda_exchangeDevice, "restore_device": runtime._cuda_maybeExchangeDevice,
            "current_stream": runtime._cuda_getCurrentRawStream}
