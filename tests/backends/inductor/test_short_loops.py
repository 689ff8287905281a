"""Dimensions of two to four elements: vectors side by side, reductions and products of a few terms as chains."""
import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Store
from dynamo_lite.backends.inductor.scheduler.short_loops import write_out_short_loops

pytestmark = pytest.mark.by_turns(3)

R = torch.randn
SIMD = ("avx512", "avx2", "scalar")


def images(n, m, dtype=torch.float32):
    return (torch.rand(n, 3, 7, m) * 250).to(dtype)


def from_corners(b):
    return torch.stack([(b[:, 0] + b[:, 2]) / 2, (b[:, 1] + b[:, 3]) / 2, b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]], -1)


def overlap(a, b):
    low, high = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
    return (high - low).clamp(min=0).prod(2)


def turned_pairs(x, c, s):
    return torch.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., 1::2] * c + x[..., ::2] * s], -1).flatten(-2)


# Each of two sizes, and how many kernels it takes.
PROGRAMS = {
    "channels last to first": (lambda x: x.permute(0, 3, 1, 2).contiguous() * 2, lambda n, m: [R(2, n, m, 3)], 1),
    "bytes to numbers": (
        lambda x: (x.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.2,
        lambda n, m: [images(n, m, torch.uint8).permute(0, 2, 3, 1).contiguous()], 1),
    "channels first to last": (lambda x: x.permute(0, 2, 3, 1).contiguous() + 1, images, 1),
    "numbers to bytes": (lambda x: (x.permute(0, 2, 3, 1).contiguous() / 2).to(torch.uint8), images, 1),
    "gray": (lambda x, w: (x * w).sum(-1), lambda n, m: [R(n, m, 3), R(3)], 1),
    "unit vectors": (lambda x: x / x.norm(dim=-1, keepdim=True), lambda n, m: [R(n, m, 3)], 1),
    "unit vectors along channels": (lambda x: F.normalize(x, dim=1), lambda n, m: [R(2, 3, n, m)], 1),
    "softmax of two": (lambda x: x.softmax(-1), lambda n, m: [R(n, m, 2)], 1),
    "softmax of channels": (lambda x: x.softmax(1), lambda n, m: [R(2, 4, n, m)], 1),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda n, m: [R(n, m, 3)], 1),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda n, m: [R(n, m, 3)], 1),
    "deviation": (lambda x: x.std(-1), lambda n, m: [R(n, m, 4)], 1),
    "extremes": (lambda x: x.amax(-1) - x.amin(-1), lambda n, m: [R(n, m, 4)], 1),
    "truth": (lambda x: (x > 0).any(-1) & (x < 1).all(-1), lambda n, m: [R(n, m, 3)], 1),
    "whole numbers": (lambda x: x * 3 + x.sum(-1, keepdim=True), lambda n, m: [torch.randint(-9, 9, (n, m, 3))], 1),
    "16 bits": (lambda x: x.square().sum(-1, keepdim=True) * x, lambda n, m: [R(n, m, 3).bfloat16()], 1),
    "64 bits": (lambda x: x / x.sum(-1, keepdim=True), lambda n, m: [torch.rand(n, m, 3).double()], 1),
    "boxes": (from_corners, lambda n, m: [torch.rand(n * m, 4)], None),
    "overlap": (overlap, lambda n, m: [torch.rand(n, 4), torch.rand(m, 4)], 1),
    "pairs": (turned_pairs, lambda n, m: [R(n, m, 2, 32), R(16), R(16)], None),
    "distances": (lambda p: (p[:, None] - p[None]).square().sum(-1).sqrt(), lambda n, m: [R(n + m, 3)], 1),
    "points along rays": (lambda o, d, z: o[:, None] + d[:, None] * z[:, None],
                          lambda n, m: [R(n, 3), R(n, 3), R(m)], 1),
    "reversed": (lambda x: x.flip(-1) * 2, lambda n, m: [R(n, m, 3)], 1),
    "spread": (lambda x: x[..., None].expand(-1, -1, 3) + torch.arange(3), lambda n, m: [R(n, m)], 1),
    "mean of squares of four": (lambda x: x.unflatten(-1, (-1, 2)).unflatten(0, (-1, 2)).mean((1, 3)),
                                lambda n, m: [R(2 * n, 2 * m)], 1),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2) * 2, lambda n, m: [R(2, 8, n, m)], 1),
    "pixel unshuffle": (lambda x: F.pixel_unshuffle(x, 3) * 2, lambda n, m: [R(1, 2, 3 * n, 3 * m)], 1),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2) + 1, lambda n, m: [R(1, 3, n, m)], 1),
    "repeated": (lambda x: x.repeat_interleave(3, -1) * 2, lambda n, m: [R(n, m)], 1),
    "turned by a matrix each": (lambda m, x: (m @ x[..., None])[..., 0] + 1,
                                lambda n, m: [R(n * m, 3, 3), R(n * m, 3)], 1),
    "cross product": (lambda a, b: torch.linalg.cross(a, b) * 2, lambda n, m: [R(n, m, 3), R(1, m, 3)], None),
    "cross product of columns": (lambda a, b: torch.cross(a, b, dim=0), lambda n, m: [R(3, n, m), R(3, n, m)], None),
    "turned by one matrix": (lambda m, x: x @ m.t() + 1, lambda n, m: [R(3, 3), R(n * m, 3)], 1),
    "batch of small matrices": (lambda a, b: torch.bmm(a, b) * 2, lambda n, m: [R(n * m, 2, 4), R(n * m, 4, 5)], 1),
    "linear of coordinates": (lambda x, w, b: F.relu(F.linear(x, w, b)), lambda n, m: [R(n, m, 3), R(40, 3), R(40)], 1),
    "outer product": (lambda a, b: a[:, None] @ b[None], lambda n, m: [R(n), R(m)], 1),
    "added to": (lambda a, x, y: torch.addmm(a, x, y, beta=0.5, alpha=2), lambda n, m: [R(m), R(n, 4), R(4, m)], 1),
    "a loss": (lambda a, b: F.mse_loss(F.normalize(a, dim=-1), b), lambda n, m: [R(n, m, 3), R(n, m, 3)], None),
}


def _arguments(name, n, m):
    made = PROGRAMS[name][1](n, m)
    return made if isinstance(made, list) else [made]


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, simd):
    fn, _, kernels = PROGRAMS[name]
    with config.patch(cpp_simd=simd), torch.no_grad():
        for n, m in thorough.share([(5, 37), (33, 8), (3, 130)], list(PROGRAMS).index(name)):
            torch.manual_seed(0)
            args = _arguments(name, n, m)
            dynamo_lite.reset_metrics()
            got, want = dynamo_lite.compile(fn, dynamic=False)(*args), fn(*args)
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want)
            assert kernels is None or dynamo_lite.metrics()["kernels"] == kernels


@pytest.mark.parametrize("name", thorough.share(list(PROGRAMS), 0))
def test_one_graph_for_all_sizes(name):
    fn = PROGRAMS[name][0]
    compiled = dynamo_lite.compile(fn, dynamic=True)
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        for n, m in ((5, 37), (33, 8), (3, 130)):
            args = _arguments(name, n, m)
            torch.testing.assert_close(compiled(*args), fn(*args))
    assert dynamo_lite.metrics()["graphs"] == 1


@pytest.mark.parametrize("name", ["unit vectors", "softmax of two", "distances", "turned by a matrix each", "a loss",
                                  "linear of coordinates", "pixel shuffle", "boxes", "unit vectors along channels"])
def test_gradients(name):
    fn = PROGRAMS[name][0]
    args = [a.requires_grad_() for a in _arguments(name, 5, 37)]
    if name == "distances":  # of a point from itself it has none
        args, fn = [args[0]], lambda p: (p[:, None] - p[None] * 2).square().sum(-1).sqrt()
    want = torch.autograd.grad(fn(*args).square().sum(), args)
    got = torch.autograd.grad(dynamo_lite.compile(fn)(*args).square().sum(), args)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_vectors_are_stored_side_by_side():
    x = R(100, 3)
    compiled = dynamo_lite.compile(lambda x: x / x.norm(dim=-1, keepdim=True))
    compiled(x)
    text = str(dynamo_lite.generated_code(compiled))
    body = text[text.rindex("KERNEL"):]
    assert body.count("load_every<L, 3>") == 3 and body.count("store_side_by_side") == 1
    assert "load_lanes" not in body and "store_lanes" not in body


SPECIAL = torch.tensor([0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"), 1e38])


@pytest.mark.parametrize("fn", [
    lambda x: x.sum(-1), lambda x: x.prod(-1), lambda x: x.amax(-1), lambda x: x.amin(-1), lambda x: x.mean(-1),
    lambda x: x.softmax(-1), lambda x: x.logsumexp(-1), lambda x: x.norm(dim=-1), lambda x: x.any(-1),
    lambda x: x.all(-1),
], ids=["sum", "prod", "amax", "amin", "mean", "softmax", "logsumexp", "norm", "any", "all"])
def test_special_values(fn, request):
    x = torch.cartesian_prod(SPECIAL, SPECIAL, SPECIAL)
    got, want = dynamo_lite.compile(fn)(x), fn(x)
    torch.testing.assert_close(got, want, equal_nan=True)
    if got.is_floating_point() and "am" not in str(request.node.name):  # which of two zeros an extreme is nobody says
        nothing = want == 0
        assert torch.equal(got[nothing].signbit(), want[nothing].signbit())


def test_nothing_and_infinity_in_products():
    fn = lambda x, y: x @ y
    for x, y in ((R(0, 3), R(3, 5)), (R(5, 3), R(3, 0)), (R(5, 0), R(0, 4)), (R(5, 1), R(1, 4))):
        torch.testing.assert_close(dynamo_lite.compile(fn)(x, y), fn(x, y))
    x, y = torch.cartesian_prod(SPECIAL, SPECIAL), torch.cartesian_prod(SPECIAL, SPECIAL).t().contiguous()
    got, want = dynamo_lite.compile(fn)(x, y), fn(x, y)
    torch.testing.assert_close(got, want, equal_nan=True)


def _kernel(ops, statement, short):
    rows, v, u = ix.var("x0", 5), ix.var("x1", 20), ix.var("x2", short)
    index = ix.add(ix.add(ix.mul(rows, 20 * short), ix.mul(v, short)), u)
    (a,), (b,), (c,) = (tuple(ix.free_vars(x)) for x in (rows, v, u))
    x = Buffer("x", (5, 20, short), (20 * short, short, 1), torch.float32)
    y = Buffer("y", x.size, x.stride, torch.float32)
    value = ops.op("mul", ops.load("x", index, torch.float32), ops.const(2, torch.float32))
    inner = (c, b) if statement is Accumulate else (b,)
    outer = (a,) if statement is Accumulate else (a, c)
    made = Accumulate("acc", "sum", value) if statement is Accumulate else Store("y", index, value)
    return Kernel(outer, [Stage(inner, [made])], False, {"x": x, "y": y}, ("y",), {}, ())


@pytest.mark.parametrize("short", [2, 3, 4])
def test_loops_that_are_written_out(short):
    ops = Builder()
    kernel = _kernel(ops, Store, short)
    assert write_out_short_loops(ops, kernel)
    assert [v.name for v in kernel.outer] == ["x0"] and [v.name for v in kernel.inner] == ["x1"]
    assert len(kernel.statements()) == short
    summed = _kernel(ops, Accumulate, short)
    assert write_out_short_loops(ops, summed)
    assert [v.name for v in summed.inner] == ["x1"] and len(summed.statements()) == 1


def test_loops_that_are_not_written_out():
    ops = Builder()
    assert not write_out_short_loops(ops, _kernel(ops, Store, 5))
    # What its iterations touch lies far apart, and they have little in common.
    u, v = ix.var("x0", 3), ix.var("x1", 1000)
    index = ix.add(ix.mul(u, 1000), v)
    (a,), (b,) = ix.free_vars(u), ix.free_vars(v)
    x = Buffer("x", (3, 1000), (1000, 1), torch.float32)
    value = ops.op("add", ops.load("x", index, torch.float32), ops.load("z", v, torch.float32))
    kernel = Kernel((a,), [Stage((b,), [Store("x", index, value)])], False, {"x": x, "z": x}, ("x",), {}, ())
    assert not write_out_short_loops(ops, kernel)
    # A function of what they share is worth it.
    value = ops.op("mul", value, ops.op("exp", ops.load("z", v, torch.float32)))
    kernel.stages[0].statements = [Store("x", index, value)]
    assert write_out_short_loops(ops, kernel) and not kernel.outer


def test_kernels_that_differ_in_how_far_elements_are_apart():
    """They are one function but for their numbers, and this one is part of a function's name."""
    args = [R(70, k) for k in (2, 3, 4, 5)]
    fn = lambda *several: [x[:, 0].exp() for x in several]
    for got, want in zip(dynamo_lite.compile(fn)(*args), fn(*args)):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("make", [lambda a, b: torch.stack([a.exp() * b, a.tanh() - b], -1),
                                  lambda a, b: torch.cat([a.exp() * b, a.tanh() - b], -1)])
def test_parts_are_computed_where_they_are_joined(make, in_cpp):
    """Each element of a part is computed once, by the loop that stores it."""
    a, b = R(7, 80), R(7, 80)
    dynamo_lite.reset_metrics()
    torch.testing.assert_close(dynamo_lite.compile(make)(a, b), make(a, b))
    assert dynamo_lite.metrics()["kernels"] == 1
