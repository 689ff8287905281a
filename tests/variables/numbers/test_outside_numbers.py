"""Floats from outside that change from call to call, and what is computed from them and from sizes: Python's values,
one graph for each outcome of the comparisons."""
from __future__ import annotations

import math

import pytest
import torch

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.symbols.environment import Environment
from dynamo_lite.symbols.nodes import symbolic_int
from dynamo_lite.variables.numbers.scalars import Scalars, ValueNeeded


class Counting:
    """A backend that counts graphs and hands them on."""

    def __init__(self, name="eager"):
        self.graphs = []
        self.inner = dynamo_lite.backends.registry.lookup_backend(name)

    def __call__(self, gm, inputs):
        self.graphs.append(gm)
        return self.inner(gm, inputs)


def graphs_for(fn, calls, **options):
    """How many graphs calls take, each of which has to give what eager gives."""
    counting = Counting()
    compiled = dynamo_lite.compile(fn, backend=counting, **options)
    for args in calls:
        try:
            want = fn(*args)
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                compiled(*args)
            assert str(caught.value) == str(error)
            continue
        got = compiled(*args)
        for a, b in zip(torch.utils._pytree.tree_leaves(want), torch.utils._pytree.tree_leaves(got), strict=True):
            assert type(a) is type(b)
            assert torch.equal(a, b) and a.dtype is b.dtype if isinstance(a, torch.Tensor) else repr(a) == repr(b)
    return len(counting.graphs)


ONES = torch.ones(3)
FLOATS = (0.5, 0.75, 1.25, 3.5, -2.0, 0.1, 7.0, 0.3, 0.2, 9.5)
# The graphs that these floats take: the first is for the number itself.
PROGRAMS = {
    "computed": (lambda x, a: (x * (a * 2 + 1), x / a, a / 3), 2),
    "compared": (lambda x, a: x * a if a > 1 else x - a, 3),
    "a chain": (lambda x, a: x + 1 if 0.2 < a < 2 else x - 1, 4),
    "kept comparison": (lambda x, a: (a > 1, x * a), 2),
    "truth": (lambda x, a: x * a if a else x, 2),
    "negated": (lambda x, a: x * a if not a > 1 else x - a, 3),
    "minimum": (lambda x, a: (x * min(a, 1.0), max(0.2, a)), 2),
    "minimum of int and float": (lambda x, a: x * min(a, 1), 3),
    "to int": (lambda x, a: (torch.zeros(int(a * 4) + 20), int(a), round(a), math.floor(a)), 2),
    "rounded": (lambda x, a: (round(a, 1), x * round(a * 3, 2)), 2),
    "functions": (lambda x, a: x * math.exp(-abs(a)) + math.cos(a) * math.tanh(a), 2),
    "may raise": (lambda x, a: x * math.sqrt(a + 1), 3),
    "may raise, unused": (lambda x, a: (1 / (a - 7.0), x)[1] * a, 3),
    "remainder": (lambda x, a: x * (a % 0.3) + a // 0.5, 2),
    "identity": (lambda x, a: (lambda b: (b is b, [b, b], x * b))(a * 2), 2),
    "in a container": (lambda x, a: {"lr": a * 0.5, "x": [x * a, (a, -a)]}, 2),
    "a truth as a key": (lambda x, a: (x * a, {a > 1: 1}, ["no", "yes"][a > 0.4]), 4),
    "an exponent": (lambda x, a: x * 0.9 ** a, 2),
    "a scalar argument": (lambda x, a: torch.addcdiv(x, x, x, value=-a / 3) + torch.lerp(x, x * 2, a), 2),
    "a full tensor": (lambda x, a: (torch.full((2,), a), x.clamp(max=a), torch.tensor(a)), 2),
    "equality": (lambda x, a: x + 1 if a == 0.3 else x * a, 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_floats_that_change(name):
    fn, graphs = PROGRAMS[name]
    assert graphs_for(fn, [(ONES, a) for a in FLOATS]) == graphs


def test_special_floats():
    fn = lambda x, a: (x * a, a > 0, a == a, a + 1, math.isnan(a))
    assert graphs_for(fn, [(ONES, a) for a in (1.0, 0.0, -0.0, math.inf, -math.inf, 2.0)]) == 2


def test_what_gives_no_number_any_more():
    """A formula that raises is guarded not to, also where nobody uses what it gives."""
    def fn(x, a, b):
        c = a / b
        return x + b, c > 3

    calls = [(ONES, a, b) for a, b in ((1.0, 2.0), (2.0, 3.0), (4.0, 1.0), (3.0, 0.0), (2.0, 4.0), (5.0, 1.5))]
    assert graphs_for(fn, calls) == 3


def test_a_type_that_changes():
    fn = lambda x, a: x * (a * 2) + (1 if a > 1 else 2)
    calls = [(ONES, a) for a in (0.5, 0.7, 1.5, 3, 4, True, 0.25, torch.tensor(2.0), 5, 8)]
    assert graphs_for(fn, calls) == 7


def test_long_formulas_are_the_graphs():
    def fn(x, a):
        for _ in range(12):
            a = a * a * 0.5 + a * 0.25
        return x * a

    assert graphs_for(fn, [(ONES, a) for a in (0.5, 0.25, 0.125)]) == 2


SIZES = {
    "half": lambda x: (x * (x.shape[0] / 2), x.shape[0] / 2),
    "scaled": lambda x: torch.zeros(int(x.shape[0] * 1.5), x.shape[0] // 2),
    "root": lambda x: x[: math.isqrt(x.shape[0])] if x.shape[0] > 100 else x * math.sqrt(x.shape[0]),
    "ceiling": lambda x: torch.arange(math.ceil(x.shape[0] / 4) + 2) + round(x.shape[0] * 0.3),
    "bits": lambda x: (x[: x.shape[0] & -2], x.shape[0] | 1, x.shape[0] ^ 3, x.shape[0] >> 1),
    "negative divisor": lambda x: (x.shape[0] // -3, x.shape[0] % -3, x * (-x.shape[0] // 2)),
    "compared": lambda x: x * 2 if x.shape[0] / 2 > 1.25 else x,
    "float and size": lambda x: x * (x.shape[0] * 0.5 + x.shape[1]) ** -0.5,
    "converted": lambda x: x * float(x.shape[0]),
    "sum": lambda x: (sum(x.shape), x * sum(x.shape, 1), math.prod(x.shape)),
}


@pytest.mark.parametrize("name", SIZES)
def test_numbers_computed_from_sizes(name):
    assert graphs_for(SIZES[name], [(torch.ones(n, 4),) for n in (5, 3, 8, 17, 6)], dynamic=True) == 1


def test_a_number_that_a_function_of_torch_multiplies_sizes_with(caplog):
    """It is guarded by value where a result's size follows from it, and the graph is whole."""
    caplog.set_level("INFO", "dynamo_lite.graph_breaks")
    fn = lambda x, a: torch.nn.functional.interpolate(
        x, scale_factor=a, mode="bilinear", recompute_scale_factor=True, align_corners=False)
    calls = [(torch.rand(1, 2, n, n), a) for n, a in ((64, 1.5), (48, 1.75), (52, 1.25), (32, 0.5))]
    assert graphs_for(fn, calls, dynamic=True) == 4
    assert not caplog.text


def test_a_number_that_sizes_are_compared_with():
    """No comparison with a number that only the running graph knows is told without it."""
    scalars = Scalars()
    number = scalars.unknown(float, frozenset({"path"}))
    env = Environment()
    size = symbolic_int(env, env.new("n", 8, 2))
    for ask in (lambda: size == number, lambda: size != number, lambda: size < number, lambda: size * number):
        scalars.start()
        with pytest.raises(ValueNeeded):
            ask()
        assert scalars.asked


class RAdam:
    """As written by hand, with a step counter of Python's."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr, self.steps = list(parameters), lr, 0
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        self.steps += 1
        decayed = 0.999 ** self.steps
        longest = 2 / (1 - 0.999) - 1
        length = longest - 2 * self.steps * decayed / (1 - decayed)
        for p, mean, square in zip(self.parameters, self.means, self.squares):
            mean.mul_(0.9).add_(p.grad, alpha=1 - 0.9)
            square.mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
            corrected = mean / (1 - 0.9 ** self.steps)
            if length > 5:
                rectified = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
                p.sub_(corrected * rectified * math.sqrt(1 - decayed) / (square.sqrt() + 1e-8) * self.lr)
            else:
                p.sub_(corrected * self.lr)


class Adam(RAdam):
    @torch.no_grad()
    def step(self):
        self.steps += 1
        rate = self.lr * min(1.0, self.steps / 10)
        for p, mean, square in zip(self.parameters, self.means, self.squares):
            mean.lerp_(p.grad, 1 - 0.9)
            square.mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
            root = math.sqrt(1 - 0.999 ** self.steps)
            p.addcdiv_(mean, (square.sqrt() / root).add_(1e-8), value=-rate / (1 - 0.9 ** self.steps))


def trained(make, steps, backend=None):
    """The parameters after some steps under a schedule of learning rates."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = make(model.parameters())
    step = optimizer.step if backend is None else dynamo_lite.compile(optimizer.step, backend=backend)
    groups = getattr(optimizer, "param_groups", None)
    for i in range(steps):
        rate = 1e-2 * (1 + math.cos(math.pi * i / steps)) / 2 + 1e-4
        if groups is None:
            optimizer.lr = rate
        else:
            groups[0]["lr"] = rate
        model.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        step()
    return [p.detach() for p in model.parameters()]


OPTIMIZERS = {
    "RAdam by hand": (lambda ps: RAdam(ps, 1e-2), 3),
    "Adam by hand": (lambda ps: Adam(ps, 1e-2), 2),
    "Adam": (lambda ps: torch.optim.Adam(ps, lr=1e-2), 3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_with_step_counters_and_schedules(name):
    make, graphs = OPTIMIZERS[name]
    counting = Counting("inductor_lite")
    torch.testing.assert_close(trained(make, 60, counting), trained(make, 60))
    assert len(counting.graphs) == graphs
    assert log.counters()["graphs"] == graphs and "graph_breaks" not in log.counters()
