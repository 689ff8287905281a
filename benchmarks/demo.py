"""`make demo`: two models from transformers, compiled: their graphs, breaks, compile time by phase, speed, difference.

    python benchmarks/demo.py [--models NAME ...] [--seconds S]
"""
import argparse
import sys
import tempfile
import time

import torch
from measure import largest_difference, time_calls
from report import duration
from workloads import WORKLOADS

import dynamo_lite
from dynamo_lite import config, log


def show_graph(gm: torch.fx.GraphModule) -> None:
    """The graph in brief: how many nodes of each kind, and its first operations."""
    calls = [n for n in gm.graph.nodes if n.op.startswith("call")]
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    static = sum(bool(n.meta.get("static")) for n in inputs)
    print(f"  graph: {len(calls)} operations, {len(inputs)} inputs ({static} parameters or buffers); the first:")
    for node in calls[:4]:
        print(f"    {node.format_node()}")


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
        print(f"  {len(graphs)} graph{'s' * (len(graphs) != 1)}, {breaks} graph breaks")
        phases = sorted(log.phase_times().items(), key=lambda item: -item[1])
        inside = ", ".join(f"{phase} {spent:.2f}" for phase, spent in phases if spent >= 0.005)
        print(f"  first call, empty cache: {first:.2f} s ({inside or 'no phases'})")
        eager = time_calls(lambda: model(*args, **kwargs), seconds)["median"]
        ours = time_calls(lambda: compiled(*args, **kwargs), seconds)["median"]
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
