"""``x.data = y``: values, memory, gradients and identity as in eager."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import log

BACKENDS = ["eager", "inductor_lite"]


def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from (*value.parameters(), *value.buffers())
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def memory(tensors):
    """Which tensors are the same object, and which lie in the same memory."""
    firsts = {}
    storages = {}
    return [(firsts.setdefault(id(t), n), storages.setdefault(t.untyped_storage().data_ptr(), n), t.storage_offset())
            for n, t in enumerate(tensors)]


def check(f, *args, backend="eager", calls=2, graphs=1, breaks=0):
    """A program, compiled and plain, on arguments of their own that live on between calls."""
    fn = compiled(f, backend, fullgraph=not breaks)
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    for _ in range(calls):
        got, want = list(tensors_in([fn(*ours), *ours])), list(tensors_in([f(*theirs), *theirs]))
        assert len(got) == len(want) and memory(got) == memory(want)
        for a, b in zip(got, want):
            assert type(a) is type(b) and a.dtype is b.dtype and a.requires_grad == b.requires_grad
            assert a.is_leaf == b.is_leaf and a.stride() == b.stride()
            torch.testing.assert_close(a, b)
            if not b.is_leaf:
                continue
            assert (a.grad is None) == (b.grad is None)
            if b.grad is not None:
                torch.testing.assert_close(a.grad, b.grad)
    assert log.counters().get("graphs", 0) <= graphs and log.counters().get("graph_breaks", 0) == breaks


X = torch.linspace(-1, 1, 6).reshape(2, 3)


@pytest.mark.parametrize("backend", BACKENDS)
class TestPlain:
    def test_of_an_intermediate(self, backend):
        def f(x):
            y = x * 2
            old = y.view(-1)
            z = x + 1
            y.data = z
            y.mul_(3)
            return y, z, old, y is z, y.sum()

        check(f, X, backend=backend)

    def test_of_an_intermediate_to_an_input(self, backend):
        def f(x):
            y = x * 2
            y.data = x
            y.add_(1)
            return x * 1, y

        check(f, X, backend=backend)

    def test_of_an_input(self, backend):
        def f(x, y):
            x.data = x * 2
            y.data = x.data[0]
            x.add_(1)
            return x + 0, y * 1, x

        check(f, X, X[1].clone(), backend=backend, graphs=2)

    def test_swapped(self, backend):
        def f(x, y):
            x.data, y.data = y.data, x.data
            x.add_(10)
            return x - y

        check(f, X, X + 1, backend=backend)

    def test_another_shape_and_type(self, backend):
        def f(x):
            y = x * 2
            y.data = torch.arange(4).reshape(2, 2)
            return y + 1, y.shape, y.dtype

        assert compiled(f, backend, fullgraph=True)(X)[1:] == f(X)[1:]
        check(lambda x: f(x)[0], X, backend=backend)

    def test_of_an_input_to_another_shape(self, backend):
        def f(x):
            x.data = torch.cat([x, x[:1]])
            return x.sum(0)

        check(f, X, backend=backend, graphs=2)

    def test_twice(self, backend):
        def f(x):
            x.data = x + 1
            first = x.data.view(-1)
            x.data = x * 2
            first.add_(5)
            return x.relu(), first

        check(f, X, backend=backend)

    def test_to_what_it_is(self, backend):
        def f(x, m):
            x.data = x.data
            m.weight.data = m.weight.data.to(torch.float32).contiguous()
            return m(x)

        check(f, X, nn.Linear(3, 2), backend=backend)

    def test_buffers(self, backend):
        class Mean(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(3))

            def forward(self, x):
                self.mean.data = self.mean.data * 0.9 + x.detach().mean(0) * 0.1
                return x - self.mean

        check(lambda m, x: m(x), Mean(), X, backend=backend, calls=3)


@pytest.mark.parametrize("backend", BACKENDS)
class TestParameters:
    def test_moving_averages(self, backend):
        def f(student, teacher, x):
            out = student(x)
            for s, t in zip(student.parameters(), teacher.parameters()):
                t.data = t.data * 0.9 + s.data * 0.1
            return out

        torch.manual_seed(0)
        check(f, nn.Linear(3, 2), nn.Linear(3, 2), X, backend=backend, calls=3)

    def test_updates_without_gradients(self, backend):
        def f(m, x):
            with torch.no_grad():
                for p in m.parameters():
                    p.data = p.data - 0.1 * p
                    p.mul_(1.5)
                y = m(x)
            return y, m.weight.data + 1, m.weight

        torch.manual_seed(0)
        check(f, nn.Linear(3, 2), X, backend=backend)

    def test_a_use_with_gradients_breaks_once(self, backend):
        def f(m, x):
            m.weight.data = nn.functional.normalize(m.weight.data, dim=1)
            return m(x).sum()

        def step(m, x):
            f(m, x).backward()
            return x * 1

        torch.manual_seed(0)
        check(f, nn.Linear(3, 2), X, backend=backend, graphs=3, breaks=1)
        fn = compiled(f, backend)
        ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
        theirs.load_state_dict(ours.state_dict())
        for _ in range(2):
            fn(ours, X).backward()
            f(theirs, X).backward()
            for a, b in zip(ours.parameters(), theirs.parameters()):
                torch.testing.assert_close(a, b)
                torch.testing.assert_close(a.grad, b.grad)

    def test_another_type(self, backend):
        def f(m):
            for p in m.parameters():
                p.data = p.data.double()
            return [p.dtype for p in m.parameters()], m.weight.requires_grad, m.weight.is_leaf, m.weight is m.weight

        ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
        assert compiled(f, backend, fullgraph=True)(ours) == f(theirs)
        assert ours.weight.dtype is torch.float64 and isinstance(ours.weight, nn.Parameter)

    def test_shared_weights_stay_shared(self, backend):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(3, 3, bias=False)
                self.second = nn.Linear(3, 3, bias=False)
                self.second.weight = self.first.weight

        def f(m, x):
            m.first.weight.data = m.second.weight.data + 1
            return x @ m.second.weight.data

        check(f, Tied(), X, backend=backend)

    def test_data_and_then_grad(self, backend):
        def f(m):
            m.weight.data = torch.ones(4, 3)
            m.weight.grad = torch.full((4, 3), 2.0)
            return m.weight.grad + 1, m.weight.data * 3

        check(f, nn.Linear(3, 2), backend=backend, graphs=2)


def test_what_autograd_has_in_hand_breaks():
    def f(x, w):
        y = x * w
        y.data = torch.ones(2, 3)
        return (y * 2).sum()

    fn = compiled(f)
    ours, theirs = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    fn(X, ours).backward()
    f(X, theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert log.counters()["graph_breaks"] == 1


def test_views_of_what_was_set_know_their_base():
    def f(a, b, c):
        a.data, b.data = b.data, a.data
        v = a[:]
        v.mul_(c.sum())
        return v, a

    def g(a, b, c):
        c.data = a.data
        v = c.view_as(c)
        v.data = b.data
        return v

    for program, grad in ((f, True), (f, False), (g, True), (g, False)):
        fn = compiled(program)
        ours, theirs = ([torch.ones(3), torch.ones(3) * 2, nn.Parameter(torch.ones(3))] for _ in range(2))
        with torch.set_grad_enabled(grad):
            got, want = list(tensors_in([fn(*ours), *ours])), list(tensors_in([program(*theirs), *theirs]))
        assert memory(got) == memory(want)
        assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
        assert [t.is_leaf for t in got] == [t.is_leaf for t in want]


def test_data_of_what_is_set_itself():
    def f(a, b, c):
        b.data, a.data = a.data, b.data
        b.data = a
        c.data = b * 2
        b.data = c
        return a + b + c

    check(f, X, X.t().clone().t(), X + 2)


def test_conversions_back_and_forth():
    def f(m, x):
        for dtype in (torch.float64, torch.bfloat16, torch.float32, torch.float64, torch.float32):
            m.to(dtype)
        with torch.no_grad():
            return m(x)

    for seed in range(4):
        torch.manual_seed(seed)
        check(f, nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), X)


def test_errors():
    def f(x, value):
        try:
            x.data = value
        except (TypeError, RuntimeError) as error:
            return type(error), str(error)

    for value in (3, None, [1.0]):
        assert compiled(f)(torch.ones(2), value) == f(torch.ones(2), value)


def test_a_choice_between_tensors():
    def f(x):
        a, b = x.sum(), x.mean()
        m = max(a, b)
        a.data = b + 1
        return m * 1, a, b

    fn = compiled(f)
    for x in (X + 1, X - 1):
        for got, want in zip(fn(x), f(x)):
            torch.testing.assert_close(got, want)
