"""Attention written by hand and `flex_attention`, inference, against eager, torch.compile and torch's fused operator.

    python benchmarks/attention.py [--rounds 9] [--threads 2] [--tokens 128 512 2048] [--batch 1] [--width 64]

Each program has 8 heads. Calls of the four take turns in one process; the figures are medians in microseconds of this
process's CPU time with one thread, of time with more, and the median of the turns' ratios. The fused operator
(`scaled_dot_product_attention`) computes what the program does, but for score functions.
"""
from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dynamo_lite

HEADS = 8
Program = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def earlier(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ v


def distances(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (j - i) * 0.1)


def programs(tokens: int) -> dict[str, tuple[Program, bool]]:
    """By name, a program and whether a token sees earlier ones only."""
    mask = create_block_mask(earlier, 1, 1, tokens, tokens, device="cpu")
    return {
        "by hand": (plain, False), "by hand, causal": (causal, True), "flex, a score function": (distances, False),
        "flex, causal": (lambda q, k, v: flex_attention(q, k, v, block_mask=mask), True),
    }


def compare(calls: list[Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> list[list[float]]:
    """Times of the calls in microseconds, one of each per round."""
    for call in calls * 2:
        call()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for found, call in zip(times, calls):
            start = clock()
            call()
            found.append((clock() - start) * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    clock = time.process_time if given.threads == 1 else time.perf_counter
    print("| tokens | program | us: eager / torch.compile / fused operator / dynamo_lite | "
          "our time, theirs = 1: eager / torch.compile / fused operator |\n|---:|---|---:|---:|")
    for tokens in given.tokens:
        q, k, v = (torch.randn(given.batch, HEADS, tokens, given.width) for _ in range(3))
        for name, (program, is_causal) in programs(tokens).items():
            torch._dynamo.reset()
            dynamo_lite.reset()
            fused = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)  # noqa: B023
            systems = [program, torch.compile(program, dynamic=False), fused, dynamo_lite.compile(program)]
            with torch.no_grad():
                torch.testing.assert_close(systems[3](q, k, v), program(q, k, v), atol=1e-4, rtol=1e-3)
                times = compare([lambda f=f: f(q, k, v) for f in systems],  # type: ignore[misc]  # noqa: B023
                                given.rounds, clock)
            medians = " / ".join(f"{statistics.median(t):,.0f}" for t in times)
            ratios = " / ".join(f"{statistics.median(b / a for a, b in zip(t, times[3])):.2f}" for t in times[:3])
            print(f"| {tokens} | {name} | {medians} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
