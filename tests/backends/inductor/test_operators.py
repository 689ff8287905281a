"""Operators through ``compile``: cases that were wrong once, special values, layouts, random programs."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite


def check(fn, *args, exact=True, rtol=1e-5, atol=1e-6):
    """The compiled function's results are eager's in value, dtype and layout. Returns what was compiled."""
    dynamo_lite.reset()
    want = fn(*args)
    compiled = dynamo_lite.compile(fn)
    got = compiled(*args)
    several = isinstance(want, (tuple, list))
    for a, b in zip(got if several else [got], want if several else [want]):
        assert a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride(), (a.stride(), b.stride())
        torch.testing.assert_close(
            a, b, rtol=0 if exact else rtol, atol=0 if exact else atol, equal_nan=True)
        if exact and a.is_floating_point():
            known = ~a.isnan()
            assert torch.equal(torch.signbit(a[known]), torch.signbit(b[known]))
    return compiled


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.float32, torch.bfloat16])
def test_hardtanh_keeps_the_dtype(dtype):
    check(lambda x: F.hardtanh(x, -2.5, 3.5), torch.arange(-9, 9).to(dtype))


@pytest.mark.parametrize("shape", [(1, 1, 0, 4), (2, 0, 4, 4), (1, 1, 4, 0), (0, 1, 1, 4, 4)])
@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_nothing_is_unshuffled_to_the_shape_it_has(shape, factor, transposed):
    x = torch.empty(shape)
    x = x.transpose(-1, -2) if transposed else x

    def fn(x):
        y = F.pixel_unshuffle(x, factor)
        return y, y * 2, torch.empty(y.shape), torch.empty(y.stride())

    dynamo_lite.reset()
    for got, want in zip(dynamo_lite.compile(fn)(x), fn(x)):
        assert got.shape == want.shape and got.stride() == want.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_division_of_16_bit_floats_rounds_step_by_step(dtype, mode):
    torch.manual_seed(0)
    x, y = (torch.randn(500) * 20).to(dtype), torch.randn(500).to(dtype)

    def fn(x, y):
        return [torch.div(x, d, rounding_mode=mode) for d in (y, y[0], 0.3, 3)]

    check(fn, x, y)


def test_add_of_bools_with_alpha():
    x, y = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    check(lambda x, y: (torch.add(x, y, alpha=False), torch.add(x, y), torch.add(x, y, alpha=True)), x, y)


@pytest.mark.parametrize("fn", [
    lambda x: x.flip(0), lambda x: x.diff(n=0), lambda x: torch.zeros_like(x), lambda x: x.neg().flip(0),
    lambda x: torch.slice_scatter(x, x[:1], 0, 0, 1), lambda x: x.contiguous(), lambda x: x.clone() + 1 - 1,
])
@pytest.mark.parametrize("x", [
    torch.ones(5, 0, 20)[:, :, ::2], torch.ones(4)[::2][:1], torch.ones(1, 3, 4), torch.ones(4, 6)[:, ::2],
    torch.ones(2, 1).expand(2, 4)], ids=["empty", "one", "batch of one", "gaps", "overlapping"])
def test_strides(fn, x):
    check(fn, x)


def test_strides_of_einsum_of_a_batch_of_one():
    check(lambda a, b: torch.einsum("aij,jk->aik", a, b), torch.randn(1, 3, 4), torch.randn(4, 4), exact=False)


@pytest.mark.parametrize("fn, shape", [
    (lambda out: torch.arange(1, 9, 2, out=out), (4,)), (lambda out: torch.linspace(0, 1, 5, out=out), (5,)),
    (lambda out: torch.matmul(torch.ones(1, 3), torch.ones(3, 5), out=out), (1, 5)),
    (lambda out: torch.matmul(torch.ones(3), torch.ones(3, 5), out=out), (5,)),
])
def test_out(fn, shape):
    want, got = torch.empty(shape), torch.empty(shape)
    fn(want)
    assert dynamo_lite.compile(fn)(got) is got
    assert torch.equal(got, want)


def test_strides_of_what_is_written_in_place():
    x = torch.ones(1, 1).as_strided((1, 1), (2, 2))
    check(lambda x, y: x.clone().addr_(y, y), x, torch.ones(1))


@pytest.mark.parametrize("fn", [
    lambda x, out: torch.msort(x, out=out), lambda x, out: F.logsigmoid(x),
    lambda x, out: torch.linalg.inv(x, out=out), lambda x, out: torch.polygamma(1, x, out=out)])
def test_out_of_operators_that_resize_memory_of_their_own(fn):
    torch.manual_seed(0)
    x = torch.rand(3, 3) + torch.eye(3)
    out, other = torch.empty(3, 3), torch.empty(3, 3)
    want = fn(x, out)
    got = dynamo_lite.compile(fn)(x, other)
    torch.testing.assert_close(got, want)
    assert not dynamo_lite.metrics()["fallbacks"]


SPECIAL = [float("nan"), float("inf"), -float("inf"), 3e9, -3e9, 1e19, -1e19, -1.5, 256.7, 65536.5, -129.2, 2.0**31,
           -(2.0**31) - 1, 9.3e18, 1e30, 127.9, 128.1, -0.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("copies", [1, 5])
def test_casts_out_of_range_do_what_this_processor_does(dtype, copies):
    x = torch.tensor(SPECIAL * copies).to(dtype)
    kinds = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool]
    check(lambda x: [x.to(d) for d in kinds], x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
def test_integer_division(dtype):
    info = torch.iinfo(dtype)
    x = torch.tensor([info.min, -7, 7, 5, -5, 0, info.max], dtype=dtype)
    y = torch.tensor([3, -3, 2, -2, 1, 7, -4], dtype=dtype)
    check(lambda x, y: (
        x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x // -3, x % -3, x // 4, x << 2,
        x >> 1, -x, x * x, x.abs(), torch.sign(x)), x, y)


def test_division_by_zero_of_integers_raises_as_in_eager():
    fn = dynamo_lite.compile(lambda x, y: x // y + 1)
    assert torch.equal(fn(torch.tensor([4, 6]), torch.tensor([2, 3])), torch.tensor([3, 3]))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fn(torch.tensor([4, 6]), torch.tensor([2, 0]))


@pytest.mark.parametrize("x", [
    torch.randn(5, 4, 3).permute(0, 2, 1), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    torch.randn(4, 4, 3, 2).permute(3, 2, 0, 1)], ids=["vectors", "channels last", "permuted"])
def test_layouts_of_results(x):
    mean, var = torch.zeros(3), torch.ones(3)

    def fn(x):
        return [
            F.batch_norm(x, mean, var), F.batch_norm(x, None, None, training=True), F.layer_norm(x, x.shape[-1:]),
            F.softmax(x, 1), F.group_norm(x, 1), F.gelu(x), x.masked_fill(x > 0, 1.0), torch.copysign(x, x[:1]), 2**x,
            x.cumsum(1), torch.where(x > 0, x, torch.zeros(())), F.pad(x, (1, 1)), torch.cat([x, x]), x.sum(1),
            x.amax(0, keepdim=True), x.double(), x.clamp(0, 1), torch.atan2(x, x[:1])]

    with torch.no_grad():
        check(fn, x, exact=False)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (4, 3)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("several", [False, True])
def test_gradients_of_margin_losses(shape, reduction, several):
    torch.manual_seed(0)
    n = shape[-1]
    labels = torch.stack([torch.randperm(n) for _ in range(shape[0] if len(shape) > 1 else 1)])
    y = labels.view(shape) if several else labels[:, 0] if len(shape) > 1 else labels[0, 0]
    x = torch.randn(tuple(reversed(shape))).permute(*reversed(range(len(shape))))

    def fn(x, y):
        if several:
            return F.multilabel_margin_loss(x * 2, y, reduction=reduction) + 1
        return F.multi_margin_loss(x * 2, y, p=1, margin=0.5, reduction=reduction) + 1

    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    grads = []
    for f in (fn, dynamo_lite.compile(fn)):
        leaf = x.clone().requires_grad_()
        f(leaf, y).sum().backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads) and grads[0].stride() == grads[1].stride()
    assert not dynamo_lite.metrics()["fallbacks"]
