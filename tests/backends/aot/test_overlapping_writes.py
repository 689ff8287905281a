"""Writes to parts of tensors whose elements share memory: other elements change as well, so such graphs run in eager,
which is a choice and no fault."""
import pytest
import torch

import dynamo_lite


def row(y):
    y[0].add_(1)
    return y * 2


def selected(y):
    y[0] = 1
    return y + 1


def windows(y):
    z = y.clone()
    w = z.unfold(-1, 2, 1)
    w[..., 0] = 2
    w[..., 1].zero_()
    return z, w + 1


def strided(y):
    z = y * 1
    z.as_strided((3, 2), (1, 1))[0] = 7
    return z + y


def whole(y):
    y.fill_(2)
    return y + 1


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("f", [row, selected, windows, strided, whole])
def test_as_eager_and_no_fault(f, backend, dynamic, caplog):
    dynamo_lite.reset()
    caplog.set_level("WARNING", "dynamo_lite.fallbacks")
    compiled = dynamo_lite.compile(f, backend=backend, dynamic=dynamic)
    for n in (3, 4):
        x, y = torch.arange(4.), torch.arange(4.)
        got, want = compiled(x.expand(n, 4)), f(y.expand(n, 4))
        for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
            assert torch.equal(a, b) and a.stride() == b.stride()
        assert torch.equal(x, y)
    assert "fault" not in caplog.text


@pytest.mark.parametrize("backend", ["aot_eager", "inductor_lite"])
def test_gradients(backend, caplog):
    dynamo_lite.reset()
    caplog.set_level("WARNING", "dynamo_lite.fallbacks")

    def f(x):
        z = x.sin()
        z.unfold(-1, 2, 1)[..., 0].mul_(2)
        return z * x

    found = []
    for fn in (f, dynamo_lite.compile(f, backend=backend)):
        x = torch.arange(4.).requires_grad_()
        y = fn(x)
        found.append((y.detach(), *torch.autograd.grad(y.sum(), x)))
    assert all(map(torch.equal, *found)) and "fault" not in caplog.text
