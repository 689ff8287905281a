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


SCALE = np.float64(0.125)


def from_globals(x, number):
    kept = SCALE if SCALE > 0.1 else None
    scaled = x * SCALE, SCALE * x, torch.clamp(x, min=SCALE), x / np.sqrt(SCALE)
    return (*scaled, kept, x * number, number, number + 1, -number)


@pytest.mark.parametrize("number", [np.float64(-0.0), np.float32(2.5), np.float16(0.5), np.int32(3), np.uint8(200),
                                    np.int64(2), np.complex128(1 + 2j), np.bool_(True)])
@pytest.mark.filterwarnings("ignore")
def test_numbers_from_outside(number):
    if isinstance(number, np.bool_):
        with pytest.raises(TypeError):
            from_globals(torch.ones(2), number)
        return
    x = torch.arange(6.0)
    compiled = dynamo_lite.compile(from_globals, backend="eager")
    for _ in range(2):
        for got, want in zip(compiled(x, number), from_globals(x, number), strict=True):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want, rtol=0, atol=0)
                assert got.dtype == want.dtype
            else:
                assert type(got) is type(want) and same(got, want)
    assert compiled(x, number)[4] is SCALE and compiled(x, number)[6] is number
    assert dynamo_lite.metrics()["graphs"] == 1 and "graph_breaks" not in dynamo_lite.metrics()


def test_a_number_that_changes_breaks_instead_of_being_compiled_for_each_value(monkeypatch):
    compiled = dynamo_lite.compile(lambda x, s: (x * s, s), backend="eager")
    x = torch.ones(2)
    for value in (0.5, -0.0, 0.0, 2.0, 3.0, float("nan")):
        number = np.float64(value)
        scaled, kept = compiled(x, number)
        torch.testing.assert_close(scaled, x * number, rtol=0, atol=0, equal_nan=True)
        assert kept is number
    assert dynamo_lite.metrics()["recompiles"] == 1
    assert compiled(x, np.float32(2))[1].dtype == np.float32
    monkeypatch.setitem(globals(), "SCALE", np.float64(2))
    torch.testing.assert_close(dynamo_lite.compile(from_globals, backend="eager")(x, np.int64(2))[0], x * 2)


TABLE = np.arange(3.0)


def of_a_tensor(x):
    return np.exp((x + 1).numpy()), x * 2


def from_outside(x):
    return torch.from_numpy(TABLE) + (x + 1).sum()


def of_half_a_complex_number(x):
    return x * np.complex64(1 + 2j), x + 1


def drawn(x):
    return x + 1 + np.random.RandomState(0).rand()


def written(x):
    a = np.zeros(2)
    a[0] = 3
    return x[0, :2] * 2 + torch.from_numpy(a)


@pytest.mark.parametrize("function", [of_a_tensor, from_outside, written])
def test_numpy_on_values_of_the_call_is_captured(function):
    x = torch.arange(6.0).reshape(2, 3)
    compiled = dynamo_lite.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(compiled(x)[0]), np.asarray(function(x)[0]))


@pytest.mark.parametrize("function", [of_half_a_complex_number, drawn])
@pytest.mark.filterwarnings("ignore")
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
