"""Recurrent networks: inference and training steps, compiled, against eager.

    python benchmarks/recurrent.py [--rounds 25] [--only lstm gru rnn] [--threads 2]

A training step is the network, its backward pass, and gradients set to None. Eager's and compiled calls take turns in
one process; the figures are medians, and the median of the turns' ratios. torch.compile has no part in it: it breaks
the graph at a recurrent network, which then runs in eager.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import dynamo_lite

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
SIZES = [(10, 4, 16), (50, 32, 128), (100, 1, 256), (20, 16, 512)]
"""Steps, rows of a batch, and features, of the inputs and of the hidden state alike."""


def call_of(model: nn.Module, x: torch.Tensor, trains: bool) -> Callable[[], None]:
    """One call as a function without arguments."""

    def step() -> None:
        model(x)[0].sum().backward()
        for p in model.parameters():
            p.grad = None

    def infer() -> None:
        with torch.no_grad():
            model(x)

    return step if trains else infer


def compare(eager: Callable[[], None], ours: Callable[[], None], rounds: int) -> tuple[float, float, float]:
    """Medians in microseconds of both, and of the ratios of calls that lie beside each other."""
    for call in (eager, ours) * 3:
        call()
    start = time.perf_counter()
    eager()
    calls = max(1, round(0.02 / (time.perf_counter() - start)))
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for found, call in zip(times, (eager, ours)):
            start = time.perf_counter()
            for _ in range(calls):
                call()
            found.append((time.perf_counter() - start) / calls * 1e6)
    ratios = [a / b for a, b in zip(*times)]
    return statistics.median(times[0]), statistics.median(times[1]), statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print("| network | steps, rows, features | inference, us: eager / dynamo_lite | speed | "
          "training step, us: eager / dynamo_lite | speed |\n|---|---|---:|---:|---:|---:|")
    for name in given.only:
        for steps, rows, features in SIZES:
            torch.manual_seed(0)
            model = KINDS[name](features, features)
            compiled, x = dynamo_lite.compile(model), torch.randn(steps, rows, features)
            cells = []
            for trains in (False, True):
                eager, ours, speed = compare(call_of(model, x, trains), call_of(compiled, x, trains), given.rounds)
                cells.append(f"{eager:,.0f} / {ours:,.0f} | {speed:.2f}x")
            print(f"| {name} | {steps}, {rows}, {features} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
