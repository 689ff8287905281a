"""Peak memory of one call and bytes saved for the backward pass, of eager and of dynamo_lite, in one process.

    python benchmarks/memory.py [WORKLOAD ...]

Counted are bytes that torch's CPU allocator gave out during the call, its result included; saved are the storages that
autograd keeps between the passes, each once.
"""
import copy
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from measure import peak_of_call, step_of
from workloads import WORKLOADS, Workload

import dynamo_lite

MEGABYTE = 1e6


def saved_bytes(call: Callable[[], Any]) -> int:
    """What autograd saves during a call; parameters count, as for both sides alike."""
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(storages.values())


def measure(workload: Workload) -> tuple[list[int], list[int]]:
    """Peaks and saved bytes, of eager and compiled."""
    torch.manual_seed(0)
    fn, args, kwargs = workload.build()
    other = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn
    peaks, saved = [], []
    with torch.set_grad_enabled(workload.optimizer is not None):
        systems: list[tuple[Any, Callable[[Any], Any]]] = [(fn, lambda f: f), (other, dynamo_lite.compile)]
        for original, compile_ in systems:
            call = compile_(original)
            run: Callable[[], Any] = functools.partial(call, *args, **kwargs)
            step = run
            if workload.optimizer is not None and isinstance(original, torch.nn.Module):
                step = step_of(compile_, call, args, kwargs, workload.optimizer(original.parameters()))
                saved.append(saved_bytes(run))
            step()
            step()
            peaks.append(peak_of_call(step))
    return peaks, saved


def main(names: list[str]) -> None:
    print(f"{'':24} {'peak, MB':>17} {'':>6} {'saved, MB':>17}")
    print(f"{'':24} {'eager':>8} {'ours':>8} {'ratio':>6} {'eager':>8} {'ours':>8}")
    for name in names or [n for n, workload in WORKLOADS.items() if workload.default]:
        (eager, ours), saved = measure(WORKLOADS[name])
        tail = "".join(f" {n / MEGABYTE:8.2f}" for n in saved)
        print(f"{name:24} {eager / MEGABYTE:8.2f} {ours / MEGABYTE:8.2f} {ours / max(eager, 1):6.2f}{tail}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
