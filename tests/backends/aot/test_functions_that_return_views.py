"""Custom autograd functions whose results are views: the gradients are the function's, not those of the view."""
import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config

LINEAR = nn.Linear(3, 3)


class Reverse(torch.autograd.Function):
    """The gradient reversal of adversarial training."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.factor, None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(4, 3) * 2


class Row(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[0]

    @staticmethod
    def backward(ctx, grad):
        return torch.cat([torch.zeros(1, 3), grad[None], torch.zeros(2, 3)])


class Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def both(x, function):
    y = x * 3
    return y, function(y)


PROGRAMS = {
    "of an input": lambda x: Reverse.apply(x, 2.0),
    "of a value": lambda x: Reverse.apply(x * 3, 2.0),
    "of a value that is a result": lambda x: both(x, lambda y: Reverse.apply(y, 2.0)),
    "beside the input": lambda x: (x * 2, Reverse.apply(x, 2.0)),
    "twice": lambda x: (Reverse.apply(x, 2.0), Reverse.apply(x, 3.0)),
    "twice of a value": lambda x: (lambda y: (Reverse.apply(y, 2.0), Reverse.apply(y, 3.0)))(x * 3),
    "a view of it": lambda x: Reverse.apply(x, 2.0).t(),
    "a row of it": lambda x: Reverse.apply(x * 2, 2.0)[0],
    "of a view": lambda x: Reverse.apply(x.t(), 2.0),
    "inside": lambda x: LINEAR(Reverse.apply(LINEAR(x), 2.0)),
    "of a layer": lambda x: (lambda h: (LINEAR(h), Reverse.apply(h, 2.0)))(LINEAR(x)),
    "the input itself": lambda x: Same.apply(x),
    "the value itself": lambda x: Same.apply(x * 2),
    "both themselves": lambda x: both(x, Same.apply),
    "flat": lambda x: Flat.apply(x),
    "flat of a value": lambda x: Flat.apply(x * 2),
    "row": lambda x: Row.apply(x),
    "row of a value": lambda x: both(x, Row.apply),
    "in place": lambda x: Adds.apply(x * 2),
}


def outcome(call, leaf):
    torch.manual_seed(0)
    x = torch.randn(4, 3, requires_grad=True)
    results = call(x if leaf else x * 1.5)
    results = results if isinstance(results, tuple) else (results,)
    aliases = [r.untyped_storage().data_ptr() == results[0].untyped_storage().data_ptr() for r in results]
    grads = torch.autograd.grad(sum((r * (i + 2)).sum() for i, r in enumerate(results)), x)
    return [r.detach() for r in results] + list(grads), aliases


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_the_functions_own(name, leaf):
    compiled = dynamo_lite.compile(PROGRAMS[name], fullgraph=True)
    want = outcome(PROGRAMS[name], leaf)
    for attempt in range(2):
        with config.patch(error_on_recompile=attempt == 1):
            got = outcome(compiled, leaf)
        assert all(map(torch.allclose, got[0], want[0])) and got[1] == want[1]


def test_what_stands_inside_of_a_graph_is_compiled():
    before = dict(dynamo_lite.metrics()["fallbacks"])
    for name in ("inside", "of a value", "in place"):
        outcome(dynamo_lite.compile(PROGRAMS[name], fullgraph=True), True)
    assert dynamo_lite.metrics()["fallbacks"] == before
