"""Objects that are no tensors and define ``__torch_function__``: what they make of torch's functions is captured."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import log

SEEN: list = []


class Scaled:
    """A tensor and a factor; linear functions keep the factor apart."""

    def __init__(self, tensor, factor=1.0):
        self.tensor = tensor
        self.factor = factor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append((func.__name__, [t.__name__ for t in types]))
        plain = [a.tensor * a.factor if isinstance(a, Scaled) else a for a in args]
        if func in (torch.stack, torch.cat):
            plain[0] = [a.tensor * a.factor if isinstance(a, Scaled) else a for a in args[0]]
        return cls(func(*plain, **(kwargs or {})))


class Noted(Scaled):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)


class ByInstance:
    def __init__(self, tensor):
        self.tensor = tensor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*[a.tensor if isinstance(a, ByInstance) else a for a in args], **(kwargs or {})) + 1


class Refusing:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


X = torch.linspace(-1, 1, 6).reshape(2, 3)
PROGRAMS = {
    "functions": lambda x, p: torch.add(torch.relu(Scaled(x, 2.0)), 1),
    "of an argument": lambda x, p: torch.sin(p),
    "written in Python": lambda x, p: F.gelu(F.softmax(p, dim=-1)),
    "with keywords": lambda x, p: torch.sum(p, dim=0, keepdim=True),
    "in a list": lambda x, p: torch.stack([p, Scaled(x)], dim=1),
    "second": lambda x, p: torch.mul(x, p),
    "operators": lambda x, p: x * p,
    "operators of operators": lambda x, p: (x + 1) @ torch.transpose(p, 0, 1),
    "compared": lambda x, p: x < p,
    "methods": lambda x, p: x.mul(p),
    "subclasses go first": lambda x, p: torch.add(p, Noted(x, 3.0)),
    "two of a kind": lambda x, p: torch.where(torch.gt(p, 0).tensor, p, Scaled(x)),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_one_graph(program, backend):
    fn = compiled(program, backend, fullgraph=True)
    for _ in range(2):
        SEEN.clear()
        want = program(X, Scaled(X + 1, 0.5))
        wanted = list(SEEN)
        SEEN.clear()
        got = fn(X, Scaled(X + 1, 0.5))
        assert SEEN == wanted and type(got) is type(want)
        torch.testing.assert_close(got.tensor, want.tensor)
    assert log.counters()["graphs"] <= 2  # the list's length


def test_asked_of_the_instance():
    f = lambda x: torch.mul(ByInstance(x), 2)
    torch.testing.assert_close(compiled(f)(X), f(X))


def test_gradients():
    def f(x):
        return torch.mul(Scaled(x, 2.0), 3).tensor.sum()

    x = X.clone().requires_grad_()
    compiled(f, fullgraph=True)(x).backward()
    torch.testing.assert_close(x.grad, torch.full((2, 3), 6.0))


def test_refusals_raise():
    def f(x):
        try:
            return torch.sin(Refusing())
        except TypeError:
            return x + 1

    torch.testing.assert_close(compiled(f, fullgraph=True)(X), f(X))


def test_objects_without_it_raise_as_in_eager():
    class Plain:
        pass

    def f(x):
        try:
            return x * Plain()
        except TypeError as error:
            return str(error)

    assert compiled(f)(X) == f(X)
