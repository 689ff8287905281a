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


def one_place(c, k):
    c[:, :, 5:6] = k
    return c[:, :, 5] * 2, c.sum()


def two_places(c, k):
    c[:, :, 3] = k[:, :, 0]
    c[:, :, 7:8] = k * 2
    return k + 1


def what_was_there(c, k):
    old = c[:, :, 2:3].clone()
    c[:, :, 2:3] = k + old
    return c.mean(), old


def from_itself(c, k):
    c[:, :, 4:5] = c[:, :, 5:6]
    return k * 1


def added(c, k):
    c[:, :, 4:5] += k
    return c


def of_another_dtype(c, k):
    c[0, 1, 2] = k[0, 0, 0]
    c[:, :, -1:] = k.double()
    return c[0]


def through_a_view_of_it(c, k):
    view = c[0]
    view[:, 3:4] = k[0]
    return view.sum(), c[0, 0, 3]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 4, 16, 8), (2, 3, 9, 5)])
@pytest.mark.parametrize("fn", [one_place, two_places, what_was_there, from_itself, added, of_another_dtype,
                                through_a_view_of_it])
def test_caches(fn, shape, transposed):
    cache = torch.randn(shape)
    if transposed:
        cache = cache.transpose(1, 2).contiguous().transpose(1, 2)
    ours = cache.clone(memory_format=torch.preserve_format)
    new = torch.randn(shape[0], shape[1], 1, shape[3])
    compiled = dynamo_lite.compile(fn)
    for _ in range(2):
        with torch.no_grad():
            wanted, got = fn(cache, new), compiled(ours, new)
        assert torch.equal(ours, cache)
        for p, q in zip(*(x if isinstance(x, tuple) else (x,) for x in (wanted, got))):
            torch.testing.assert_close(q, p)
            assert q.stride() == p.stride()


def one_place_alone(c, k):
    c[:, :, 5:6] = k
    return k + 1


def test_the_rest_of_a_cache_is_left_alone():
    cache, new = torch.zeros(1, 4, 64, 8), torch.ones(1, 4, 1, 8)
    compiled = dynamo_lite.compile(one_place_alone)
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        compiled(cache, new)
    assert torch.equal(cache[:, :, 5:6], new) and cache.sum() == new.sum()
    # The kernel is given the cache as its output too, and copies it where they are two.
    assert ".copy_(" not in dynamo_lite.generated_code(compiled)
    # What is written is read, the result too: far less than the cache, which is neither read nor written whole.
    assert dynamo_lite.metrics()["bytes"] == 4 * new.nbytes < cache.nbytes


def test_all_of_a_small_buffer_is_written():
    """Where the part is not much smaller than the whole, one loop over the whole joins what surrounds it."""
    def halves(c, k):
        c[:, :8] = k
        return c.exp()

    compiled = dynamo_lite.compile(halves)
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        compiled(torch.zeros(16, 16), torch.ones(16, 8))
    assert dynamo_lite.metrics()["kernels"] == 1
