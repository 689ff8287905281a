"""Compiled callables that have no Python frame of their own: what is written in C, and functorch's functions."""
import functools

import pytest
import torch
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, vmap

import dynamo_lite
from dynamo_lite import config


@pytest.fixture(autouse=True)
def fresh():
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with config.patch(raise_internal_errors=True):
        yield
    dynamo_lite.reset()


def scale(x):
    return (x.sin() * x).sum()


def check(made, *calls, graphs=1, recompiles=0):
    compiled = dynamo_lite.compile(made, backend="eager", fullgraph=True)
    for args in calls:
        torch.testing.assert_close(compiled(*args), made(*args))
    counted = dynamo_lite.metrics()
    assert (counted["graphs"], counted.get("recompiles", 0)) == (graphs, recompiles), counted
    return compiled


@pytest.mark.parametrize("maker", [grad, grad_and_value, jacrev, jacfwd, hessian, vmap,
                                   lambda f: vmap(grad(f)), lambda f: vmap(f, in_dims=1)])
def test_transforms(maker):
    x = torch.randn(3, 4)
    check(maker(scale), (x,), (x + 1,))


def test_transforms_of_other_options():
    x = torch.randn(3)
    check(grad(lambda x, y: (x * y).sum(), argnums=1), (x, x + 1))
    dynamo_lite.reset_metrics()
    check(hessian(lambda x, y: (x.sin() * y).sum(), argnums=1), (x, x + 1))
    dynamo_lite.reset_metrics()
    check(jacfwd(jacrev(lambda x, y: x.sin() * y, argnums=1), argnums=1), (x, x + 1))
    # Two transforms of different arguments are no hessian, and nested transforms are not captured.
    mixed = jacfwd(jacrev(lambda x, y: (x.sin() * y).sum(), argnums=0), argnums=1)
    torch.testing.assert_close(dynamo_lite.compile(mixed, backend="eager")(x, x + 1), mixed(x, x + 1))


def test_transforms_of_one_function_share_their_code():
    x = torch.randn(3, 4)
    kept = [check(vmap(scale), (x,)) for _ in range(3)]
    assert len({compiled.fn.__func__ for compiled in kept}) == 1


@pytest.mark.parametrize("made", [
    torch.sin, functools.partial(torch.softmax, dim=-1), torch.nn.functional.gelu,
    functools.partial(torch.nn.functional.gelu, approximate="tanh"), functools.partial(vmap(scale))])
def test_what_is_written_in_c(made):
    compiled = check(made, (torch.randn(3, 4),), (torch.randn(3, 4),))
    assert compiled.__wrapped__ is made
    assert dynamo_lite.compile(compiled, backend="eager").__wrapped__ is made


def test_a_method_in_c():
    x = torch.randn(3)
    check(x.add, (torch.ones(3),))
    check(torch.nn.functional.softmax, (x, 0), graphs=2)
    with pytest.raises(TypeError, match="sin"):
        dynamo_lite.compile(torch.sin, backend="eager")("no tensor")


def test_reports():
    x = torch.randn(3, 4)
    report = dynamo_lite.explain(vmap(scale))(x)
    assert report.graph_count == 1 and report.graph_break_count == 0
    torch.testing.assert_close(report.result, vmap(scale)(x))
    torch.testing.assert_close(dynamo_lite.export(vmap(scale))(x).graph_module(x), vmap(scale)(x))


def test_called_in_a_compiled_function():
    inner = dynamo_lite.compile(vmap(scale), backend="eager")
    x = torch.randn(3, 4)
    check(lambda x: inner(x) + 1, (x,), graphs=2)  # one of them of the call that is compared with
