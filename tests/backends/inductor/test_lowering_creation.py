"""Ranges and identity matrices: eager's numbers, generated where every one of them is exact."""
import math
import re

import pytest
import thorough
import torch

import dynamo_lite
from dynamo_lite import log

pytestmark = pytest.mark.by_turns(3)

RANGES = [(0, 10, 1), (0, 100, 2), (5, -7, -3), (0.5, 10, 0.25), (0, 1, 0.1), (-3.0, 3.0, 1.5), (0, 0, 1), (0, 300, 1),
          (0, 3000, 1), (0.0, 64, 2), (1e9, 1e9 + 100, 7), (0, 16777216 + 40000000, 8000000), (-0.0, 3, 1)]
DTYPES = [None, torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8]


def library_calls(f, *args):
    dynamo_lite.reset_metrics()
    want, got = f(*args), dynamo_lite.compile(f)(*args)
    for a, b in zip(want, got, strict=True):
        assert a.dtype is b.dtype and a.stride() == b.stride() and torch.equal(a, b)
        assert not a.is_floating_point() or torch.equal(a.signbit(), b.signbit())
    return list(dynamo_lite.metrics()["library_calls"])


@pytest.mark.parametrize("given, dtype", [
    (given, dtype) for turn, given in enumerate(RANGES) for dtype in thorough.share(DTYPES, turn)
    if all(isinstance(n, int) for n in given) or dtype is None or dtype.is_floating_point])
def test_arange(given, dtype):
    def f(x):
        made = torch.arange(*given, dtype=dtype)
        return made, made * x

    library_calls(f, torch.tensor(3))


@pytest.mark.parametrize("given, dtype, generated", [
    ((0, 64, 2), torch.float32, True), ((1000,), torch.float32, True), ((0, 4, 0.5), torch.float32, True),
    ((300,), torch.bfloat16, False), ((256,), torch.bfloat16, True), ((0, 1, 0.1), torch.float32, False),
])
def test_arange_in_its_user(given, dtype, generated):
    def f(x):
        return (torch.arange(*given, dtype=dtype) * x,)

    assert library_calls(f, torch.tensor(3.0)) == [] or not generated


@pytest.mark.parametrize("dtype", [None, torch.bool, torch.int32, torch.bfloat16])
@pytest.mark.parametrize("size", [(3,), (3, 5), (5, 3), (0,), (1, 1)])
def test_eye(size, dtype):
    def f(x):
        return torch.eye(*size, dtype=dtype), torch.eye(*size) * x

    assert library_calls(f, torch.tensor(2.0)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.bool])
def test_new_memory_with_deterministic_algorithms(dtype):
    """It is filled with what shows that nobody has written it."""
    def function(x):
        y = torch.empty(3, dtype=dtype)
        y[1] = 1
        return torch.empty(2, dtype=dtype), x.new_empty(2, dtype=dtype), y, torch.empty_like(y)

    torch.use_deterministic_algorithms(True)
    try:
        want, got = function(torch.ones(2)), dynamo_lite.compile(function, fullgraph=True)(torch.ones(2))
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float32])
@pytest.mark.parametrize("given", [
    (0, 1, 1), (0, 1, 2), (-2.7, 3.3, 7), (5, -1.25, 300), (0, 10**9 + 1, 17), (3, 3, 4), (1, 2, 0),
    (float("inf"), 1, 3), (0, float("nan"), 5),
])
def test_linspace_is_the_same_to_the_last_bit(given, dtype):
    def f(x):
        return torch.linspace(*given, dtype=dtype) + 0 * x, torch.linspace(*given, dtype=dtype)

    x = torch.tensor(2.0)
    torch.testing.assert_close(dynamo_lite.compile(f)(x), f(x), rtol=0, atol=0, equal_nan=True)
    if all(map(math.isfinite, given)):
        assert library_calls(f, x) == [] or given[-1] == 0


@pytest.mark.parametrize("given, dtype", [((0, 7, 5), torch.int64), ((0, 1, 5), torch.bfloat16)])
def test_linspace_of_other_dtypes(given, dtype):
    def f(x):
        return torch.linspace(*given, dtype=dtype) * x

    x = torch.tensor(2, dtype=dtype)
    torch.testing.assert_close(dynamo_lite.compile(f)(x), f(x), rtol=0, atol=0)


def test_linspace_with_a_number_that_the_dtype_does_not_hold_raises_as_in_eager():
    def f(x):
        return torch.linspace(0, 1e300, 5) * x

    with pytest.raises(RuntimeError) as want:
        f(torch.ones(()))
    with pytest.raises(RuntimeError) as got:
        dynamo_lite.compile(f)(torch.ones(()))
    assert str(got.value) == str(want.value)


def of_columns(x):
    return x * torch.linspace(-1, 1, x.shape[1])


def to_a_size(x):
    return x + torch.linspace(0, x.shape[0] - 1, x.shape[0])[:, None]


def in_double_precision(x):
    return x + torch.linspace(x.shape[1], 1, x.shape[0], dtype=torch.float64)[:, None]


@pytest.mark.parametrize("f", [of_columns, to_a_size, in_double_precision])
def test_linspace_with_sizes_that_change(f):
    compiled = dynamo_lite.compile(f)
    for n in (5, 6, 7, 300, 2, 1):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(compiled(x), f(x), rtol=0, atol=0)
    assert log.counters()["graphs"] <= 3  # fixed, any, and one of a size of 1
    assert "linspace(" not in re.sub("(//|#).*", "", dynamo_lite.generated_code(compiled))
