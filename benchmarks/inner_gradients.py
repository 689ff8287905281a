"""Functions that take gradients inside (``torch.autograd.grad``): training steps of them, compiled, against eager.

    python benchmarks/inner_gradients.py [--rounds 25] [--only burgers forces penalty maml]

A step is the function, its backward pass, and gradients set to None. Eager's and compiled steps take turns in one
process; the figures are medians, and the median of the turns' ratios. torch.compile has no part in it: it breaks the
graph at the call, and refuses gradients of gradients.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import dynamo_lite

Function = Callable[[torch.Tensor], torch.Tensor]


def network(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def burgers(points: int, width: int) -> tuple[nn.Module, Function, torch.Tensor]:
    """The residual of Burgers' equation, by a network of place and time."""
    model = network(2, width, width, width, 1)

    def function(x: torch.Tensor) -> torch.Tensor:
        u = model(x)
        first, = torch.autograd.grad(u.sum(), x, create_graph=True)
        second = torch.autograd.grad(first[:, 1].sum(), x, create_graph=True)[0][:, 1]
        return (first[:, 0] + u[:, 0] * first[:, 1] - 0.003 * second).square().mean()

    return model, function, torch.rand(points, 2)


def forces(atoms: int, width: int) -> tuple[nn.Module, Function, torch.Tensor]:
    """An energy of all pairs' distances, and its forces."""
    model = network(16, width, width, 1)
    scales = torch.linspace(0.1, 2, 16)

    def function(places: torch.Tensor) -> torch.Tensor:
        distances = (places[:, None] - places[None]).square().sum(-1) + 1
        energy = model(torch.exp(-distances[..., None] * scales).sum(1)).sum()
        force, = torch.autograd.grad(energy, places, create_graph=True)
        return energy.square() + force.square().sum()

    return model, function, torch.randn(atoms, 3)


def penalty(images: int, width: int) -> tuple[nn.Module, Function, torch.Tensor]:
    """The gradient penalty of a critic of images."""
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(width, width, 3, padding=1, stride=2),
        nn.LeakyReLU(), nn.Flatten(), nn.Linear(width * 64, 1))

    def function(x: torch.Tensor) -> torch.Tensor:
        gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (gradient.flatten(1).norm(dim=1) - 1).square().mean()

    return model, function, torch.randn(images, 3, 16, 16)


def maml(lines: int, width: int) -> tuple[nn.Module, Function, torch.Tensor]:
    """Three steps of an inner loop, and the loss behind them."""
    model = network(8, width, width, 8)

    def function(x: torch.Tensor) -> torch.Tensor:
        parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
        for _ in range(3):
            loss = (torch.func.functional_call(model, parameters, (x,)) - x).square().mean()
            gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
            parameters = {key: p - 0.1 * g for (key, p), g in zip(parameters.items(), gradients)}
        return (torch.func.functional_call(model, parameters, (x,)) - x).square().mean()

    return model, function, torch.randn(lines, 8)


PROGRAMS = {"burgers": (burgers, [(1000, 32), (10000, 64)]), "forces": (forces, [(64, 64)]),
            "penalty": (penalty, [(16, 32)]), "maml": (maml, [(64, 64)])}


def measure(name: str, size: tuple[int, int], rounds: int) -> None:
    torch.manual_seed(0)
    model, function, x = PROGRAMS[name][0](*size)
    x.requires_grad_()
    compiled = dynamo_lite.compile(function)

    def step(run: Function) -> list[torch.Tensor]:
        model.zero_grad()
        x.grad = None
        run(x).backward()
        return [p.grad for p in (x, *model.parameters()) if p.grad is not None]

    start = time.perf_counter()
    step(compiled)
    first = time.perf_counter() - start
    for got, want in zip([g.clone() for g in step(compiled)], step(function), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4 * want.abs().max().item())
    turns = []
    for _ in range(rounds):
        times = []
        for run in (function, compiled):
            start = time.perf_counter()
            step(run)
            times.append(time.perf_counter() - start)
        turns.append(times)
    eager, ours = (statistics.median(column) * 1e3 for column in zip(*turns))
    speed = statistics.median(a / b for a, b in turns)
    print(f"{name:8} {size[0]:5} x {size[1]}: first step {first:.2f} s; eager {eager:.2f} ms, compiled {ours:.2f} ms, "
          f"{speed:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    for name in options.only:
        for size in PROGRAMS[name][1]:
            measure(name, size, options.rounds)


if __name__ == "__main__":
    main()
