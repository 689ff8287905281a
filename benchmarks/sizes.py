"""Sizes that change: a graph with symbols against one graph for each size, on BERT-base, GPT-2 and ResNet-18, that with
changing numbers of images and with changing images.

    python benchmarks/sizes.py [--only bert gpt2 resnet18 images] [--rounds 7] [--layers 12]

For each size, calls of the model compiled for that size alone, of the one compiled for all sizes and of eager take
turns, in one process; the table has the ratios of their medians, and how often the second was compiled. CPU seconds of
the first compile, compilers included, are compared too.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import dynamo_lite
from dynamo_lite import log

BATCHES, LENGTHS = (1, 2, 4, 8, 16, 32, 64), (16, 48, 128, 333, 512)
# The most tokens, or images, of one call.
MOST_TOKENS = 4096


def bert(layers: int) -> tuple[nn.Module, Callable[[int, int], torch.Tensor]]:
    import transformers

    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers))
    return model, lambda n, length: torch.randint(0, 30000, (n, length))


def gpt2(layers: int) -> tuple[nn.Module, Callable[[int, int], torch.Tensor]]:
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, use_cache=False))
    return model, lambda n, length: torch.randint(0, 50000, (n, length))


def resnet18(layers: int) -> tuple[nn.Module, Callable[[int, int], torch.Tensor]]:
    import transformers

    config = transformers.ResNetConfig(
        layer_type="basic", embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2])
    return transformers.ResNetModel(config), lambda n, _: torch.randn(n, 3, 224, 224)


def images(layers: int) -> tuple[nn.Module, Callable[[int, int], torch.Tensor]]:
    return resnet18(layers)[0], lambda n, side: torch.randn(n, 3, side, side + 32)


MODELS = {"bert": bert, "gpt2": gpt2, "resnet18": resnet18, "images": images}
# Numbers of sequences or images, and the lengths or sides of these.
SIZES = {"resnet18": (BATCHES, (0,)), "images": ((1, 2), (64, 96, 128, 160, 192, 224, 320))}


def cpu_seconds() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def seconds(fn: Callable[[Any], Any], x: torch.Tensor) -> float:
    start = time.perf_counter()
    fn(x)
    return time.perf_counter() - start


def measure(name: str, rounds: int, layers: int) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name](layers)
    model.eval()
    batches, lengths = SIZES.get(name, (BATCHES, LENGTHS))
    sizes = [(n, m) for n in batches for m in lengths if n * m <= MOST_TOKENS]
    random.Random(0).shuffle(sizes)
    symbolic = dynamo_lite.compile(model)
    with torch.no_grad():
        before = log.counters().get("graphs", 0)
        for n, m in sizes:
            x = inputs(n, m)
            torch.testing.assert_close(symbolic(x)[0], model(x)[0], rtol=1e-3, atol=1e-3)
        compiles = log.counters()["graphs"] - before
        ratios, speeds = [], []
        for n, m in sizes:
            x = inputs(n, m)
            static = dynamo_lite.compile(model, dynamic=False)
            with dynamo_lite.config.patch(recompile_limit=len(sizes) + 1):
                static(x)
            turns = [(seconds(static, x), seconds(symbolic, x), seconds(model, x)) for _ in range(rounds)]
            a, b, eager = (statistics.median(column) for column in zip(*turns))
            ratios.append(a / b)
            speeds.append(eager / b)
            print(f"{name:9} {n:3} x {m:3}: static {a * 1e3:.2f} ms, symbols {b * 1e3:.2f} ms, {a / b:.2f}; "
                  f"eager {eager * 1e3:.2f} ms, {eager / b:.2f}", flush=True)
            del static
    mean, speed = (math.exp(statistics.mean(map(math.log, found))) for found in (ratios, speeds))
    print(f"{name:9} compiles {compiles}; static time over this: {mean:.3f} on average, {min(ratios):.2f} at least; "
          f"eager's {speed:.2f}, {min(speeds):.2f}")


def compile_time(name: str, layers: int) -> None:
    """CPU seconds of a first compile that finds nothing on disk."""
    model, inputs = MODELS[name](layers)
    model.eval()
    found = []
    with torch.no_grad():
        for dynamic in (False, False, True):  # the first pays for imports
            dynamo_lite.reset()
            with tempfile.TemporaryDirectory() as folder, dynamo_lite.config.patch(cache_dir=folder):
                compiled = dynamo_lite.compile(model, dynamic=dynamic)
                x = inputs(2, 64)
                start = cpu_seconds()
                compiled(x)
                found.append(cpu_seconds() - start)
    print(f"{name:9} first call, CPU s: static {found[1]:.2f}, symbols {found[2]:.2f}, {found[2] / found[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    for name in options.only:
        measure(name, options.rounds, options.layers)
        compile_time(name, options.layers)


if __name__ == "__main__":
    main()
