"""A process that measures one system on one workload: first call, calls after it, memory, difference from eager.

    python benchmarks/measure.py WORKLOAD SYSTEM

`run.py` starts these. The process makes the first call and writes what it found as a line of JSON. For each line that
it then reads, a number of seconds, it times calls for so long and writes another; at the end of its input it writes the
last one. So several systems take turns, and whoever is not asked sleeps. The order matters: the first call comes before
anything else runs torch operations of the workload, and memory is looked at after the timing, because the profiler
slows calls down.
"""
import collections.abc
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from systems import SYSTEMS
from workloads import WORKLOADS, opaque_by


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of a result, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, collections.abc.Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif hasattr(value, "layers") and hasattr(value, "get_seq_length"):  # a transformers cache
        for layer in value.layers:
            yield from tensors([layer.keys, layer.values])


def largest_difference(got: Any, want: Any) -> float:
    """The largest absolute difference, over all tensors of two results; infinite if their form differs."""
    a, b = list(tensors(got)), list(tensors(want))
    if [(t.shape, t.dtype) for t in a] != [(t.shape, t.dtype) for t in b]:
        return float("inf")
    return max(((p.double() - q.double()).abs().max().item() for p, q in zip(a, b) if p.numel()), default=0.0)


def time_calls(call: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Seconds per call: the median of samples, each long enough for the clock, over about the time given; and the
    page faults of a call, which say how much memory the process had given back to the system and got again.

    The first tenth of the time, and at least one call, is not counted: another process may have had the caches.
    `faults` is the median over the samples: malloc's heap grows in one call of a hundred or so, mostly an early one, by
    thousands of faults that the others do not have. `faults_mean` counts them too."""
    start = time.perf_counter()
    took = 0.0
    while not took or time.perf_counter() - start < seconds / 10:
        before = time.perf_counter()
        call()
        took = time.perf_counter() - before
    inner = max(1, min(10_000, int(2e-3 / max(took, 1e-7))))
    samples: list[float] = []
    faults: list[float] = []
    start = time.perf_counter()
    while len(samples) < 3 or (time.perf_counter() - start < seconds and len(samples) < 5_000):
        before_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        t = time.perf_counter()
        for _ in range(inner):
            call()
        samples.append((time.perf_counter() - t) / inner)
        faults.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before_faults) / inner)
    return {"faults": statistics.median(faults), "faults_mean": statistics.mean(faults),
            "median": statistics.median(samples), "best": min(samples), "calls": len(samples) * inner}


def peak_of_call(call: Callable[[], Any]) -> int:
    """Bytes that one call has allocated from torch's CPU allocator at its peak, its result included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as prof:
        result = call()
    del result
    total = peak = 0
    for event in sorted(prof.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            total += event.nbytes()
            peak = max(peak, total)
    return peak


def measure(workload: str, system_name: str, turns: Iterable[float]) -> Iterator[dict[str, Any]]:
    """The first call's figures; those of calls for each number of seconds; memory, and the difference once more."""
    system = SYSTEMS[system_name]
    torch.manual_seed(0)
    opaque_by(system.disable)
    fn, args, kwargs = WORKLOADS[workload].build()
    optimizer = WORKLOADS[workload].optimizer
    with torch.set_grad_enabled(optimizer is not None):
        start = time.perf_counter()
        compiled = system.compile(fn)
        call: Callable[[], Any]
        if optimizer is None:
            results, call = (lambda f: f(*args, **kwargs)), (lambda: compiled(*args, **kwargs))
        else:
            assert isinstance(fn, torch.nn.Module)
            results = lambda f: gradients(fn, f, args, kwargs)
            call = step_of(system.compile, compiled, args, kwargs, optimizer(fn.parameters()))
        first = results(compiled)
        first_call = time.perf_counter() - start
        report = system.report()
        error = largest_difference(first, results(fn))
        del first
        warm_up(call)
        yield {"first_call": first_call, "report": report}
        for seconds in turns:
            yield time_calls(call, seconds)
        yield {
            "error": max(error, largest_difference(results(compiled), results(fn))),
            "peak_call": peak_of_call(call),
            "peak_process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def warm_up(call: Callable[[], Any], seconds: float = 0.5) -> None:
    """Calls for some time, three at least: a training step's optimizer is compiled, malloc has its memory."""
    start = time.perf_counter()
    calls = 0
    while calls < 3 or (time.perf_counter() - start < seconds and calls < 10_000):
        call()
        calls += 1


def step_of(compile_: Callable[[Any], Any], model: Any, args: Any, kwargs: Any,
            optimizer: torch.optim.Optimizer) -> Callable[[], torch.Tensor]:
    """A training step of a model that returns its loss; the optimizer's step is compiled too."""
    update = compile_(optimizer.step)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(*args, **kwargs)
        loss.backward()
        update()
        return loss.detach()

    return step


def gradients(model: torch.nn.Module, call: Callable[..., torch.Tensor], args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The loss and the gradients of the parameters; the random numbers are the same each time."""
    torch.manual_seed(1)
    model.zero_grad()
    loss = call(*args, **kwargs)
    loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
    model.zero_grad()
    return found


if __name__ == "__main__":
    for figures in measure(sys.argv[1], sys.argv[2], map(float, sys.stdin)):
        print(json.dumps(figures), flush=True)
