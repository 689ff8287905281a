"""What the guards of an unchanged model cost, on one Python or on several side by side.

    python benchmarks/guards.py [OTHER_PYTHON ...]

MobileNetV3 has 267 tensors and 6,100 steps. Each Python compiles it with the backend `eager`; then they take turns with
short runs of the guard program alone, and of each the fastest run counts: the machine may be busy with something else
meanwhile. Two figures: with all that the program reads in the caches, and after other memory has pushed it out of them,
as a model's kernels do.
"""
from __future__ import annotations

import argparse
import builtins
import subprocess
import sys
import time
from typing import Any

TURNS = 150
WARM_RUNS = 5
FLUSHED = 64 << 20  # bytes; more than the caches hold


def serve() -> None:
    """Prepares the program, then for each line of the input measures one run of a kind: prints nanoseconds."""
    import torch
    from convnets import MobileNetV3

    import dynamo_lite
    from dynamo_lite._guards import GuardProgram, dict_states
    from dynamo_lite.guards import program as programs

    made: list[GuardProgram] = []

    def remembered(*operands: Any) -> GuardProgram:
        made.append(GuardProgram(*operands))
        return made[-1]

    programs.GuardProgram = remembered  # type: ignore[misc,assignment]
    model, x = MobileNetV3().eval(), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        dynamo_lite.compile(model, backend="eager")(x)
        program = max(made, key=lambda p: len(p.steps))
        frame: Any = (model, (x,), {}), None, vars(sys.modules[torch.nn.Module.__module__]), vars(builtins)
        assert all(program.check(*frame)[0] for _ in range(3))
        flushed = torch.zeros(FLUSHED // 4)
        print(f"{len(program.steps)} steps, {program.n_inputs} tensors, states of dicts by "
              f"{dict_states() or 'nothing'}", flush=True)
        for line in sys.stdin:
            runs = WARM_RUNS if line.strip() == "warm" else 1
            if runs == 1:
                flushed.add_(1)
            began = time.perf_counter_ns()
            for _ in range(runs):
                program.check(*frame)
            print((time.perf_counter_ns() - began) / runs, flush=True)


class Server:
    """Another Python that measures when it is asked."""

    def __init__(self, python: str) -> None:
        self.python = python
        command = [python, __file__, "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.best = float("inf")

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def measure(self, kind: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(kind + "\n")
        self.process.stdin.flush()
        self.best = min(self.best, float(self.line()))


def compare(pythons: list[str]) -> None:
    servers = [Server(python) for python in pythons]
    for server in servers:
        print(f"{server.python}: {server.line()}")
    for kind in ("warm", "flushed"):
        for _ in range(TURNS):
            for server in servers:
                server.measure(kind)
        for server in servers:
            print(f"{kind:>8} {server.best / 1000:8.1f} us {server.best / servers[0].best:6.2f}x  {server.python}")
        for server in servers:
            server.best = float("inf")
    for server in servers:
        server.process.communicate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="OTHER_PYTHON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
    else:
        compare([sys.executable, *options.pythons])
