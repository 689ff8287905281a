"""Norms of images whose channels lie innermost in memory: batch norm and group norm in training and evaluation, forward
and backward; moments about the mean of a sample; threads that share out rows; what is the same in all rows."""
import copy

import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.inductor.ir.loops import Buffer
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.lowering import memory_order
from dynamo_lite.backends.inductor.lowering.values import TensorValue, shape_vars
from dynamo_lite.backends.inductor.target_info import LINE, current

CLOSE = {torch.float32: (1e-4, 2e-5), torch.float64: (1e-10, 1e-10), torch.bfloat16: (2e-2, 2e-2),
         torch.float16: (4e-3, 4e-3)}
# Images, channels, rows of pixels: some larger than a first cache has lines, some not.
SHAPES = [(2, 24, 40, 33), (4, 96, 31, 29), (3, 16, 5, 7), (1, 130, 24, 24)]


def last(x):
    return x.to(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[x.ndim])


def results(norm, x, grad, steps=2, compiles=(False, True)):
    """What training steps and an evaluation of a module give and leave behind, in eager and compiled."""
    norm = copy.deepcopy(norm)
    out = []
    for compiled in compiles:
        fn, module = dynamo_lite.compile(norm) if compiled else norm, norm
        module.zero_grad()
        fresh = copy.deepcopy({k: v.clone() for k, v in module.state_dict().items()})
        found = []
        for _ in range(steps):
            leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
            y = fn(leaf)
            y.backward(grad)
            found += [y.detach(), leaf.grad]
        found += [p.grad.clone() for p in module.parameters()] + [b.clone() for b in module.buffers()]
        module.load_state_dict(fresh)
        out.append(found)
    return out


def compare(found, tolerance, exact=None):
    """``exact``: the same in float64, where eager's own sums may be further away from it than ours."""
    rtol, atol = tolerance
    for at, (want, got) in enumerate(zip(*found, strict=True)):
        assert want.dtype == got.dtype and want.stride() == got.stride()
        if want.is_floating_point():
            scale = max(want.double().std(correction=0).item() if want.numel() > 1 else 0.0, 1.0)
            if exact is not None and (got - exact[at]).abs().max() < (want - exact[at]).abs().max():
                want = exact[at].to(want.dtype)
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol * scale)
        else:
            assert torch.equal(want, got)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["last", "planes"])
@pytest.mark.by_turns(4)
def test_batch_norm_in_training(dtype, shape, layout):
    """Kernels alone; parameters of 16-bit images are of their dtype, or of 32 bits."""
    torch.manual_seed(0)
    place = last if layout == "last" else torch.Tensor.contiguous
    x, grad = (place((torch.randn(shape) * 3 + 2).to(dtype)) for _ in range(2))
    kinds = [torch.nn.BatchNorm2d(shape[1]), torch.nn.BatchNorm2d(shape[1], affine=False),
             torch.nn.BatchNorm2d(shape[1], track_running_stats=False)]
    ways = [(norm, wide) for wide in ((True, False) if dtype.itemsize == 2 else (False,)) for norm in kinds]
    for norm, wide in thorough.share(ways, SHAPES.index(shape)):
        with torch.no_grad():
            for p in norm.parameters():
                p.normal_()
        dynamo_lite.reset()
        dynamo_lite.reset_metrics()
        compare(results(norm if wide else norm.to(dtype), x, grad), CLOSE[dtype])
        assert not dynamo_lite.metrics()["library_calls"]


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.by_turns(4)
def test_group_norm(dtype, shape):
    torch.manual_seed(0)
    channels = shape[1]
    x, grad = (last((torch.randn(shape) * 3 + 2).to(dtype)) for _ in range(2))
    divisors = [groups for groups in (1, 2, channels // 4, channels) if channels % groups == 0]
    for groups in thorough.share(divisors, dtype.itemsize // 2):
        for affine in (True, False) if groups == 2 else (True,):
            norm = torch.nn.GroupNorm(groups, channels, affine=affine)
            with torch.no_grad():
                for p in norm.parameters():
                    p.normal_()
            dynamo_lite.reset()
            dynamo_lite.reset_metrics()
            (exact,) = results(norm.double(), x.double(), grad.double(), 1, (False,))
            compare(results(norm.to(dtype), x, grad, 1), CLOSE[dtype], exact if dtype is torch.float32 else None)
            if affine:
                assert not dynamo_lite.metrics()["library_calls"]


def test_gradients_of_group_norm_for_some_inputs():
    torch.manual_seed(0)
    x, w, b, grad = last(torch.randn(2, 12, 20, 20)), torch.randn(12), torch.randn(12), torch.randn(2, 12, 20, 20)
    compiled = dynamo_lite.compile(lambda x, w, b: F.group_norm(x, 3, w, b))
    for wanted in ((0,), (1,), (2,), (0, 2), (1, 2)):
        found = []
        for fn in (lambda x, w, b: F.group_norm(x, 3, w, b), compiled):
            leaves = [t.clone().requires_grad_(at in wanted) for at, t in enumerate((x, w, b))]
            if fn is not compiled and 0 not in wanted:  # torch 2.13 writes to a gradient that nobody asks for, and dies
                leaves[0] = leaves[0].contiguous()
            fn(*leaves).backward(grad)
            found.append([leaves[at].grad for at in wanted])
        compare(found, CLOSE[torch.float32])


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3), (0, 0)])
def test_no_elements(build, shape):
    x = torch.randn(shape)
    for dim in range(len(shape)):
        for made, want in zip(build(lambda x: (x.sum(dim), x.sum(), x.t() if x.dim() == 2 else x.mT), [x]).call(x),
                              (x.sum(dim), x.sum(), x.t() if x.dim() == 2 else x.mT), strict=True):
            assert torch.equal(made, want) and made.stride() == want.stride()


def test_symbolic_sizes():
    """One graph for images of all sizes, and one for each dimension of size 1."""
    torch.manual_seed(0)
    batch, group = torch.nn.BatchNorm2d(20, momentum=0.3), torch.nn.GroupNorm(5, 20)

    def fn(x):
        return batch(x), group(x)

    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(fn, dynamic=True)
    for n, height, width in ((2, 40, 41), (1, 3, 50), (17, 9, 2), (5, 33, 35), (2, 1, 2)):
        x = last(torch.randn(n, 20, height, width))
        before = {k: v.clone() for k, v in batch.state_dict().items()}
        with torch.no_grad():
            want = [*fn(x), *(b.clone() for b in batch.buffers())]
            batch.load_state_dict(before)
            got = [*compiled(x), *(b.clone() for b in batch.buffers())]
        compare((want, got), CLOSE[torch.float32])
    assert dynamo_lite.metrics()["graphs"] == 3


# ---------------------------------------------------------------- moments about the mean of a sample
def columns(x):
    return torch.var_mean(x, (0, 2, 3))


def runs(x):
    return torch.var_mean(x.view(x.shape[0], 4, x.shape[1] // 4, -1), (2, 3))


@pytest.mark.parametrize("fn", [columns, runs])
def test_a_sample_may_be_unlike_the_rest(build, fn):
    """What lies first is a thousand deviations of the rest from their mean: the error stays within its bound."""
    torch.manual_seed(0)
    far = last(torch.randn(3, 16, 64, 64))
    far[:, :, :4] += 1000.0
    first = last(torch.randn(3, 16, 64, 64))
    first[0, :, 0, 0] = 1e6
    level = last(torch.randn(3, 16, 64, 64) * 1e-2 + 3e3)
    same = last(torch.full((3, 16, 64, 64), 0.1))
    made = build(fn, [far])
    for x in (far, first, level, same):
        wanted = [t.float() for t in fn(x.double())]
        # Eager's own error where numbers are large beside what they differ by.
        for got, want, eager in zip(made.call(x), wanted, fn(x), strict=True):
            slack = 2 * (eager - want).abs().max().item() + 1e-6
            torch.testing.assert_close(got, want, rtol=3e-5, atol=slack)


@pytest.mark.parametrize("fn", [columns, runs])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("row", [0, 50])
def test_infinities_within_and_beyond_the_sample(build, fn, value, row):
    torch.manual_seed(0)
    x = last(torch.randn(2, 16, 64, 64))
    x[1, 3, row, 5] = value
    for both in (False, True):
        if both:
            x[1, 3, 60, 7] = -value
        got, want = build(fn, [x]).call(x), fn(x)
        for g, w in zip(got, want, strict=True):
            finite = w.isfinite()
            assert torch.equal(finite, g.isfinite())
            torch.testing.assert_close(g[finite], w[finite], rtol=1e-4, atol=1e-5)
        assert got[0].isnan().sum() == want[0].isnan().sum()  # the mean's sign of infinity is eager's where it is one
        where = want[1].isinf() & got[1].isinf()
        assert torch.equal(got[1][where], want[1][where])


def test_what_is_sampled():
    """Columns and short runs that are longer than the first cache: along rows all is read."""
    near, sample = current().processor.l1.size, memory_order.SAMPLE
    rows = near // LINE

    def tensor(shape, stride):
        builder, buffer = Builder(), Buffer("x", shape, stride, torch.float32)
        node = builder.load("x", buffer.load_index(shape_vars(shape)), torch.float32)
        return builder, TensorValue(shape, torch.float32, node)

    builder, long = tensor((2 * rows, 8), (8, 1))
    part = memory_order.sampled(builder, long, (0,), near)
    assert part is not None and part.shape == (-(-2 * rows // sample), 8)
    assert memory_order.sampled(builder, long, (1,), near) is None
    builder, short = tensor((rows // 2, 8), (8, 1))
    assert memory_order.sampled(builder, short, (0,), near) is None
    # Images, groups, channels of a group, pixels.
    builder, grouped = tensor((3, 4, 8, 4 * rows), (128 * rows, 8, 1, 32))
    assert memory_order.short_run(grouped, (2, 3), near) == 2
    part = memory_order.sampled(builder, grouped, (2, 3), near)
    assert part is not None and part.shape == (3, 4, 8, 4 * rows // sample)
    # All channels are one group, and rows of planes.
    builder, whole = tensor((3, 1, 32, 4 * rows), (128 * rows, 0, 1, 32))
    assert memory_order.short_run(whole, (2, 3), near) is None
    builder, planes = tensor((3, 4, 8, 4 * rows), (128 * rows, 32 * rows, 4 * rows, 1))
    assert memory_order.short_run(planes, (2, 3), near) is None and not memory_order.down_columns(planes, (2, 3), near)


# ---------------------------------------------------------------- generated code
def test_threads_share_out_rows_of_few_columns(build, in_cpp):
    for shape, shared in (((20_000, 64), True), ((20, 64), False), ((2000, 4096), False)):
        source = build(lambda x: x.sum(0), [torch.randn(shape)]).program.source
        assert ("join_columns<" in source.split("KERNEL kernel0")[1]) == shared


@pytest.mark.parametrize("fn", [columns, runs])
def test_the_first_pass_reads_a_sample(build, in_cpp, fn):
    """A kernel over 4 of 64 lines, or 256 of 4096 pixels, before the one over all."""
    first, *_, last_ = build(fn, [last(torch.randn(3, 16, 64, 64))]).program.source.split("KERNEL kernel")[1:]
    rows = {columns: ("768", "12288"), runs: ("256", "4096")}[fn]
    assert rows[0] in first and rows[1] not in first


@pytest.mark.parametrize("shape", [(40_000, 8), (3001, 100), (9000, 33), (5, 7000, 16), (70_000, 1), (100, 30, 40, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.by_turns(4)
def test_sums_of_few_columns(check_many, shape, dtype):
    """And their bits, whatever number of threads there is."""
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    every = tuple(range(len(shape) - 1))
    cases = [("sum", lambda x: x.sum(every), [x]),
             ("two", lambda x: ((x * 2).sum(every), x.square().sum(every) + 1), [x]),
             ("in between", lambda x: x.sum(every[:-1]) if len(every) > 1 else x.mean(0), [x])]
    check_many(cases, tolerance={torch.float32: (1e-5, 1e-3), torch.float64: (1e-12, 1e-9),
                                 torch.bfloat16: (2e-2, 0.5)})
    compiled = dynamo_lite.compile(lambda x: x.float().sum(every))
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(compiled(x))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_what_is_the_same_in_all_rows_is_computed_once(build, in_cpp):
    def scaled(x, v, w):
        return x * (w / (v + 1e-5).sqrt()) + (w - v).exp()

    x, v, w = torch.randn(500, 70), torch.rand(70), torch.randn(70)
    made = build(scaled, [x, v, w])
    kernel = made.program.source.split("KERNEL kernel0")[1]
    assert kernel.count("sqrt_") == 1 and kernel.index("sqrt_") < kernel.index("for (i64 x0")
    torch.testing.assert_close(made.call(x, v, w)[0], scaled(x, v, w))
    # A cheap value is computed where it is needed; so is one for few rows, and one that depends on the row.
    for fn, args in ((lambda x, v, w: x * (v + w), [x, v, w]), (scaled, [x[:4], v, w]),
                     (lambda x, v, w: x * (x.sum(1, keepdim=True) + v).sqrt(), [x, v, w])):
        assert "table1[" not in build(fn, args).program.source.split("KERNEL kernel0")[1]


@pytest.mark.parametrize("shape", [(9, 5), (300, 17), (40, 2047), (40, 2100), (3, 50, 33)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.by_turns(4)
def test_values_from_tables(check_many, shape, dtype):
    torch.manual_seed(0)
    x, w = torch.randn(shape).to(dtype), torch.rand(shape[-1]).to(dtype)
    check_many([
        ("one", lambda x, w: x * (w + 1).rsqrt().sin(), [x, w]),
        ("two, one of them twice", lambda x, w: (x * w.exp() + w.exp(), x.sum(-1) + 1, x - w.sqrt().sqrt()), [x, w]),
        ("stored as it is", lambda x, w: ((w.exp().sin()).expand(x.shape) + 0, x * w), [x, w]),
        ("written in place", lambda x, w: x.clone().mul_((w + 1).log().sqrt()), [x, w]),
        ("behind a sum", lambda x, w: (x - x.mean(-1, keepdim=True)) * (w.exp() / (w + 1).sqrt()), [x, w]),
    ], tolerance={torch.float32: (1e-5, 1e-5), torch.float64: (1e-12, 1e-12), torch.bfloat16: (2e-2, 2e-2)})
