"""Functions that take a size as an int, with sizes that change between calls."""
from __future__ import annotations

import os

import new_process
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


FUNCTIONS = {
    "linspace": lambda x: x + torch.linspace(0, 1, x.shape[0])[:, None],
    "linspace by name": lambda x: torch.linspace(start=-1.5, end=2, steps=x.shape[0] + 1, dtype=torch.float64) * 2,
    "linspace of ints": lambda x: torch.linspace(0, 10, steps=x.shape[0], dtype=torch.int64, device=x.device),
    "logspace": lambda x: torch.logspace(0, 1, x.shape[0]) + torch.logspace(0.5, 2, steps=x.shape[0], base=2.0),
    "lower triangle": lambda x: torch.tril_indices(x.shape[0], x.shape[0]) * 2,
    "upper triangle": lambda x: torch.triu_indices(x.shape[0], x.shape[0]) + 1,
    "lower triangle by name": lambda x: torch.tril_indices(row=2, col=x.shape[0], offset=-1, dtype=torch.int32),
    "hann": lambda x: x * torch.hann_window(x.shape[0])[:, None],
    "hann, symmetric": lambda x: x * torch.hann_window(x.shape[0], False, dtype=torch.float32)[:, None],
    "hann, by name": lambda x: torch.hann_window(2 * x.shape[0], periodic=True) + 1,
    "hamming": lambda x: torch.hamming_window(x.shape[0], True, 0.5) + 1,
    "hamming, four": lambda x: torch.hamming_window(x.shape[0], True, 0.5, beta=0.4) + 1,
    "blackman": lambda x: torch.blackman_window(window_length=x.shape[0]) * x.sum(),
    "bartlett": lambda x: torch.bartlett_window(x.shape[0], dtype=torch.float64),
    "kaiser": lambda x: torch.kaiser_window(x.shape[0], False, 8.0) + 1,
    "one_hot": lambda x: F.one_hot(x.argmax(1), num_classes=x.shape[0] + 6),
    "frequencies": lambda x: x * torch.fft.fftfreq(x.shape[0])[:, None],
    "frequencies, by name": lambda x: torch.fft.fftfreq(n=x.shape[0] + 1, d=0.5, dtype=torch.float64) + 1,
    "frequencies of real signals": lambda x: torch.fft.rfftfreq(x.shape[0], 1 / 8, device=x.device) * 2,
    "by their distance": lambda x: torch.fft.rfftfreq(x.shape[0], d=1 / x.shape[0]) + torch.fft.rfftfreq(x.shape[0]),
    "one_hot by position": lambda x: F.one_hot(torch.arange(x.shape[0]), x.shape[0]) @ x.long(),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_for_all_sizes(name, backend):
    function = FUNCTIONS[name]
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for n in (5, 7, 2, 12):
        x = torch.randn(n, 6)
        got, want = compiled(x), function(x)
        if name == "blackman":  # sums of kernels
            torch.testing.assert_close(got, want)
        assert got.dtype is want.dtype and got.stride() == want.stride()
        assert name == "blackman" or torch.equal(got, want)
    assert dynamo_lite.metrics()["recompiles"] == 1


@pytest.mark.parametrize("function", [
    lambda x: torch.hann_window(x.shape[0], requires_grad=True) * x,
    lambda x: torch.linspace(x[0], x[1], x.shape[0]),
    lambda x: torch.linspace(0, 1, x.shape[0], out=torch.empty(x.shape[0])),
])
def test_arguments_that_torchs_own_alone_takes(function):
    compiled = dynamo_lite.compile(function, backend="eager", dynamic=True)
    for n in (5, 7):
        x = torch.randn(n)
        got, want = compiled(x), function(x)
        assert torch.equal(got, want) and got.requires_grad == want.requires_grad


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_classes_that_are_too_large(backend):
    """Eager raises whether the result is used or not."""

    def f(x, classes):
        F.one_hot(classes, num_classes=x.shape[0])
        return x + 1

    compiled = dynamo_lite.compile(f, backend=backend, dynamic=True)
    for n in (5, 7):
        assert torch.equal(compiled(torch.ones(n), torch.arange(n)), torch.ones(n) + 1)
        for g in (f, compiled):
            with pytest.raises(RuntimeError, match="smaller than num_classes"):
                g(torch.ones(n), torch.arange(n + 1))


def test_the_next_process_takes_the_kept_graph(tmp_path):
    program = """
import torch, dynamo_lite
f = lambda x: (x * torch.linspace(0, 1, x.shape[0])).sum() + torch.hann_window(x.shape[0])
compiled = dynamo_lite.compile(f, dynamic=True)
for n in (5, 9):
    torch.testing.assert_close(compiled(torch.ones(n)), f(torch.ones(n)))
print("lowering" in dynamo_lite.log.phase_times())
"""
    env = {**os.environ, "DYNAMO_LITE_CACHE_GRAPHS": "1",
           "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "cache")}
    said = [new_process.run(program, env=env) for _ in range(2)]
    assert [p.stdout for p in said] == ["True\n", "False\n"], said


CHAINS = {
    "two": lambda x: torch.linalg.multi_dot([x, x.t()]),
    "three": lambda x: torch.linalg.multi_dot((x.t(), x, x[:3].t())),
    "the last ones first": lambda x: torch.linalg.multi_dot([x, x.t(), x[:, :1]]),
    "four": lambda x: torch.linalg.multi_dot([x, x.t(), x, x[0]]),
    "vectors at both ends": lambda x: torch.linalg.multi_dot([x[:, 0], x, x.t(), x, x[1]]),
    "what it refuses": lambda x: torch.linalg.multi_dot([x, x]) if x.shape[0] == 6 else x * 2,
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_matrices_are_a_graph_for_each_order(name, backend):
    function = CHAINS[name]
    compiled = dynamo_lite.compile(function, backend=backend)
    for n in (5, 7, 3, 12, 40, 9, 25):
        x, y = (torch.randn(n, 6, generator=torch.Generator().manual_seed(n)).requires_grad_() for _ in range(2))
        got, want = compiled(x), function(y)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()
        got.sum().backward()
        want.sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)
    assert dynamo_lite.metrics()["recompiles"] <= 2


GRADIENTS = {
    "all": lambda x: torch.gradient(x),
    "rows": lambda x: torch.gradient(x, dim=0)[0] + 1,
    "columns, order 2": lambda x: torch.gradient(x, dim=-1, edge_order=2),
    "order 2": lambda x: torch.gradient(x * 3, spacing=0.3, edge_order=2),
    "distances": lambda x: torch.gradient(x, spacing=(2.5, 3), dim=(1, 0)),
    "distance": lambda x: torch.gradient(x.t(), spacing=[2], dim=1),
    "three": lambda x: torch.gradient(x.expand(3, *x.shape).permute(2, 0, 1), dim=[1, 0]),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_samples_are_one_graph(name, backend):
    function = GRADIENTS[name]
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for n in (5, 7, 4, 12):
        x = torch.randn(n, 6)
        got, want = compiled(x), function(x)
        assert type(got) is type(want)
        for a, b in zip(got if type(got) is tuple else [got], want if type(want) is tuple else [want], strict=True):
            assert a.dtype is b.dtype and a.stride() == b.stride()
            if backend == "eager":
                assert torch.equal(a, b)
            torch.testing.assert_close(a, b)
    assert dynamo_lite.metrics()["recompiles"] == 1


@pytest.mark.parametrize("options", [
    {"dim": 0, "edge_order": 2}, {"spacing": (1.0,)}, {"dim": (0, 0)}, {"dim": 2}, {"edge_order": 3},
    {"spacing": (torch.arange(9.0) ** 2,), "dim": 0},
])
def test_gradients_of_samples_that_are_left_to_torch(options):
    def function(x):
        return torch.gradient(x, **options)

    compiled = dynamo_lite.compile(function, backend="eager")
    for n in (9, 4, 2, 5):
        x, results = torch.randn(n, 6), []
        for f in (function, compiled):
            try:
                results.append([t.tolist() for t in f(x)])
            except (RuntimeError, IndexError) as error:
                results.append(type(error))
        assert results[0] == results[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("size, classes", [(0, 0), (3, 0), ((0, 4), 0), (0, -1), (0, -2), (0, 3)])
def test_no_classes_are_refused_as_in_eager(size, classes, backend):
    def f(x):
        return F.one_hot(x, classes)

    def outcome(call):
        try:
            return call(torch.zeros(size, dtype=torch.int64)).shape
        except RuntimeError as error:
            return str(error)

    assert outcome(dynamo_lite.compile(f, backend=backend)) == outcome(f)
