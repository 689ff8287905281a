"""aot_eager and aot_eager_decomp_partition: values, layouts, aliases, writes, random numbers and gradients of eager."""
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.backends.aot.graph import AtenGraph, ValueOutput
from dynamo_lite.backends.aot_eager import _Run

BACKENDS = ["aot_eager", "aot_eager_decomp_partition"]


def r(*shape):
    return torch.randn(*shape)


def writes_and_views(x, y):
    x.add_(1)
    z = x.t()
    return z, z[0], x, y.unsqueeze(0), y[::2], torch.view_as_real(torch.complex(y, y)), (y * 2)[1:], 3, None


PROGRAMS = {
    "writes and views": (writes_and_views, [r(3, 4), r(6)]),
    "softmax and norms": (lambda x: F.layer_norm(torch.softmax(x, -1), (8,)) + F.gelu(x), [r(4, 8)]),
    "random": (lambda x: (F.dropout(x, 0.5), torch.rand_like(x), torch.randn(3)), [r(4, 4)]),
    "several results": (lambda x: (*x.split(2), *torch.topk(x, 2, 0), *x.max(0)), [r(4, 4)]),
    "indices": (lambda x, i: (x[i], x.index_add(0, i, x[i]), x.scatter(0, i[:, None], 1.0)),
                [r(4, 4), torch.tensor([2, 0])]),
    "constants": (lambda x: x + torch.tensor([1.0, 2.0]), [r(3, 2)]),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(), [r(2, 3, 8, 8), r(4, 3, 3, 3)]),
    "written by index": (lambda x: (x.clone().index_put_((torch.tensor([0]),), torch.ones(4)), x.mul_(2).sum()),
                         [r(3, 4)]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(backend_check, backend, name):
    fn, inputs = PROGRAMS[name]
    log.reset()
    tolerance = 1e-6 if backend == "aot_eager_decomp_partition" else 0.0
    backend_check.compare(fn, inputs, backend=backend, rtol=tolerance, atol=tolerance)
    assert not [n for n in log.counters() if n.startswith("fallback")]


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5), nn.LayerNorm(5))


@pytest.mark.parametrize("backend", BACKENDS)
def test_training(backend):
    plain, other = model(), model()
    compiled = dynamo_lite.compile(other, backend=backend, fullgraph=True)
    for _ in range(3):
        x = r(2, 3, 8, 8)
        for net, call in ((plain, plain), (other, compiled)):
            net.zero_grad()
            F.cross_entropy(call(x), torch.tensor([1, 2])).backward()
        for p, q in zip([*plain.parameters(), *plain.buffers()], [*other.parameters(), *other.buffers()]):
            torch.testing.assert_close(q, p)
        for p, q in zip(plain.parameters(), other.parameters()):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_modes(backend):
    x = r(4, 4).requires_grad_()
    for scope in (torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)):
        def f(x):
            with scope():
                return (x @ x).relu(), x.t()

        want, got = f(x), dynamo_lite.compile(f, backend=backend)(x)
        for p, q in zip(want, got):
            torch.testing.assert_close(q, p)
            assert q.requires_grad == p.requires_grad and q.is_inference() == p.is_inference()
        assert got[1]._base is want[1]._base
        with scope():
            want, got = f(x), dynamo_lite.compile(f, backend=backend)(x)
            torch.testing.assert_close(got[0], want[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_and_errors(backend):
    f = dynamo_lite.compile(lambda x: x * x.sum().item(), backend=backend)
    with dynamo_lite.config.patch(capture_scalar_outputs=True):
        torch.testing.assert_close(f(torch.ones(3)), torch.full((3,), 3.0))

    def g(x, i):
        x.add_(1)
        return x[i]

    x = torch.zeros(3)
    with pytest.raises(IndexError, match="out of bounds"):
        dynamo_lite.compile(g, backend=backend)(x, torch.tensor([7]))
    assert x.tolist() == [1.0] * 3


def test_what_is_not_needed_any_more_is_freed():
    alive = []

    def probe(x):
        alive.append(sum(ref() is not None for ref in refs))
        return x

    refs = []

    def make(x):
        out = x + 1
        refs.append(weakref.ref(out))
        probe(out)
        return out

    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = torch.ones(1)
    for _ in range(4):
        node = graph.call_function(make, (node,))
        node.meta["val"] = torch.ones(1)
    graph.output((node,))
    run = _Run(AtenGraph(graph, {}, (ValueOutput(0),), ()), {"boxed": True})
    assert run([torch.zeros(1)])[0].item() == 4
    assert alive == [1, 2, 2, 2]


def test_generated_code_shows_the_graph():
    x, mean, var = r(2, 3), torch.zeros(3), torch.ones(3)
    shown = {}
    for backend in BACKENDS:
        f = dynamo_lite.compile(lambda x, mean, var: F.batch_norm(x, mean, var), backend=backend)
        f(x, mean, var)
        shown[backend] = "".join(dynamo_lite.generated_code(f))
    assert "batch_norm" in shown["aot_eager"]
    assert "batch_norm" not in shown["aot_eager_decomp_partition"]
    assert {"eager", *BACKENDS, "inductor_lite"} <= set(dynamo_lite.list_backends())


def sized(x, n):
    half = x.shape[0] // 2
    y = x.view(-1)
    return (y, y, x[:half] * 2, x.expand(n, -1, -1), x + x.shape[0], x * (-n // 3), torch.arange(x.shape[1]) + n, x.mT,
            torch.cat([x, x[half:]]), x.numel(), x.sum() / x.numel(), x.var(0))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("needs_grad", [False, True])
def test_symbolic_sizes(backend, needs_grad):
    """Numbers of the graph are those of the call."""
    log.reset()
    compiled = dynamo_lite.compile(sized, backend=backend, dynamic=True, fullgraph=True)
    for size, n in (((3, 4), 5), ((5, 4), 3), ((5, 7), 2), ((8, 2), 9)):
        x = torch.randn(size).requires_grad_(needs_grad)
        got, want = compiled(x, n), sized(x, n)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
            assert not isinstance(a, torch.Tensor) or a.stride() == b.stride()
        assert got[0] is got[1] and got[0]._base is x
        if needs_grad:
            (gradient,) = torch.autograd.grad(sum(t.sum() for t in got if torch.is_tensor(t)), x)
            (expected,) = torch.autograd.grad(sum(t.sum() for t in want if torch.is_tensor(t)), x)
            torch.testing.assert_close(gradient, expected)
    assert log.counters()["graphs"] == 2  # with n as a number, and as a symbol
    assert not [name for name in log.counters() if name.startswith("fallback")]
