"""Functions on matrices that are made of operators, with sizes that change between calls."""
from __future__ import annotations

import warnings

import pytest
import torch

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


FUNCTIONS = {
    "covariances": lambda x: torch.cov(x) * 2,
    "by the method": lambda x: x.t().cov(correction=0) + 1,
    "of one row": lambda x: torch.cov(x[:, 0], fweights=None),
    "of integers": lambda x: torch.cov((8 * x).long()),
    "of complex numbers": lambda x: torch.cov(torch.complex(x, x.flip(0))),
    "correlations": lambda x: torch.corrcoef(x) * 2,
    "correlation of one row": lambda x: x[0].corrcoef(),
    "diagonal": lambda x: (x @ x.t()).fill_diagonal_(0.5),
    "diagonal of sizes": lambda x: (x @ x.t()).fill_diagonal_(x.shape[0]),
    "wide": lambda x: torch.cat([x.t(), x.t()], 1).fill_diagonal_(fill_value=1, wrap=True),
    "long, wrapped": lambda x: x.repeat(4, 1).fill_diagonal_(1, True),
    "long, once": lambda x: x.repeat(4, 1).fill_diagonal_(True),
    "part of a matrix, wrapped": lambda x: x.repeat(4, 3)[1:, 2:8].fill_diagonal_(-1, wrap=True),
    "cube": lambda x: (x[:, :1, None] * x[None, :, :1] * x[:, 0]).fill_diagonal_(2.0),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_for_all_sizes(name, grad, backend):
    function = FUNCTIONS[name]
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for n in (5, 7, 4, 12):
        x = torch.randn(n, 6, requires_grad=grad)
        got, want = compiled(x), function(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride() and got.requires_grad == want.requires_grad
        if got.requires_grad:
            weights = torch.randn_like(want)
            (gradient,), (expected,) = (torch.autograd.grad((y * weights).real.sum(), x) for y in (got, want))
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)
    # The gradient of as_strided of a part is for the sizes of one call.
    again = name == "part of a matrix, wrapped" and grad and backend != "eager"
    assert dynamo_lite.metrics()["recompiles"] == (3 if again else 1)


@pytest.mark.parametrize("function", [
    lambda x: torch.cov(x), lambda x: torch.corrcoef(x), lambda x: x.cov(correction=3),
    lambda x: torch.cov(x, fweights=torch.arange(x.shape[1])), lambda x: torch.cov(x, aweights=x[0].abs()),
    lambda x: torch.cov(x > 0), lambda x: torch.cov(x[None]),
    lambda x: x[0].fill_diagonal_(1), lambda x: x[None].fill_diagonal_(1), lambda x: x[:1].expand(6, 6).cov(),
    lambda x: x[:1, :1].expand(6, 6).fill_diagonal_(0),
])
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_what_is_left_to_the_function(function, backend):
    """Weights, and what it refuses or warns of."""
    def outcome(call, x):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                result = call(x)
            except RuntimeError as error:
                result = str(error)
        return result, [str(w.message).partition(" (Triggered")[0] for w in said if "cov()" in str(w.message)]

    compiled = dynamo_lite.compile(function, backend=backend, dynamic=True)
    for size in ((3, 5), (4, 2), (3, 1), (5, 3)):
        (got, said), (want, wanted) = outcome(compiled, torch.ones(size)), outcome(function, torch.ones(size))
        assert said == wanted
        torch.testing.assert_close(got, want, equal_nan=True) if isinstance(want, torch.Tensor) else None
        assert isinstance(want, torch.Tensor) or got == want


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_filled_tensor_is_the_one_that_was_given(backend):
    def f(x):
        made = x.fill_diagonal_(3.0, wrap=True)
        return made is x, x.sum()

    compiled = dynamo_lite.compile(f, backend=backend, dynamic=True, fullgraph=True)
    for size in ((9, 3), (5, 5), (4, 3), (2, 7), (11, 2)):
        a = torch.randn(size)
        b, version = a.clone(), a._version
        assert compiled(a)[0] is True and f(b)[0]
        assert torch.equal(a, b) and a._version > version
