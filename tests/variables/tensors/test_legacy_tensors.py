"""``torch.FloatTensor(...)`` and the other constructors from before dtypes: captured, and as eager."""
from __future__ import annotations

import pytest
import torch

import dynamo_lite
from dynamo_lite import exc, log

BACKENDS = ["eager", "inductor_lite"]
CLASSES = [
    torch.Tensor, torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor, torch.LongTensor,
    torch.IntTensor, torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor,
]


def compiled(fn, backend="eager"):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, fullgraph=True)


def check(fn, *args, backend="eager"):
    got_fn = compiled(fn, backend)
    for _ in range(2):
        got, want = got_fn(*args), fn(*args)
        for a, b in zip(got, want):
            assert type(a) is type(b) and a.dtype is b.dtype and a.stride() == b.stride() and a.device == b.device
            assert a.requires_grad == b.requires_grad
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert log.counters().get("graphs", 0) == 1


@pytest.mark.parametrize("cls", CLASSES)
def test_of_numbers(cls):
    values = [[1, 0], [3, 1]]
    check(lambda x: (cls(values), cls((1, 2, 3)), cls([]), cls(range(3)), cls([True, False]), cls(), x + 1),
          torch.ones(2))


@pytest.mark.parametrize("cls", CLASSES)
def test_of_sizes(cls):
    check(lambda x: (cls(2, 3).fill_(1), cls(4).zero_(), cls(x.shape).fill_(1), cls(0), x + 1), torch.ones(2, 2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_the_middle_of_a_program(backend):
    def f(x):
        index = torch.LongTensor([1, 0])
        weights = torch.FloatTensor([0.5, float("nan"), float("inf")])
        return x[index] * weights, torch.Tensor([x.shape[0]]) / x, torch.ByteTensor([-1, 255])

    check(f, torch.linspace(1, 2, 6).reshape(2, 3), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_a_tensor_is_a_view_of_it(backend):
    def f(x):
        y = torch.FloatTensor(x)
        y.add_(1)
        return y, x * 2, torch.Tensor(x.long())

    got_fn = compiled(f, backend)
    x, twin = torch.ones(3), torch.ones(3)
    for _ in range(2):
        got, want = got_fn(x), f(twin)
        for a, b in zip(got, want):
            assert a.dtype is b.dtype and torch.equal(a, b)
        assert torch.equal(x, twin) and got[0] is not x and got[0].data_ptr() == x.data_ptr()
    assert log.counters()["graphs"] == 1


def test_gradients_of_a_view():
    x = torch.ones(3, requires_grad=True)
    got = compiled(lambda x: torch.Tensor(x) * 3)(x)
    (grad,) = torch.autograd.grad(got.sum(), x)
    assert torch.equal(grad, torch.full((3,), 3.0))


def test_what_they_refuse_raises_in_the_program():
    def attempt(make):
        def f(x):
            try:
                return x + make(x)
            except (TypeError, ValueError, RuntimeError) as error:
                return x, type(error), str(error)
        return f

    for make in (lambda x: torch.FloatTensor(3.7), lambda x: torch.Tensor([[1, 2], [3]]), lambda x: torch.Tensor(True),
                 lambda x: torch.LongTensor(None), lambda x: torch.ByteTensor([300]), lambda x: torch.Tensor(2, -1),
                 lambda x: torch.LongTensor(x), lambda x: torch.Tensor([1], [2]), lambda x: torch.FloatTensor({1: 2})):
        f = attempt(make)
        got, want = compiled(f)(torch.ones(2)), f(torch.ones(2))
        assert got[1:] == want[1:] and torch.equal(got[0], want[0])


def test_type_by_class():
    def f(x):
        return x.type(torch.LongTensor), x.type(torch.FloatTensor), x.type("torch.DoubleTensor"), x.type(torch.half)

    check(f, torch.tensor([1.5, -2.0]))
    assert compiled(lambda x: x.type(torch.FloatTensor) is x)(torch.ones(1))
    assert compiled(lambda x: (isinstance(x, torch.FloatTensor), isinstance(x, torch.LongTensor), x.type()))(
        torch.ones(1)) == (True, False, "torch.FloatTensor")


def test_default_dtype():
    fn = compiled(lambda x: (torch.Tensor([1]).dtype, torch.Tensor(2).dtype, x + 1))
    assert fn(torch.ones(1))[:2] == (torch.float32, torch.float32)
    torch.set_default_dtype(torch.float64)
    try:
        assert fn(torch.ones(1))[:2] == (torch.float64, torch.float64)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("make", [
    lambda x: torch.FloatTensor([x[0], x[1]]),  # elements
    lambda x: torch.FloatTensor(x.untyped_storage()),
    lambda x: torch.Tensor(size=(2, 3)),
])
def test_what_is_not_captured_breaks(make):
    with pytest.raises(exc.Unsupported):
        compiled(lambda x: make(x) * 0)(torch.ones(2))
