"""What share of the machine's limits the kernels of a workload reach.

    python benchmarks/limits.py WORKLOAD

`run.py --limits` starts it. Each kernel is a call of its own here, so that torch's profiler times it. The limits are
measured in the same process: products of tiles in registers and caches on all threads, and a copy of what no cache
holds. A kernel that reads what the one before has left in a cache may be beyond the limit of memory. Bytes are those of
the buffers, each counted once.
"""
import statistics
import sys
import time
from typing import Any

import torch
from workloads import WORKLOADS

import dynamo_lite
from dynamo_lite.backends.inductor import machine_costs, pipeline, processor
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source
from dynamo_lite.backends.inductor.codegen.wrapper import python, runs
from dynamo_lite.backends.inductor.ir.contraction import volume

LEAST_SHARE = 0.05
Work = dict[str, tuple[float, float]]
"""Operations and bytes of each kernel, by its name in a profile."""


def _copy_rate() -> float:
    """GB/s, read and written."""
    a, b = torch.ones(1 << 25), torch.empty(1 << 25)
    best = float("inf")
    for _ in range(6):
        start = time.perf_counter()
        b.copy_(a)
        best = min(best, time.perf_counter() - start)
    return 2 * a.nbytes / best / 1e9


def _product_rate() -> float:
    """GFLOP/s of all threads."""
    simd = processor.simd()
    costs = machine_costs._measured(library_source("probe", simd), simd) or machine_costs.TYPICAL
    return 2 * costs.product_rate * torch.get_num_threads()


def _record_work(work: Work) -> None:
    """Has each kernel be a call of its own, and notes operations (of products) and bytes of each, by its name in a
    profile. A name ends with a number: graphs number their own calls."""
    call, label_of = pipeline._call, python.label_of
    of_call: dict[str, tuple[float, float]] = {}

    def noted(lowered: Any, kernel: Any, *rest: Any) -> Any:
        made = call(lowered, kernel, *rest)
        flops = 0
        if kernel.tiles is not None:
            c = kernel.tiles.contraction
            flops = 2 * volume(c.batch) * volume(c.rows) * volume(c.columns) * c.depth
        workspace = kernel.tiles.workspace if kernel.tiles is not None else None
        size = 0
        for name, buffer in kernel.buffers.items():
            if name != workspace and all(isinstance(n, int) for n in buffer.size):
                size += torch.Size(buffer.size).numel() * buffer.dtype.itemsize
        of_call[made.symbol] = flops, size  # of its graph's kernels, which are named before the next graph's are made
        return made

    def numbered(symbol: str, calls: list[Any]) -> str:
        label = f"{label_of(symbol, calls)} #{len(work)}"
        kernel, = calls
        work[label] = of_call[kernel.symbol]
        return label

    pipeline._call, runs._longest = noted, lambda program: list(range(len(program.steps)))
    python.label_of = numbered


def table(workload: str) -> str:
    """A line for each kernel that takes 5% of the time of calls, and more; in training also of the backward pass."""
    work: Work = {}
    _record_work(work)
    dynamo_lite.config.cache_graphs = False
    fn, args, kwargs = WORKLOADS[workload].build()
    trains = WORKLOADS[workload].optimizer is not None
    with torch.set_grad_enabled(trains):
        compiled = dynamo_lite.compile(fn)

        def run() -> None:
            result = compiled(*args, **kwargs)
            if trains:
                assert isinstance(fn, torch.nn.Module)
                fn.zero_grad()
                result.backward()

        for _ in range(5):
            run()
        calls = 10
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(calls):
                run()
    # A kernel in whose call malloc's heap grows takes several times as long: the middle one of its calls counts.
    times: dict[str, list[float]] = {}
    for event in profile.events():
        times.setdefault(event.key, []).append(event.self_cpu_time_total)
    taken = {key: statistics.median(all_) * len(all_) for key, all_ in times.items()}
    whole = sum(taken.values())
    flops_limit, bytes_limit = _product_rate(), _copy_rate()
    lines = [f"{workload}: {whole / calls / 1e3:.2f} ms a call in kernels and library calls; limits: "
             f"{flops_limit:.0f} GFLOP/s, {bytes_limit:.0f} GB/s"]
    for key in sorted(taken, key=lambda key: -taken[key]):
        share = taken[key] / whole
        if share < LEAST_SHARE:
            break
        seconds = taken[key] / calls / 1e6
        text, name = "not a kernel", key.partition(" #")[0]
        if key in work:
            flops, size = (n / seconds / 1e9 for n in work[key])
            text = f"{flops:.0f} GFLOP/s, {flops / flops_limit:.0%}; {size:.1f} GB/s, {size / bytes_limit:.0%}"
        lines.append(f"  {share:4.0%}  {name[:60]:60}  {seconds * 1e3:7.3f} ms  {text}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sys.argv[1]))
