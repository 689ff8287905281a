"""Results that were taken from autograd's knowledge of what they share memory with: what is done to them later
concerns the other tensor's values, and not its gradients."""
import contextlib

import pytest
import torch

import dynamo_lite
from dynamo_lite import log

FUNCTIONS = {
    "detach of an input": lambda x: x.detach(),
    "detach of a value": lambda x: (x * 2).detach(),
    "value and detached": lambda x: (lambda y: (y.detach(), y))(x * 2),
    "data": lambda x: (x * 2).data,
    "detach of a view": lambda x: (x * 2)[1:].detach(),
    "view of detached": lambda x: x.detach()[1:],
    "view of a value made of detached": lambda x: (x.detach() * 2)[1:],
    "reshaped": lambda x: (x * 2).reshape(3, 1),
    "real part": lambda x: torch.view_as_complex(torch.stack([x, x], -1)).detach().real,
    "leaf": lambda x: x.detach().requires_grad_(),
}


def add(out, x, w):
    out.add_(w)


def add_to_input(out, x, w):
    x.add_(w)


def detach(out, x, w):
    out.detach_()


def require(out, x, w):
    out.requires_grad_()


def use(function, mode, requires_grad, change):
    x0 = torch.arange(3.0, requires_grad=requires_grad)
    w = torch.tensor(2.0, requires_grad=True)
    x = x0 * 1 if mode is contextlib.nullcontext else x0
    with mode():
        results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    try:
        change(results[0], x, w)
    except RuntimeError as error:
        return str(error)
    tensors = [*results, x]
    found = [(t.tolist(), t.requires_grad, t.is_leaf, t._is_view(), t.grad_fn is None) for t in tensors]
    total = sum(t.sum() for t in tensors)
    if total.requires_grad:
        total.backward()
    return found, x0.grad, w.grad


@pytest.mark.parametrize("change", [add, add_to_input, detach, require])
@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.no_grad])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_later_changes_reach_no_gradient(name, mode, change):
    function = FUNCTIONS[name]
    compiled = dynamo_lite.compile(function)
    before = log.counters().get("graphs", 0)
    for requires_grad in (False, True):
        want = use(function, mode, requires_grad, change)
        assert str(use(compiled, mode, requires_grad, change)) == str(want)
    assert log.counters()["graphs"] - before == 2


def test_a_view_taken_without_gradients_is_no_new_leaf():
    before = dynamo_lite.metrics()["fallbacks"]
    x = torch.ones(2, 3, requires_grad=True)
    with torch.no_grad():
        y = dynamo_lite.compile(lambda x: x.view(-1))(x)
    assert y._base is not None and dynamo_lite.metrics()["fallbacks"] == before
