"""One measurement, in a process of its own: first call, calls after it, memory, difference from eager; JSON on stdout.

    python benchmarks/measure.py WORKLOAD SYSTEM SECONDS

`run.py` starts these. The order matters: the first call comes before anything else runs torch operations of the
workload, and memory is looked at after the timing, because the profiler slows calls down.
"""
import collections.abc
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
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

    `faults` is the median over the samples: malloc's heap grows in one call of a hundred or so, mostly an early one, by
    thousands of faults that the others do not have. `faults_mean` counts them too."""
    start = time.perf_counter()
    warm = 0
    while warm < 3 or (time.perf_counter() - start < seconds / 4 and warm < 10_000):
        call()
        warm += 1
    t = time.perf_counter()
    call()
    inner = max(1, min(10_000, int(2e-3 / max(time.perf_counter() - t, 1e-7))))
    samples: list[float] = []
    faults: list[float] = []
    start = time.perf_counter()
    while len(samples) < 5 or (time.perf_counter() - start < seconds and len(samples) < 5_000):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        t = time.perf_counter()
        for _ in range(inner):
            call()
        samples.append((time.perf_counter() - t) / inner)
        faults.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / inner)
    samples.sort()
    return {"faults": statistics.median(faults), "faults_mean": statistics.mean(faults),
            "median": statistics.median(samples), "best": samples[0], "p90": samples[int(len(samples) * 0.9)],
            "calls": len(samples) * inner}


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


def measure(workload: str, system_name: str, seconds: float) -> dict[str, Any]:
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
        result = {
            "first_call": first_call,
            "call": time_calls(call, seconds),
            "error": max(error, largest_difference(results(compiled), results(fn))),
            "peak_call": peak_of_call(call),
            "peak_process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "report": report,
        }
    return result


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
    print(json.dumps(measure(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
