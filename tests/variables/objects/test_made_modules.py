"""Parameters, modules and their first values, made in a captured frame; modules that get theirs at their first call."""
import copy

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import log

INIT = {
    "uniform": lambda w: nn.init.uniform_(w, -1, 2),
    "normal": lambda w: nn.init.normal_(w, std=0.02),
    "constant": lambda w: nn.init.constant_(w, 3.0),
    "ones": lambda w: nn.init.ones_(w),
    "zeros": lambda w: nn.init.zeros_(w),
    "eye": lambda w: nn.init.eye_(w),
    "xavier uniform": lambda w: nn.init.xavier_uniform_(w, gain=nn.init.calculate_gain("tanh")),
    "xavier normal": lambda w: nn.init.xavier_normal_(w),
    "kaiming uniform": lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu"),
    "kaiming normal": lambda w: nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="leaky_relu"),
    "orthogonal": lambda w: nn.init.orthogonal_(w),
}


KINDS = ("graphs", "graph_breaks", "recompiles")


def outcome(make, backend, calls=3):
    """Results, gradients and the random stream of a few calls of what `make` makes; what was counted at each call."""
    torch.manual_seed(0)
    dynamo_lite.reset()
    function, state = make()
    run = function if backend is None else dynamo_lite.compile(function, backend=backend)
    found, counted = [], []
    for _ in range(calls):
        before = log.counters()
        x = torch.randn(4, 3, requires_grad=True)
        result = run(x)
        result.sum().backward()
        found += [result, x.grad, torch.rand(1), *(t.detach().clone() for t in state())]
        found += [t.grad.clone() for t in state() if t.grad is not None]
        after = log.counters()
        counted.append({k: after[k] - before.get(k, 0) for k in KINDS if after.get(k, 0) != before.get(k, 0)})
    return found, counted


def check(make, backend="eager"):
    want, _ = outcome(make, None)
    got, counted = outcome(make, backend)
    assert len(got) == len(want) and all(
        torch.allclose(a, b, atol=1e-6) and a.requires_grad == b.requires_grad for a, b in zip(got, want))
    return counted


@pytest.mark.parametrize("name", INIT)
def test_first_values_are_part_of_the_graph(name):
    def make():
        model = nn.Linear(3, 3)

        def function(x):
            INIT[name](model.weight)
            return model(x)

        return function, model.parameters

    first, *rest = check(make)
    assert first["graphs"] == 1 and "graph_breaks" not in first and rest == [{}, {}]


def test_first_values_that_are_drawn_until_they_fit():
    def make():
        model = nn.Linear(3, 3)

        def function(x):
            nn.init.trunc_normal_(model.weight, std=0.02)
            return model(x)

        return function, model.parameters

    first, *rest = check(make)
    assert first.get("graph_breaks", 0) <= 4 and rest == [{}, {}]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_module_that_the_frame_makes_is_made_in_one_piece(backend):
    def make():
        def function(x):
            y = x * 2
            model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4))
            nn.init.xavier_uniform_(model[0].weight)
            return model(y)

        return function, list

    first, *rest = check(make, backend)
    assert first["graph_breaks"] == 2 and first["graphs"] == 2 and rest == [{}, {}]  # Linear and LayerNorm


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_parameter_that_the_frame_makes(backend):
    def make():
        made = []

        def function(x):
            y = x * 2
            weight = nn.Parameter(torch.ones(3))
            made.append(weight)
            return (y * weight).sin()

        return function, lambda: made

    first, *_ = check(make, backend)
    assert first["graph_breaks"] == 1 and first["graphs"] == 2


def test_an_optimizer_that_the_frame_makes():
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)

        def train(x):
            model = nn.Linear(3, 1)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            return loss.detach(), *(p.detach() for p in model.parameters())

        run = dynamo_lite.compile(train, backend="eager") if compiled else train
        results.append([t for _ in range(2) for t in run(torch.randn(4, 3))])
    assert all(map(torch.allclose, *results))


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_modules_that_get_their_parameters_at_the_first_call(backend):
    def make():
        model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
        return (lambda x: model(x)), lambda: [*model.parameters(), *model.buffers()]

    first, second, third = check(make, backend)
    assert first.keys().isdisjoint(("graphs", "graph_breaks", "recompiles"))
    assert second == {"graphs": 1, "recompiles": 1} and third == {}


def test_lazy_modules_in_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.LazyConv1d(4, 3)
            self.head = nn.LazyLinear(2)

        def forward(self, x):
            return self.head(self.convolution(x).relu().flatten(1))

    torch.manual_seed(0)
    theirs = Net()
    ours = copy.deepcopy(theirs)
    compiled = dynamo_lite.compile(ours, backend="eager")
    x = torch.randn(2, 3, 8)
    torch.manual_seed(1)
    want = [theirs(x) for _ in range(3)]
    torch.manual_seed(1)
    assert all(torch.equal(compiled(x), w) for w in want)
    with dynamo_lite.config.patch(error_on_recompile=True):
        compiled(x)
    assert type(ours.head) is nn.Linear
