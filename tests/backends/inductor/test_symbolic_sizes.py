"""Kernels whose sizes are symbols: one graph for all sizes, without the library, equal to eager."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.backends.inductor.codegen.indices import index_text
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.lowering.values import loop_vars, shape_vars

SIZES = ((4, 16), (3, 20), (5, 33), (9, 17), (7, 19), (2, 70))


def parts(x):
    half = x.shape[1] // 2
    return (
        x[:, :-1] + x[:, 1:], x[:, half:] * 2, x[:, ::2] * 2, x[:, -3:] * 2, x[:, -1] * 2, x.narrow(1, 1, 5) * 2,
        x.narrow(1, 1, x.shape[1] - 2) * 2, x.unfold(1, 3, 2) * 2, *[t * 2 for t in x.split([2, x.shape[1] - 2], 1)],
        *[t * 2 for t in x.chunk(2, 1)], x[:, None].expand(-1, 2, -1) * 2, x.diagonal() * 2)


def joined(x):
    half = x.shape[1] // 2
    y = torch.cat([x.relu(), x[:, 1:], torch.ones(x.shape[0], 3)], 1)
    return (
        y.sin(), torch.cat((-x[:, half:], x[:, :half]), -1) * x, torch.stack([x, x + 1], 1) * 2, x.roll(3, 1) * 2,
        x.roll(-2, 1) * 2, torch.slice_scatter(x, x[:, 1:] * 2, 1, 0, x.shape[1] - 1).exp(),
        torch.select_scatter(x, x[:, 0] * 2, 1, -1) + 1, torch.cat([torch.cat([x, x + 1], 1), y], 1).cos())


def ranges(x):
    n = x.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return (
        x + torch.arange(n), x + torch.arange(n, dtype=torch.float32), x * torch.arange(3, n + 3),
        x + torch.arange(0, 2 * n, 2), torch.full((n, n), -1e9).triu(1) + x[0], torch.eye(n) + x[0],
        x[0].expand(n, n).masked_fill(~mask, float("-inf")).softmax(-1), x.new_ones(n) + x)


def reductions(x):
    return (
        x.sum(), x.sum(0), x.mean(1), x.var(1), x.std(), x.std(1, correction=0), x.amax(1), x.argmax(1), x.softmax(0),
        x.log_softmax(1), F.layer_norm(x, (x.shape[1],)), x.cumsum(1), x / x.shape[1], x[:, 3:].sum(1))


@pytest.mark.parametrize("fn", [parts, joined, ranges, reductions])
def test_one_graph_without_the_library(fn):
    torch.manual_seed(0)
    compiled = dynamo_lite.compile(fn, dynamic=True)
    for size in SIZES:
        x = torch.randn(size)
        for got, want in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert got.stride() == want.stride()
    counters = log.counters()
    assert counters["graphs"] == 1
    assert not [name for name in counters if name.startswith(("library_call", "fallback"))], counters


def test_a_single_kernel_gets_its_sizes(caplog):
    compiled = dynamo_lite.compile(lambda x: x.sum(), dynamic=True)
    for size in SIZES:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), x.sum(), rtol=1e-4, atol=1e-4)
    assert "plain Python" not in caplog.text


def test_parts_of_no_elements():
    def fn(x):
        return torch.cat([x[:, 3:], x], 1) * 2, (x[:, 3:, None] + 1).transpose(0, 1) + x[:, 3:].t()[..., None]

    compiled = dynamo_lite.compile(fn, dynamic=True)
    for size in ((4, 6), (5, 7), (5, 3), (9, 5), (300, 3), (3, 4)):
        x = torch.randn(size)
        for got, want in zip(compiled(x), fn(x), strict=True):
            assert torch.equal(got, want) and got.stride() == want.stride()


def test_places_that_are_numbers():
    def fn(x, k):
        return x[:, k // 2 + 3 :] * 2 + torch.arange(x.shape[1])[k // 2 + 3 :]

    compiled = dynamo_lite.compile(fn, dynamic=True)
    for n, k in ((9, -3), (11, -5), (12, 4), (12, -2), (13, 7)):
        x = torch.randn(3, n)
        assert torch.equal(compiled(x, k), fn(x, k))


@pytest.mark.parametrize("fn", [
    lambda x, y: y ** (x.shape[0] - 3), lambda x, y: y.to(torch.int8) + x.shape[0] * 100,
    lambda x, y: torch.full((3,), x.shape[0] * 30, dtype=torch.int8), lambda x, y: y // (x.shape[0] - 3),
    lambda x, y: x[:, 6:].max(), lambda x, y: x[3:].amax(0),
    lambda x, y: y.clamp(max=x.shape[0]) % x.shape[0], lambda x, y: x > x.shape[1] - 9])
def test_numbers_that_are_sizes(fn):
    """Also those that eager refuses for some of their values, and no elements."""
    def run(fn, *args):
        try:
            return fn(*args).tolist()
        except (RuntimeError, IndexError) as error:
            return str(error)

    compiled = dynamo_lite.compile(fn, dynamic=True)
    for size in ((5, 8), (4, 7), (2, 9), (7, 6), (3, 8)):
        x, y = torch.randn(size), torch.full((3,), 200)
        assert run(compiled, x, y) == run(fn, x, y)


def test_quotients_round_down():
    """Below zero, too, where C's division rounds up."""
    def fn(x, n):
        return (x + -n // 3, x + -n % 3, x + (n - 9) // 4 * 100 + (n - 9) % 4, x - (7 - x.shape[0]) // 2, x + n // -3,
                x + -100 // n, torch.full((2,), n), x[(n - 30) // 7 :] + 1)

    compiled = dynamo_lite.compile(fn, dynamic=True)
    for size, n in ((5, 4), (9, 7), (12, 16), (6, 9), (8, 12)):
        x = torch.randn(size)
        for got, want in zip(compiled(x, n), fn(x, n), strict=True):
            assert torch.equal(got, want) and got.dtype == want.dtype
    assert not [name for name in log.counters() if name.startswith("fallback")]


def test_numbers_and_symbols_in_one_order():
    """The borders of joined parts: between two that are numbers and one that is none."""
    def fn(x):
        return F.pad(x, (1, x.shape[0] % 3)), F.pad(x, (2, 1, 3, x.shape[1] - x.shape[1] // 2)), F.pad(x, (0, 5))

    compiled = dynamo_lite.compile(fn)
    for size in ((3, 4), (5, 4), (5, 7), (8, 2), (2, 6)):
        x = torch.randn(size)
        for got, want in zip(compiled(x), fn(x), strict=True):
            assert torch.equal(got, want)
    assert not [name for name in log.counters() if name.startswith("fallback")]


def used_twice(x, k):
    y = x[:, k:] * 2
    return y * y.sum().item() + x[:, k:]


def computed_with(x, k):
    return x[:, k:] * k + 1


def behind_a_number(x, k):
    y = (x[:, 1:] * 2).contiguous()
    return (y * x.sum().item()).cos(), torch.arange(x.shape[1]) + k, x[:, k:].relu()


@pytest.mark.parametrize("fn", [used_twice, computed_with, behind_a_number])
def test_parts_of_a_graph_get_the_sizes_that_they_need(fn, caplog):
    compiled = dynamo_lite.compile(fn, dynamic=True)
    with dynamo_lite.config.patch(capture_scalar_outputs=True):
        for n, m, k in ((4, 9, 3), (5, 11, 4), (3, 12, 5), (3, 10, 2)):
            x = torch.randn(n, m)
            torch.testing.assert_close(compiled(x, k), fn(x, k), rtol=1e-4, atol=1e-4)
    assert "plain Python" not in caplog.text


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_a_kernel_of_atens_that_has_no_symbols(mode, caplog):
    compiled = dynamo_lite.compile(lambda x: F.interpolate(x, scale_factor=2, mode=mode) * 2, dynamic=True)
    for n in (4, 5):
        x = torch.randn(2, 3, n, n + 1)
        torch.testing.assert_close(compiled(x), F.interpolate(x, scale_factor=2, mode=mode) * 2)
    assert "a fault of dynamo_lite" not in caplog.text


def test_symbols_of_one_name_have_limits_of_their_own():
    """Each graph's first symbol has the same name. What one graph knows of it is no other graph's."""
    for lower, negative in ((2, False), (-100, True), (0, False)):
        s = ix.atom(ix.Sym("s0", lower))
        (var,) = loop_vars(shape_vars([ix.add(ix.mod(s, 3), 1)]))
        text = index_text(var.size, {}, "/", None)
        assert ("% (3) + (3)" in text) is negative, text


def test_a_size_that_follows_from_a_negative_number():
    def of_size(x):
        return torch.zeros(x.shape[0] % 3 + 1, 2) + 1

    def of_number(n):
        return torch.zeros(n % 3 + 1, 2) + 1

    of_sizes = dynamo_lite.compile(of_size, dynamic=True)
    for n in (5, 7, 8):
        torch.testing.assert_close(of_sizes(torch.ones(n)), of_size(torch.ones(n)))
    of_numbers = dynamo_lite.compile(of_number, dynamic=True)
    for n in (5, -5, -4, 7, -7):
        del_me = [torch.full((6,), 1e10) for _ in range(50)]
        del del_me
        torch.testing.assert_close(of_numbers(n), of_number(n))


def test_a_part_without_elements_of_a_dimension_of_one_row(caplog):
    """Where the part begins is a symbol; no loop runs over the dimension."""
    def fn(z, n):
        z[..., :8] = z.dim()
        z[n:].mul_(2)

    compiled = dynamo_lite.compile(fn)
    for rows, n in ((1, 16), (1, 16), (4, 9), (16, 9), (4, 5), (1, 1), (3, 2), (1, 7)):
        got, expected = torch.ones(rows, 11), torch.ones(rows, 11)
        compiled(got, n)
        fn(expected, n)
        assert torch.equal(got, expected), (rows, n)
    assert "a fault of dynamo_lite" not in caplog.text


def test_a_backward_pass_of_one_run_that_gets_a_size_it_does_not_need():
    """torch can't differentiate this for sizes that are symbols, so the graph is for one size: that is a number, which
    the entry of the kernels takes no pointer of."""
    def fn(x, rows, w):
        x = x * 2
        count = int(rows.max()) + 1
        means = torch.zeros(count, x.shape[1]).index_reduce_(0, rows, x, "mean", include_self=False)
        return F.linear(means, w), x

    compiled, w = dynamo_lite.compile(fn), torch.randn(2, 4)
    for n, count in ((4, 1), (5, 2), (5, 3), (5, 2), (6, 4)):
        x, rows = torch.randn(n, 4), torch.arange(n) % count
        results = []
        for run in (compiled, fn):
            leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            result = run(leaves[0], rows, leaves[1])[0]
            result.square().sum().backward()
            results.append([result, *(leaf.grad for leaf in leaves)])
        torch.testing.assert_close(*results)
