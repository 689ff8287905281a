"""Results that are views and require gradients: their history has the program's own views."""
import pytest
import torch

import dynamo_lite

VIEWS = {
    "view": (lambda x: (x * 2).relu().view(-1), "ViewBackward0"),
    "transposed": (lambda x: (x * 2).relu().t(), "TBackward0"),
    "slice": (lambda x: (x * 2).relu()[:, 1:3], "SliceBackward0"),
    "part": (lambda x: (x * 2).relu().chunk(2)[1], "SplitBackward0"),
    "several": (lambda x: (x * 2).relu().t()[None].expand(2, -1, -1), "ExpandBackward0"),
    "real numbers": (lambda x: torch.view_as_real(torch.complex(x, x * 2)).flatten(1), "ViewBackward0"),
    "strided": (lambda x: (x * 2).relu().as_strided((2, 2), (1, 1)), "AsStridedBackward0"),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_history(name, dynamic):
    function, backward = VIEWS[name]
    compiled = dynamo_lite.compile(function, dynamic=dynamic)
    dynamo_lite.reset_metrics()
    for rows in (4, 6) if dynamic else (4,):
        x = torch.randn(rows, 5, requires_grad=True)
        got, want = compiled(x), function(x)
        assert got.grad_fn.name() == want.grad_fn.name() == backward
        assert got._is_view() and got.stride() == want.stride() and torch.equal(got, want)
        w = torch.randn_like(want)
        torch.testing.assert_close(*(torch.autograd.grad(y, x, w) for y in (got, want)))
    assert dynamo_lite.metrics()["graphs"] == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_that_are_made_together(dynamic):
    """They are results of one operation, as in eager, and made by one call of it."""
    def function(x):
        return ((x * 2).t().unbind(1), x.chunk(2), (x * 3).chunk(2)[1].unbind(0))

    compiled = dynamo_lite.compile(function, dynamic=dynamic)
    for rows in (4, 6) if dynamic else (4,):
        x = torch.randn(rows, 5, requires_grad=True)
        got, want = compiled(x), function(x)
        for ours, theirs in zip(got, want, strict=True):
            assert len({id(y.grad_fn) for y in ours}) == len({id(y.grad_fn) for y in theirs}) == 1
            for a, b in zip(ours, theirs, strict=True):
                assert a.grad_fn.name() == b.grad_fn.name() and torch.equal(a, b)
                torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x, retain_graph=True) for y in (a, b)))


def test_result_may_be_written():
    x = torch.randn(4, 5, requires_grad=True)

    def step(function):
        y = function(x)
        y.mul_(3)
        return torch.autograd.grad(y.sum(), x)[0]

    def function(x):
        return (x * 2).t()

    torch.testing.assert_close(step(dynamo_lite.compile(function)), step(function))


def whole_and_chunk(x):
    y = x * 2
    return y, y.unsafe_chunk(2)[1]


def two_chunks(x):
    a, b, _ = (x * 2).unsafe_chunk(3, 1)
    return a, b


def one_chunk(x):
    return (x * 2).unsafe_chunk(2)[1]


@pytest.mark.parametrize("program", [whole_and_chunk, two_chunks, one_chunk])
def test_results_that_share_memory_unknown_to_autograd(program):
    """The whole and its chunk were separate tensors, so that a later write to one did not reach the other."""
    x = torch.randn(4, 6, requires_grad=True)
    results = []
    for f in (dynamo_lite.compile(program), program):
        made = f(x)
        made = made if isinstance(made, tuple) else (made,)
        with torch.no_grad():
            made[-1].fill_(7)
        results.append(made)
    for got, want in zip(*results):
        assert torch.equal(got, want) and got.stride() == want.stride()
        torch.testing.assert_close(torch.autograd.grad(got.sum(), x, retain_graph=True),
                                   torch.autograd.grad(want.sum(), x, retain_graph=True))
