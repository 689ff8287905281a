"""``x[mask]`` with an unknown mask: elementwise operations and writes by the same mask need no data-dependent size."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import log

BACKENDS = ["eager", "inductor_lite"]


def outcome(f, x, y, backward):
    x, y = x.clone().requires_grad_(backward), y.clone()
    try:
        made = f(x * 1 if backward else x, y)
    except RuntimeError as error:
        return str(error), x.detach(), y
    made = made if isinstance(made, tuple) else (made,)
    leaves = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    grad = torch.autograd.grad(sum((t * t).sum() for t in leaves), x)[0] if leaves else None
    tensors = [t.detach() if isinstance(t, torch.Tensor) else t for t in made]
    return *tensors, *[t.stride() for t in tensors if isinstance(t, torch.Tensor)], grad, x.detach(), y


def check(f, graphs, breaks, backend="eager", backward=(False, True)):
    for gradients in backward:
        dynamo_lite.reset()
        log.reset()
        fn = dynamo_lite.compile(f, backend=backend)
        for seed in range(4):
            torch.manual_seed(seed)
            x, y = torch.randn(4, 5), torch.randn(4, 5)
            rtol, atol = (0, 0) if backend == "eager" else (1e-5, 1e-6)
            got, want = outcome(fn, x, y, gradients), outcome(f, x, y, gradients)
            assert len(got) == len(want)
            for a, b in zip(got, want):
                if isinstance(b, torch.Tensor):
                    torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
                else:
                    assert a == b
            if seed == 0:  # behind a break, a size that changes is compiled again
                counters = log.counters()
                assert (counters["graphs"], counters.get("graph_breaks", 0)) == (graphs, breaks)
        assert breaks or log.counters()["graphs"] == graphs


def scaled(x, y):
    x[x < 0] *= -0.1
    return x * 2


def negated(x, y):
    x[x < 0] = -x[x < 0]
    return x


def logarithm(x, y):
    """Its gradient is infinite or NaN for elements outside of the mask."""
    positive = x > 0
    x[positive] = torch.log(x[positive] * 3).clamp(min=-2)
    x[~positive] += 1
    return x


def of_another(x, y):
    smaller = x < y
    x[smaller] = y[smaller] * 2 + x[smaller]
    x[smaller] += y[smaller].abs()
    return x


def rows(x, y):
    wanted = x.sum(1) > 0
    x[wanted] *= 2
    x[wanted] += torch.arange(5.0)
    x[wanted, 1:3] -= 1
    x[wanted, -1] /= 3
    return x


def columns(x, y):
    wanted = y.sum(0) > 0
    x[:, wanted] *= 2
    x[..., wanted] += 1
    x[1, wanted] *= 2
    x[1:3, wanted] = x[1:3, wanted].clamp(min=0)
    return x


def through_a_view(x, y):
    first = x[:, 0]
    first[y[:, 0] > 0] *= 2
    x.t()[y.t() > 0] -= 3
    return x


def recomputed_behind_writes(x, y):
    x[x < 0] += 1
    x[x < 0] += 1
    x[x < 0] = x[x < 0] * 3
    return x


def computed_before_and_after_a_write(x, y):
    """Masks that the same formula computes from the same tensor, at different times."""
    before, size = y.abs() < 1, y.abs()
    y[x < y] += 1
    x[y.abs() < 1] *= 2
    x[before] += 1
    x[size < 1] -= 3
    other = y.abs() < 1
    before[0] = False
    x[before] /= 2
    x[other] += 4
    return x


def numbers_beside(x, y):
    mean = y.mean()
    x[x < 0] += mean
    x[x < mean] -= y.max()
    return x


def the_same_object(x, y):
    mask = x < 0
    read = x[mask]
    other = read
    read *= 2
    x[mask] = other
    read += 1
    return x, read, other is read


def returned(x, y):
    mask = x < 0
    return x[mask], x[mask] + 1, y[mask].abs()


def mask_changed(x, y):
    mask = x < y
    read = x[mask] * 2
    mask[0] = False
    return x, read, mask


def other_dtypes(x, y):
    mask = y < 0
    x[mask] = x[mask].double().sqrt().float()
    whole = (y * 10).long()
    whole[whole > 3] += 1
    whole[whole > 5] **= 2
    return x, whole


def conditions(x, y):
    mask = x < 0
    read = x[mask]
    x[mask] = torch.where(read < -1, -1.0, read)
    return x


def loop(x, y):
    for i in range(4):
        x[y > i * 0.2] *= 0.9
    return x


def helper(read):
    return read * 2 + 1


def in_a_function(x, y):
    mask = x < 0
    x[mask] = helper(x[mask])
    return x


def metadata(x, y):
    read = x[y < 0]
    return read.dtype, read.dim(), read.ndim, read.is_floating_point(), x * 2


CAPTURED = [
    scaled, negated, logarithm, of_another, rows, columns, through_a_view, recomputed_behind_writes,
    computed_before_and_after_a_write, numbers_beside, the_same_object, returned, mask_changed, other_dtypes,
    conditions, loop, in_a_function, metadata]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", CAPTURED, ids=lambda f: f.__name__)
def test_in_one_graph(f, backend):
    # Eager refuses the gradients where a mask has changed.
    changed = f in (mask_changed, computed_before_and_after_a_write)
    check(f, 1, 0, backend, backward=(False,) if changed else (False, True))


def written_between(x, y):
    mask = x < y
    read = x[mask]
    x[mask] = 0
    return x, read * 2


def write_by_a_changed_mask(x, y):
    mask = x < y
    read = x[mask] * 2
    mask[0] = False
    x[mask] = read[: mask.sum()]
    return x


def overlapping_mask(x, y):
    positive = x > 0
    positive[positive] = ~positive[positive]
    return positive


def raises_for_the_count(x, y):
    x[x < 0] *= torch.arange(300.0)
    return x


def another_dtype(x, y):
    mask = x < 0
    x[mask] = x[mask].double()
    return x


def expanded(x, y):
    x = y[:1].expand(4, 5)
    x[x > 0] *= 2
    return x


def summed(x, y):
    mask = x < 0
    return (x[mask] - y[mask]).abs().mean() * 2


def rows_summed(x, y):
    return (x[y.sum(1) > 0] * 2).sum() + 1


def divided(x, y):
    whole = (y * 10).long()
    whole[whole != 0] = 100 // whole[whole != 0]
    return x * 2, whole


BROKEN = [(written_between, 2, 1), (write_by_a_changed_mask, 2, 1), (overlapping_mask, 1, 1),
          (raises_for_the_count, 1, 1), (another_dtype, 1, 1), (summed, 2, 1), (rows_summed, 2, 1), (divided, 2, 1)]


@pytest.mark.parametrize("f, graphs, breaks", BROKEN, ids=[row[0].__name__ for row in BROKEN])
def test_what_breaks(f, graphs, breaks):
    check(f, graphs, breaks, backward=(False,) if f is write_by_a_changed_mask else (False, True))


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded tensors")
def test_an_expanded_tensor_is_left_to_torch():
    check(expanded, 1, 1, backward=(False,))


def test_grad_modes():
    def read_without(x, y):
        mask = y < 0
        with torch.no_grad():
            read = x[mask]
        return read * 2, x * 2

    def used_without(x, y):
        read = x[y < 0]
        with torch.no_grad():
            scaled = read * 2
        return scaled, read

    check(read_without, 2, 1, backward=(True,))
    check(used_without, 2, 1, backward=(True,))


def test_a_leaf_is_refused_as_in_eager():
    def f(x):
        x[x < 0] *= 2
        return x

    fn = dynamo_lite.compile(f, backend="eager")
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        fn(nn.Parameter(torch.randn(3)))


def test_the_input_is_changed():
    def f(x):
        x[x < 0] *= 2
        return x.sum()

    dynamo_lite.reset()
    log.reset()
    fn = dynamo_lite.compile(f)
    for _ in range(3):
        a = torch.randn(4, 5)
        b = a.clone()
        torch.testing.assert_close((fn(a), a), (f(b), b))
    assert log.counters()["graphs"] == 1 and "graph_breaks" not in log.counters()


def test_inference_mode():
    def f(x, y):
        with torch.inference_mode():
            read = x[y < 0]
        return read.is_inference(), read + 1, x * 2

    fn = dynamo_lite.compile(f, backend="eager")
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    torch.testing.assert_close(fn(x, y), f(x, y))
