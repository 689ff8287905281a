"""Tensors that are made of sizes and other numbers that change between calls."""
from __future__ import annotations

import pytest
import torch

import dynamo_lite

FUNCTIONS = {
    "int": lambda x: x / torch.tensor(x.shape[0]),
    "type": lambda x: x / torch.tensor(x.shape[0], dtype=torch.float64),
    "as_tensor": lambda x: x * torch.as_tensor(x.shape[0]),
    "as_tensor of a type": lambda x: x * torch.as_tensor(x.shape[0], dtype=torch.float32),
    "device": lambda x: x - torch.tensor(x.shape[0] * 2 + 1, device="cpu"),
    "list": lambda x: x[:, :2] / torch.tensor([x.shape[0], 3]),
    "list with a float": lambda x: x[:, :3] / torch.tensor([x.shape[0], 0.5, True]),
    "list with a computed float": lambda x: x[:, :2] / torch.tensor([x.shape[0], x.shape[0] / 3]),
    "nested": lambda x: x[:, :2] + torch.tensor([[x.shape[0], 3], [4, x.shape[0] + 1]]).sum(0),
    "tuple": lambda x: torch.tensor((x.shape[1], x.shape[0])).prod() + x,
    "shape": lambda x: torch.tensor(x.shape) * 2,
    "new_tensor": lambda x: x.sum() + x.new_tensor(x.shape[0]),
    "new_tensor of ints": lambda x: x.new_tensor([x.shape[0], 2], dtype=torch.int64),
    "new_tensor of a list": lambda x: x[:, :2] / x.new_tensor([x.shape[0], x.shape[1]], dtype=None),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_for_all_sizes(name, backend):
    function = FUNCTIONS[name]
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for n in (5, 7, 2, 12):
        x = torch.randn(n, 6)
        got, want = compiled(x), function(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    assert dynamo_lite.metrics()["recompiles"] == 1


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float16])
def test_types_that_do_not_hold_every_int(dtype):
    """Eager refuses those that do not fit: each is compiled for itself."""

    def f(x):
        return torch.tensor(x.shape[0], dtype=dtype) + 1

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (5, 7, 255):
        assert torch.equal(compiled(torch.ones(n)), f(torch.ones(n)))
    if dtype is torch.uint8:
        for g in (f, compiled):
            with pytest.raises((RuntimeError, TypeError), match="overflow"):
                g(torch.ones(300))


def test_a_new_tensor_each_time():
    def f(x):
        made = torch.tensor([x.shape[0], 1])
        made[1] = 7
        return made, torch.tensor(x.shape[0])

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (4, 6):
        (a, b), (c, d) = compiled(torch.ones(n)), f(torch.ones(n))
        assert torch.equal(a, c) and torch.equal(b, d) and b.dtype == d.dtype
    assert a is not compiled(torch.ones(n))[0]


def test_numbers_that_require_gradients():
    def f(x):
        scale = torch.tensor(float(x.shape[0]), requires_grad=True)
        return (x * scale).sum()

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (4, 6):
        assert torch.equal(compiled(torch.ones(n)), f(torch.ones(n)))


def test_lists_that_are_no_tensor():
    def f(x):
        try:
            return torch.tensor([[x.shape[0]], 1])
        except (TypeError, ValueError) as error:
            return type(error).__name__, str(error)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (4, 6):
        assert compiled(torch.ones(n)) == f(torch.ones(n))


def test_the_number_of_such_a_tensor():
    def f(x):
        return int(torch.tensor(x.shape[0])) + 1, torch.tensor([x.shape[0], 2])[0].item()

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (4, 6, 9):
        assert compiled(torch.ones(n)) == f(torch.ones(n))


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_tensors_made_of_results_are_captured(backend):
    def measured(x, y):
        return torch.tensor([x.sum(), x.mean(), (x * 2).max()]), torch.as_tensor((y.sum(), y[0]))

    compiled = dynamo_lite.compile(measured, backend=backend, fullgraph=True)
    dynamo_lite.reset_metrics()
    for seed in (0, 1):
        torch.manual_seed(seed)
        x, y = torch.randn(4), torch.randn(3, dtype=torch.float64)
        for got, wanted in zip(compiled(x, y), measured(x, y)):
            assert got.dtype is wanted.dtype and got.shape == wanted.shape
            torch.testing.assert_close(got, wanted)
    assert dynamo_lite.metrics()["graphs"] == 1


def test_tensors_made_of_mixed_results():
    def mixed(x, y):
        return torch.tensor([x.sum(), y.sum()]), torch.tensor([x.sum(), 2.5]), torch.tensor([y.sum(), y[0]])

    x, y = torch.arange(3.0), torch.arange(3)
    for got, wanted in zip(dynamo_lite.compile(mixed, backend="eager")(x, y), mixed(x, y)):
        assert got.dtype is wanted.dtype and torch.equal(got, wanted)
