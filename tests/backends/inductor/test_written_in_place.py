"""Inputs that a graph overwrites are written where their new contents are computed, if nothing can tell."""
import pytest
import torch

import dynamo_lite


def wrapper(fn, *inputs):
    """The generated wrapper; the results and the inputs are checked against eager's."""
    dynamo_lite.reset()
    theirs, ours = ([x.clone() for x in inputs] for _ in range(2))
    want = fn(*theirs)
    compiled = dynamo_lite.compile(fn)
    versions = [x._version for x in ours]
    for _ in range(2):
        got = compiled(*ours)
    want = fn(*theirs)
    for p, q in zip([*theirs, *(want or ())], [*ours, *(got or ())]):
        torch.testing.assert_close(q, p)
    mutated = [i for i, (x, v) in enumerate(zip(ours, versions)) if x._version > v]
    return "\n".join(str(part) for part in dynamo_lite.generated_code(compiled)), mutated


def add(x, y):
    x.add_(y)


def read_later(x, y):
    before = x.flip(0)
    x.add_(y)
    return (before + x,)


def transposed(x, y):
    x.copy_(x.t() + y)


def swapped(x, y):
    a = x * 2
    x.copy_(y * 3)
    y.copy_(a)


def several(x, y):
    x.mul_(2)
    y.add_(x)
    return (x + y,)


def library_call_after(x, y):
    x.mul_(2)
    return (y @ y,)


def library_call_before(x, y):
    z = torch.linalg.inv(y + torch.eye(4))
    x.add_(z)


def normalized(x, y):
    x.sub_(x.mean(0)).div_(x.std(0) + 1)


def overwritten(x, y):
    x.copy_(y.exp())


def through_a_view(x, y):
    x[1:].add_(y[1:])


def returned(x, y):
    x.add_(1)
    return (x * 1,)


IN_PLACE = [add, overwritten, several, library_call_before]
ANY = [read_later, transposed, swapped, library_call_after, normalized, through_a_view, returned]


@pytest.mark.parametrize("fn", IN_PLACE, ids=lambda f: f.__name__)
def test_no_copy(fn):
    code, mutated = wrapper(fn, torch.randn(4, 4), torch.rand(4, 4))
    assert ".copy_(" not in code and mutated


@pytest.mark.parametrize("fn", ANY, ids=lambda f: f.__name__)
def test_right_with_or_without_a_copy(fn):
    _, mutated = wrapper(fn, torch.randn(4, 4), torch.rand(4, 4))
    assert 0 in mutated


def test_a_call_that_fails_has_changed_nothing():
    def f(x, y):
        x.add_(1)
        return torch.linalg.cholesky(y)

    compiled = dynamo_lite.compile(f)
    x = torch.zeros(3)
    compiled(x, torch.eye(3))
    assert torch.equal(x, torch.ones(3))
    y = x.clone()
    with pytest.raises(RuntimeError):
        f(y, -torch.eye(3))
    with pytest.raises(RuntimeError):
        compiled(x, -torch.eye(3))
    assert torch.equal(x, y)


def test_integers_and_broadcasts():
    def f(x, y):
        x += y.long().sum()

    wrapper(f, torch.arange(6).view(2, 3), torch.ones(2))
