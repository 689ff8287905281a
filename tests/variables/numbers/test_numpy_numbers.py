"""Numbers of NumPy's that are computed from sizes: values, types and recompiles.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

PROGRAMS = {}
FIXES = set()


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


def fixes(fn):
    """It needs the value of a number, so that each size has a graph of its own."""
    FIXES.add(fn.__name__)
    return program(fn)


@program
def view(x):
    return x.view(int(np.prod(x.shape))) * 2


@program
def reshape(x):
    return x.reshape(x.shape[0], np.prod(x.shape[1:])) * 2


@program
def products(x):
    return x.flatten()[: np.prod(x.shape) - 1], np.prod(x.shape), np.prod(x.shape) / 2, np.prod(list(x.shape))


@program
def sums(x):
    return x.new_zeros(np.sum(x.shape)), np.sum((x.shape[0], 3))


@program
def roots(x):
    root = np.sqrt(x.shape[-2])
    return x / root, root * x, 2 * root + 1, -root, root.dtype, root.item()


@program
def ceiling(x):
    return x[: int(np.ceil(x.shape[0] / 3))]


@program
def logarithms(x):
    return x * np.log(x.shape[0]) + np.log2(x.shape[0]) * 0.5 - np.exp(-np.int64(x.shape[0]) / 100)


@program
def comparisons(x):
    root = np.sqrt(x.shape[0])
    return x + 1 if root > 2 else x, root > 2, root == 100


@program
def extremes(x):
    n = np.int64(x.shape[0])
    return x[: np.maximum(x.shape[0] // 2, 3)], np.minimum(x.shape[0], 7), max(n, 3), min(n, 3)


@program
def ints(x):
    n = np.int64(x.shape[0])
    return x * n, n // 2 * 3 % 5, np.int64(3) * x.shape[0], x.shape[0] * np.int64(3), n - 1, 1 - n, np.float64(n)


@program
def powers(x):
    return x * np.power(x.shape[0], 0.5), np.int64(x.shape[0]) ** 2, np.power(2.0, -x.shape[0])


@program
def builtins_of_them(x):
    n, root = np.int64(x.shape[0]), np.sqrt(x.shape[0])
    return x + 1, math.sqrt(n), math.floor(root), float(n), int(root), n.item(), n.shape, isinstance(root, float)


@program
def by_zero(x):
    with np.errstate(all="ignore"):
        return x + 1, np.float64(x.shape[0]) / (x.shape[1] - 6), np.int64(x.shape[0]) % 7


@program
def kept(x):
    numbers = [np.prod(x.shape), np.sqrt(x.shape[0])]
    return x + 1, numbers, {"a": numbers[0]}


@program
def indices(x):
    n = np.int64(x.shape[0])
    return x[n - 2], x[: n - 2], x[n // 2, 0]


@program
def linear(x):
    n = np.prod(x.shape)
    return F.linear(x.view(1, n), x.new_ones(3, n))


@fixes
def texts(x):
    return x + 1, f"{np.prod(x.shape)}"


@fixes
def arrays(x):
    return x * np.array(x.shape).sum()


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_types_and_graphs(name, dynamic):
    fn, graphs = PROGRAMS[name], []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = dynamo_lite.compile(fn, backend=backend, dynamic=dynamic)
    sizes = (9, 12, 17, 23, 30, 12)
    for n in sizes:
        x = torch.randn(n, 6)
        assert same(compiled(x), fn(x)), n
    assert len(graphs) == (len(set(sizes)) if name in FIXES else 1 if dynamic else 2)


def test_kernels_take_them():
    compiled = dynamo_lite.compile(roots, fullgraph=True)
    for n in (9, 12, 17):
        x = torch.randn(n, 6)
        torch.testing.assert_close(compiled(x)[:4], roots(x)[:4])


def test_a_divisor_that_becomes_zero():
    def modulo(x, n):
        return x + 1, np.int64(7) % n, np.int64(7) // n

    compiled = dynamo_lite.compile(modulo, backend="eager")
    with np.errstate(all="ignore"):
        for n in (3, 4, 5, 0, -2, 6):
            assert same(compiled(torch.ones(2), n), modulo(torch.ones(2), n)), n


@pytest.mark.parametrize("fn", [
    lambda x, n, m: (x + 1, np.int64(n) * np.int64(m)),
    lambda x, n, m: (x + 1, np.int64(n) * m + 1),
    lambda x, n, m: (x + 1, np.prod((n, m, 8)), np.sum((n, m))),
], ids=["product", "with Python's", "of a sequence"])
def test_numpys_ints_wrap_around(fn):
    compiled = dynamo_lite.compile(fn, backend="eager")
    with np.errstate(all="ignore"):
        for n, m in ((3, 4), (5, 6), (1 << 40, 1 << 10), (1 << 40, 1 << 40), (-(1 << 40), 1 << 39), (7, 8),
                     (1 << 61, 3)):
            assert same(compiled(torch.ones(2), n, m), fn(torch.ones(2), n, m)), (n, m)
