"""`make demo`: two models from transformers, compiled: their graphs, breaks, compile time by phase, speed, difference.

    python benchmarks/demo.py [--models NAME ...] [--seconds S]
"""
import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import largest_difference, time_calls
from report import duration
from workloads import WORKLOADS

import dynamo_lite
from dynamo_lite import config, exc, log


def show_graph(gm: torch.fx.GraphModule) -> None:
    """The graph in brief: how many nodes of each kind, and its first operations."""
    calls = [n for n in gm.graph.nodes if n.op.startswith("call")]
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    static = sum(bool(n.meta.get("static")) for n in inputs)
    print(f"  graph: {len(calls)} operations, {len(inputs)} inputs ({static} parameters or buffers); the first:")
    for node in calls[:4]:
        print(f"    {exc.one_line(node.format_node(), 110)}")


def in_turns(first: Callable[[], Any], second: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Seconds per call of each, the median of three turns, so that a slow moment of the machine decides nothing."""
    turns = [[time_calls(call, seconds / 3)["median"] for call in (first, second)] for _ in range(3)]
    return statistics.median(t[0] for t in turns), statistics.median(t[1] for t in turns)


def demo(name: str, seconds: float) -> bool:
    """Compile one workload and print what happened; whether it is one graph and equal to eager."""
    print(f"\n{WORKLOADS[name].title}")
    torch.manual_seed(0)
    model, args, kwargs = WORKLOADS[name].build()
    graphs: list[torch.fx.GraphModule] = []
    default = dynamo_lite.lookup_backend(config.default_backend)

    def backend(gm, example_inputs):
        graphs.append(gm)
        return default(gm, example_inputs)

    log.reset()
    with torch.no_grad():
        want = model(*args, **kwargs)
        start = time.perf_counter()
        compiled = dynamo_lite.compile(model, backend=backend)
        got = compiled(*args, **kwargs)
        first = time.perf_counter() - start
        for gm in graphs:
            show_graph(gm)
        breaks = log.counters().get("graph_breaks", 0)
        counted = dynamo_lite.metrics()
        print(f"  {len(graphs)} graph{'s' * (len(graphs) != 1)}, {breaks} graph breaks; {counted['kernels']} kernels, "
              f"{sum(counted['library_calls'].values())} library calls")
        phases = sorted(log.phase_times().items(), key=lambda item: -item[1])
        inside = ", ".join(f"{phase} {spent:.2f}" for phase, spent in phases if spent >= 0.005)
        print(f"  first call, empty cache: {first:.2f} s, of which {inside}, the rest runs the model")
        eager, ours = in_turns(lambda: model(*args, **kwargs), lambda: compiled(*args, **kwargs), seconds)
        print(f"  a call: eager {duration(eager)}, compiled {duration(ours)}: {eager / ours:.2f}x")
        difference = largest_difference(got, want)
        print(f"  largest difference from eager: {difference:.1e}")
    return len(graphs) == 1 and breaks == 0 and difference < 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile models and show what happened.")
    parser.add_argument("--models", nargs="+", metavar="NAME", choices=list(WORKLOADS),
                        default=["bert_base", "resnet18"])
    parser.add_argument("--seconds", type=float, default=3.0, help="how long calls are timed")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, backend {config.default_backend}")
    with tempfile.TemporaryDirectory(prefix="dynamo_lite_demo_") as folder, config.patch(cache_dir=folder):
        fine = [demo(name, options.seconds) for name in options.models]
    if all(fine):
        print("\nBoth are one graph." if len(fine) == 2 else "\nAll are one graph.")
    else:
        print("\nNot as it should be: more than one graph, or a result that is not eager's.")
        sys.exit(1)


if __name__ == "__main__":
    main()
