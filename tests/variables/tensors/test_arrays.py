"""NumPy on what is known while tracing: numbers and tables; all else breaks."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from language_support import same

import dynamo_lite


def numbers(x):
    n, f = np.int64(3), np.float32(1.5)
    return (x * np.sqrt(4.0) + np.pi, x * float(np.float32(2)), x + np.prod([2, 3]), x * n, x + f, f * x,
            x.reshape(int(n), -1), np.ceil(2.5), np.log2(8), np.int64(5) // 2, x * np.float64(0.5))


def tables(x):
    grid = np.array([[position / np.power(10000, 2 * (j // 2) / 4) for j in range(4)] for position in range(3)])
    out = torch.zeros(3, 4)
    out[:, 0:2] = torch.tensor(np.sin(grid[:, 0::2]), dtype=torch.float32)
    return out + x.sum(), torch.from_numpy(np.linspace(0, 1, 3)), torch.as_tensor(np.arange(3.0).astype(np.float32))


def conversions(x):
    return torch.tensor(np.float32(2)), torch.tensor(np.float64(2)), torch.tensor(np.int32(2)), torch.tensor(
        np.array([1, 2])), x + 1


def results(x):
    return x, np.arange(4).reshape(2, 2), np.float32(2.5), [float(v) for v in np.linspace(0, 1, 3)]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("function", [numbers, tables, conversions, results])
def test_one_graph(function, backend):
    x = torch.arange(6.0).reshape(2, 3)
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        for got, want in zip(compiled(x), function(x), strict=True):
            assert type(got) is type(want)
            if isinstance(want, torch.Tensor):
                assert got.dtype == want.dtype
                torch.testing.assert_close(got, want)
            else:
                assert same(got, want) if not isinstance(want, np.ndarray) else np.array_equal(got, want)


def test_arrays_that_leave_are_new_each_time():
    compiled = dynamo_lite.compile(lambda x: (x + 1, np.zeros(2)), backend="eager")
    first = compiled(torch.ones(1))[1]
    first[0] = 5
    assert compiled(torch.ones(1))[1].tolist() == [0, 0]


TABLE = np.arange(3.0)


def of_a_tensor(x):
    return np.exp((x + 1).numpy()), x * 2


def from_outside(x):
    return torch.from_numpy(TABLE) + (x + 1).sum()


def drawn(x):
    return x + 1 + np.random.RandomState(0).rand()


def written(x):
    a = np.zeros(2)
    a[0] = 3
    return x[0, :2] * 2 + torch.from_numpy(a)


@pytest.mark.parametrize("function", [of_a_tensor, from_outside, drawn, written])
def test_breaks(function):
    x = torch.arange(6.0).reshape(2, 3)
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(x)
    compiled = dynamo_lite.compile(function, backend="eager")
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(compiled(x)[0]), np.asarray(function(x)[0]))


def test_what_changes_outside_is_seen(monkeypatch):
    compiled = dynamo_lite.compile(from_outside, backend="eager")
    x = torch.zeros(2, 3)
    before = compiled(x)
    monkeypatch.setitem(globals(), "TABLE", TABLE + 1)
    torch.testing.assert_close(compiled(x), before + 1)
