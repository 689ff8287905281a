"""Pooling with a window that is the whole image: one graph for all sizes, eager's bits, strides and gradients."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

POOLS: dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "mean 1": (1, lambda x: F.avg_pool1d(x, x.shape[2])),
    "mean 2": (2, lambda x: F.avg_pool2d(x, x.shape[2:]).flatten(1)),
    "mean 2 by steps": (2, lambda x: F.avg_pool2d(x, kernel_size=(x.size(2), x.size(3)), stride=3, ceil_mode=True)),
    "mean 3": (3, lambda x: F.avg_pool3d(x, x.size()[2:])),
    "max 1": (1, lambda x: F.max_pool1d(x, x.size(2)).squeeze(2)),
    "max 2": (2, lambda x: F.max_pool2d(x, x.size()[2:], padding=0, dilation=1)),
    "max 3": (3, lambda x: F.max_pool3d(x, kernel_size=x.size()[2:])),
    "one image": (2, lambda x: F.avg_pool2d(x[0], x.shape[2:]) + F.max_pool2d(x[0], x.shape[2:])),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", POOLS)
def test_one_graph_for_all_sizes(name: str, backend: str) -> None:
    dims, pool = POOLS[name]
    compiled = dynamo_lite.compile(pool, backend=backend, dynamic=True)
    for n in (6, 5, 9, 17, 8):
        x = torch.randn(2, 3, *range(n, n + dims))
        x[0, 1].view(-1)[n // 2:] = float("nan")
        x[1, 0] = -0.0
        x[1, 0].view(-1)[2] = 0.0
        got, want = compiled(x), pool(x)
        assert got.stride() == want.stride() and got.dtype == want.dtype
        assert torch.equal(got.contiguous().view(torch.int32), want.contiguous().view(torch.int32))
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and "recompiles" not in metrics and "graph_breaks" not in metrics


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in POOLS if name.startswith("max")])
def test_gradients_of_maxima(name: str, dtype: torch.dtype) -> None:
    dims, pool = POOLS[name]
    compiled = dynamo_lite.compile(pool, dynamic=True)
    for n in (6, 5, 9, 8):
        x = torch.randint(0, 4, (2, 3, *range(n, n + dims))).to(dtype)  # with equal elements
        x[0, 1].view(-1)[[1, 3]] = float("nan")
        mine, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(mine * 1).sum().backward()
        pool(eagers * 1).sum().backward()
        assert mine.grad is not None and torch.equal(mine.grad, eagers.grad)
    assert dynamo_lite.metrics()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("name", [name for name in POOLS if name.startswith("mean")])
def test_gradients_of_means(name: str, backend: str) -> None:
    dims, pool = POOLS[name]
    compiled = dynamo_lite.compile(pool, backend=backend, dynamic=True)
    for n in (6, 5, 9, 8):
        x = torch.randn(2, 3, *range(n, n + dims), requires_grad=True)
        got, want = compiled(x), pool(x)
        weights = torch.randn_like(want)
        weights[0, 0] = -0.0
        (mine,), (eagers,) = (torch.autograd.grad(y, x, weights, retain_graph=True) for y in (got, want))
        assert torch.equal(mine.view(torch.int32), eagers.view(torch.int32)) and mine.stride() == eagers.stride()
    assert dynamo_lite.metrics()["graphs"] == 1
    seconds = []
    for call in (compiled, pool):
        y = call(x)
        (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), x)
        seconds.append(second)
        y = call(x)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.sum().backward()
        z = x * 1
        y = call(z)
        z.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    torch.testing.assert_close(*seconds)


OTHERS: dict[str, Callable[[torch.Tensor], object]] = {
    "a part": lambda x: F.avg_pool2d(x, (x.size(2), 1)),
    "half": lambda x: F.max_pool2d(x, x.size(2) // 2),
    "padded": lambda x: F.avg_pool2d(x, x.shape[2:], padding=1),
    "other axes": lambda x: F.max_pool2d(x.transpose(2, 3), (x.shape[3], x.shape[2])),
    "channels last": lambda x: F.avg_pool2d(x.to(memory_format=torch.channels_last), x.shape[2:]),
    "indices": lambda x: F.max_pool2d(x, x.shape[2:], return_indices=True),
    "ints": lambda x: F.max_pool2d((x * 9).long(), x.shape[2:]),
    "one channel": lambda x: F.avg_pool2d(x[:, :1], x.shape[2:]),
    "spread": lambda x: F.max_pool2d(x, x.shape[2:], dilation=2),
    "too large": lambda x: F.max_pool2d(x, (x.shape[2], x.shape[2] + 9)),
    "no steps": lambda x: F.avg_pool2d(x, x.shape[2:], stride=0),
    "divided": lambda x: F.avg_pool2d(x, x.shape[2:], divisor_override=3),
    "trained": lambda x: torch.autograd.grad(F.avg_pool2d(x, x.shape[2:]).sum(), x),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_windows_are_torchs(name: str) -> None:
    def f(x: torch.Tensor) -> object:
        try:
            return OTHERS[name](x)
        except RuntimeError as error:
            return str(error)

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (6, 5, 7, 1, 2):
        x = torch.randn(2, 3, n, n + 1, requires_grad=name == "trained")
        leaves = [torch.utils._pytree.tree_leaves(r) for r in (compiled(x), f(x))]
        for got, want in zip(*leaves, strict=True):
            if isinstance(want, str):
                assert got == want
            else:
                assert torch.equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("transform", ["jvp", "vmap", "grad", "jacfwd"])
def test_transforms_of_means(transform: str, backend: str) -> None:
    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, x.shape[-2:]) * 2

    def f(x: torch.Tensor) -> object:
        if transform == "jvp":
            return torch.func.jvp(pool, (x,), (x + 1,))
        if transform == "grad":
            return torch.func.grad(lambda y: pool(y).sum())(x)
        return getattr(torch.func, transform)(pool)(x)

    compiled = dynamo_lite.compile(f, backend=backend, dynamic=True)
    for n in (4, 5):
        x = torch.randn(2, 3, n, n + 1)
        torch.testing.assert_close(compiled(x), f(x))
