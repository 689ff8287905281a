"""Positions that loops compute: compared and cast in 32 bits where they fit, and sums over them of one term alone."""
import re

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

ENDS = [-(2**63), -(2**32) - 3, -(2**31), -1, 0, 1, 6, 36, 37, 2**31 - 1, 2**31, 2**32 + 5, 2**63 - 1]


def lanes(build, fn, *inputs):
    """The numbers of lanes of a program's kernels."""
    return {int(n) for n in re.findall(r"constexpr int L = (\d+);", build(fn, list(inputs)).program.source)}


def as_wide(build, x):
    """The lanes of a kernel that has no integers."""
    return lanes(build, lambda x: x * 2, x)


COMPARISONS = {
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_positions_beside_numbers_of_64_bits(check_many, name):
    compare = COMPARISONS[name]
    label = torch.tensor(ENDS)
    x = torch.randn(len(ENDS), 37)
    cases = [
        ("a row's number", lambda x, y: torch.where(compare(torch.arange(37), y[:, None]), x, 0.5), [x, label]),
        ("turned round", lambda x, y: torch.where(compare(y[:, None], torch.arange(37)), x, 0.5), [x, label]),
        ("a lane's number", lambda x, y: torch.where(compare(torch.arange(37)[:, None], y), x, 0.5), [x.t(), label]),
        ("arithmetic", lambda x, y: torch.where(compare(3 - torch.arange(37) * 5, y[:, None]), x, 0.5), [x, label]),
        ("a large factor", lambda x, y: torch.where(compare(torch.arange(37) * 2**28, y[:, None]), x, 0.5), [x, label]),
    ]
    cases += [(f"the number {n}", lambda x, n=n: torch.where(compare(torch.arange(37), n), x, 0.5), [x]) for n in ENDS]
    check_many(cases, tolerance={})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int8,
                                   torch.uint8, torch.bool, torch.int64])
def test_positions_as_other_types(check_many, dtype):
    x = torch.randn(5, 300)

    def cast(x):
        at = torch.arange(300)
        return (at - 150).clamp(min=-140).to(dtype) * 1, torch.where(at > 9, -at, at * 3).to(dtype) + (x > 0).to(dtype)

    check_many([("cast", cast, [x])], tolerance={})


def test_a_mask_of_positions_is_computed_in_all_lanes(build, in_cpp):
    x = torch.randn(64, 64)

    def causal(x):
        at = torch.arange(64)
        return torch.where(at <= at[:, None], x * 2, float("-inf"))

    assert lanes(build, causal, x) == as_wide(build, x)


def test_a_label_beside_positions_is_computed_in_all_lanes(build, in_cpp):
    x, y = torch.randn(40, 64), torch.randint(0, 64, (40,))
    assert lanes(build, lambda x, y: torch.where(torch.arange(64) == y[:, None], x, 0.0), x, y) == as_wide(build, x)


def test_loaded_numbers_of_64_bits_stay_so(build, in_cpp):
    x, y = torch.randn(40, 64), torch.randint(0, 64, (40, 64))
    assert max(lanes(build, lambda x, y: torch.where(torch.arange(64) == y, x, 0.0), x, y)) < max(as_wide(build, x))


def one_hot(x, y, n):
    return torch.where(torch.arange(n) == y[:, None], x[:, None], 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_sums_of_one_term(check_many, dtype):
    x = torch.tensor([1.5, -0.0, 0.0, float("nan"), float("inf"), -float("inf"), 3e-5, -2.0, 7.0]).to(dtype)
    y = torch.tensor([0, 1, 36, 4, 5, 6, -1, 37, 2**40])
    cases = [
        ("sum", lambda x, y: one_hot(x, y, 37).sum(1), [x, y]),
        ("kept", lambda x, y: one_hot(x, y, 37).sum(1, keepdim=True) + x[:, None], [x, y]),
        ("with a condition", lambda x, y: torch.where((y[:, None] == torch.arange(37)) & (x[:, None] > -1.0),
                                                      x[:, None], 0.0).sum(-1), [x, y]),
        ("beside other loops", lambda x, y: one_hot(x, y, 37).sum((0, 1)), [x[6:], y[6:]]),
        ("over rows", lambda x, y: torch.where(torch.arange(9)[:, None] == y[3], x, 0.0).sum(0), [x, y]),
        ("later positions", lambda x, y: torch.where(torch.arange(5, 42) == y[:, None], x[:, None], 0.0).sum(1),
         [x, y]),
        ("of one", lambda x, y: one_hot(x, y, 1).sum(1), [x, y]),
        ("a term that varies", lambda x, y: torch.where(torch.arange(9) == y[:, None], x, 0.0).sum(1), [x, y]),
        ("not zero", lambda x, y: torch.where(torch.arange(3) == y[:, None], x[:, None], 1.0).sum(1), [x, y]),
    ]

    def signs(fn):
        def both(x, y):
            result = fn(x, y)
            return result, torch.signbit(result)
        return both

    check_many([(name, signs(fn), inputs) for name, fn, inputs in cases], tolerance={dtype: (1e-3, 1e-3)})


def test_a_sum_of_one_term_has_no_loop(build, in_cpp):
    x, y = torch.randn(40), torch.randint(0, 64, (40,))
    source = build(lambda x, y: one_hot(x, y, 8000).sum(1), [x, y]).program.source
    assert "cascade" not in source.split("KERNEL kernel0")[1] and "8000; ++" not in source


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7, 5), (33, 129), (2, 5, 3, 7)])
def test_gradients_of_the_negative_log_likelihood(dtype, shape):
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=dtype) * 9).requires_grad_()
    y = torch.randint(0, shape[1], (shape[0], *shape[2:]))
    y.view(-1)[::4] = -100
    w = torch.randn(shape[0], *shape[2:], dtype=dtype)

    def loss(x, y):
        return (F.cross_entropy(x, y, reduction="none") * w).sum() + F.cross_entropy(x, y)

    compiled = dynamo_lite.compile(loss)
    want, = torch.autograd.grad(loss(x, y), x)
    got, = torch.autograd.grad(compiled(x, y), x)
    torch.testing.assert_close(got, want, rtol=3e-6, atol=1e-7)
    with torch.no_grad():
        x[0] = float("inf")
        x[1, 2] = float("nan")
    want, = torch.autograd.grad(loss(x, y), x)
    got, = torch.autograd.grad(compiled(x, y), x)
    torch.testing.assert_close(got, want, rtol=3e-6, atol=1e-7, equal_nan=True)
    assert dynamo_lite.metrics().get("recompiles", 0) == 0
