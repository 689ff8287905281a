"""Rules of ours for operators on symbolic sizes: one graph for all sizes; values, strides and gradients as in eager."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite

SIZES = (6, 8, 9, 5, 7, 11)
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "addcmul, broadcast": lambda x: torch.addcmul(x[0], x, x.t(), value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x[:1], x.t() + 9),
    "complex": lambda x: torch.complex(x, x.t()).abs(),
    "polar": lambda x: torch.view_as_real(torch.polar(torch.ones_like(x), x)),
    "baddbmm": lambda x: torch.baddbmm(x[0], x[None].expand(2, -1, -1), x[None].expand(2, -1, -1), alpha=2),
    "baddbmm of a number": lambda x: torch.baddbmm(torch.zeros(()), x[None], x[None].mT),
    "addbmm": lambda x: torch.addbmm(x[0], x[None].expand(2, -1, -1), x[None].expand(2, -1, -1)),
    "diag": lambda x: torch.diag(x) * 2,
    "diagonal_copy": lambda x: torch.diagonal_copy(x, 1),
    "trace": lambda x: x.trace() * 2,
    "trace of ints": lambda x: (x * 9).int().trace(),
    "cholesky_solve": lambda x: torch.cholesky_solve(
        x.detach()[:, :2], torch.linalg.cholesky(x.detach() @ x.detach().T + torch.eye(x.shape[0]))),
    "arange backwards": lambda x: (
        torch.arange(x.shape[0], -x.shape[1], -1.0) * 2, torch.arange(x.shape[0] - 1, -1, -1) + 1,
        torch.arange(0, 2 * x.shape[0], 3, dtype=torch.float64).sin(), torch.arange(x.shape[0] - 1, -1, -2.0).cos()),
    "arange by halves": lambda x: (torch.arange(0, x.shape[0], 0.5), torch.arange(2, x.shape[1] + 3, 0.25)),
    "vander": lambda x: torch.vander(x[:, 0].detach(), 4) * x[:, :1],
    "kron": lambda x: (torch.kron(x, x[:2]), torch.kron(x[0], x), x.kron(x[:, 1])),
    "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(1), 1),
    "take_along_dim, few": lambda x: torch.take_along_dim(x, x.argmax(0, keepdim=True), dim=0),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool1d, transposed": lambda x: torch.max_pool1d(x.t(), 3, 2, 1, 1, True),
    "MaxPool1d": lambda x: torch.nn.MaxPool1d(3, 1, 1, 2)(x[None].mT),
    "bicubic": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bicubic"),
    "half the size": lambda x: F.interpolate(x[None, None], scale_factor=0.5, mode="bilinear"),
    "one and a half": lambda x: F.interpolate(x[None, None], scale_factor=1.5, recompute_scale_factor=True),
    "share of rows": lambda x: (x[: int(x.shape[0] * 0.75)] * 2, x[: math.ceil(x.shape[0] * 0.5)].sin()),
    "multi-head attention": lambda x: MULTIHEAD(x[None, :, :4], x[None, :, :4], x[None, :, :4])[0],
    "encoder layer": lambda x: ENCODER(x[None, :, :4]),
    "masked attention": lambda x: F.multi_head_attention_forward(
        *[x[:, None, :4]] * 3, 4, 2, torch.ones(12, 4), torch.zeros(12), None, None, False, 0.0, torch.eye(4),
        torch.zeros(4), attn_mask=torch.zeros(x.shape[0], x.shape[0]))[1],
}
torch.manual_seed(0)
MULTIHEAD = torch.nn.MultiheadAttention(4, 2, batch_first=True)
ENCODER = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)


def _parts(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name, backend", [
    (name, backend) for turn, name in enumerate(FUNCTIONS)
    for backend in ("eager", *thorough.share(["inductor_lite"], turn, 4))])
def test_one_graph_for_all_sizes(name: str, backend: str) -> None:
    fn = FUNCTIONS[name]
    compiled = dynamo_lite.compile(fn, backend=backend)
    before = dynamo_lite.metrics().get("graphs", 0)
    for size in SIZES:
        torch.manual_seed(size)
        value = torch.randn(size, size)
        x, y = (value.clone().requires_grad_(size % 2 == 1) for _ in range(2))
        for got, expected in zip(_parts(compiled(x)), _parts(fn(y)), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
            assert got.stride() == expected.stride()
            if x.requires_grad and expected.requires_grad:
                gradients = [torch.autograd.grad(part.sin().sum(), v, retain_graph=True)[0]
                             for part, v in ((got, x), (expected, y))]
                torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    # One for the first size, and one for all others with and without gradients.
    assert dynamo_lite.metrics()["graphs"] - before <= 3
    assert dynamo_lite.metrics().get("graph_breaks", 0) == 0


@pytest.mark.parametrize("arguments", [(2,), (3, 2, 1), (2, None), (5,), (3, 2, 2), (0,), (3, 1, 1, 2)])
@pytest.mark.parametrize("make", [
    lambda n: torch.randn(2, 3, n), lambda n: torch.randn(2, n, 3).transpose(1, 2), torch.randn,
    lambda n: torch.randn(n, 3, 7), lambda n: torch.randn(0, 3, n)])
def test_a_pool_of_one_dimension_raises_as_eager(make: Any, arguments: tuple[Any, ...]) -> None:
    def run(call: Any, x: torch.Tensor) -> str:
        try:
            y = call(x)
        except RuntimeError as e:
            return str(e).partition("\n")[0]
        return str((y.tolist(), y.stride()))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool1d(x, *arguments)

    compiled = dynamo_lite.compile(fn, backend="eager")
    for size in (8, 9, 4, 12, 3):
        x = make(size)
        assert run(compiled, x) == run(fn, x)


def padded(x: torch.Tensor) -> torch.Tensor:
    x = F.pad(x, (0, 0, 0, -x.shape[1] % 4))
    return x.view(x.shape[0], -1, 4, 4).sum(2)


def windowed(x: torch.Tensor) -> torch.Tensor:
    size = x.shape[1]
    x = F.pad(x, (0, 0, 0, (4 - size % 4) % 4))
    y = x.reshape(x.shape[0], x.shape[1] // 4, 4, 4).transpose(1, 2) * 2
    return y.reshape(x.shape)[:, :size]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("fn", [padded, windowed])
def test_padding_to_a_multiple(fn: Any, backend: str) -> None:
    """Three graphs: for the first size, where something is added, and where nothing is."""
    compiled = dynamo_lite.compile(fn, backend=backend)
    before = dynamo_lite.metrics().get("graphs", 0)
    for size in (8, 12, 16, 7, 20, 9, 13, 32, 24, 5):
        x = torch.randn(2, size, 4)
        got = compiled(x)
        torch.testing.assert_close(got, fn(x))
        assert got.stride() == fn(x).stride()
    assert dynamo_lite.metrics()["graphs"] - before == 3


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_padding_that_takes_away(backend: str) -> None:
    """As networks with skip connections have it: a difference of sizes, of either sign."""
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.avg_pool1d(x, 2, ceil_mode=True).repeat_interleave(2, 2)
        missing = x.shape[2] - y.shape[2]
        return x + F.pad(y, (missing // 2, missing - missing // 2))

    compiled = dynamo_lite.compile(fn, backend=backend)
    before = dynamo_lite.metrics().get("graphs", 0)
    for size in (8, 12, 16, 7, 20, 9, 13, 32, 24, 5):
        for x in (torch.randn(2, 3, size), torch.randn(2, size, 3).mT):
            torch.testing.assert_close(compiled(x), fn(x))
            assert compiled(x).stride() == fn(x).stride()
    assert dynamo_lite.metrics()["graphs"] - before <= 6  # for two layouts


COMPARISONS: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "with itself": (lambda x: x * 2 if x.shape != x.shape else x * 3, 2),
    "of another tensor": (lambda x: x * 2 if x.shape == (x + 1).shape else x * 3, 2),
    "transposed": (lambda x: x * 2 if x.shape[:2] != x.transpose(0, 1).shape[:2] else x * 3, 2),
    "with numbers": (lambda x: x * 2 if x.shape == (2, 8, 4) else x * 3, 2),
    "with a size": (lambda x: x * 2 if x.size() == torch.Size([2, x.shape[1], 4]) else x * 3, 2),
    "lists": (lambda x: x * 2 if list(x.shape) == [2, x.shape[1], 4] else x * 3, 2),
    "in a list": (lambda x: x * 2 if (x.shape[1], 3) in [(5, 3), (x.shape[1], 3)] else x * 3, 3),
    "in a tuple": (lambda x: x * 2 if x.shape[1] in (7, 9) else x * 3, 4),
    "by order": (lambda x: x * 2 if x.shape > (2, 10) else x * 3, 3),
    "index": (lambda x: x * x.shape.index(4), 2),
    "count": (lambda x: x * [x.shape[1], 3].count(3), 2),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparing_shapes_fixes_no_size(name: str) -> None:
    fn, graphs = COMPARISONS[name]
    compiled = dynamo_lite.compile(fn, backend="eager")
    before = dynamo_lite.metrics().get("graphs", 0)
    for size in (8, 12, 16, 7, 20, 9, 13, 32, 24, 5):
        x = torch.randn(2, size, 4)
        assert torch.equal(compiled(x), fn(x))
    assert dynamo_lite.metrics()["graphs"] - before <= graphs


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_bilinear(backend):
    layer = torch.nn.Bilinear(4, 3, 5)
    compiled = dynamo_lite.compile(lambda x: layer(x, x[..., :3]), dynamic=True, backend=backend)
    for n in (6, 5, 9):
        xs = [torch.arange(8.0 * n).view(2, n, 4).div(n).requires_grad_() for _ in range(2)]
        got, want = compiled(xs[0]), layer(xs[1], xs[1][..., :3])
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        got.sum().backward()
        want.sum().backward()
        torch.testing.assert_close(xs[0].grad, xs[1].grad)
    if backend == "eager":
        assert dynamo_lite.metrics()["graphs"] == 1
