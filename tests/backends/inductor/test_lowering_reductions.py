"""Reductions, softmax and normalization against eager and float64."""

import pytest
import torch
import torch.nn.functional as F

from dynamo_lite.backends.inductor import target_info

pytestmark = pytest.mark.by_turns(3)

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LOOSE = {
    torch.float32: (1e-5, 5e-6),
    torch.float64: (1e-12, 1e-12),
    torch.bfloat16: (1e-2, 1e-3),
    torch.float16: (2e-3, 2e-3),
}

REDUCTIONS = {
    "sum": lambda x: x.sum(),
    "sum -1": lambda x: x.sum(-1),
    "sum 0": lambda x: x.sum(0),
    "sum 1": lambda x: x.sum(1, keepdim=True),
    "sum 0 2": lambda x: x.sum((0, 2)),
    "mean": lambda x: x.mean(),
    "mean -1": lambda x: x.mean(-1, keepdim=True),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin((0, 1)),
    "max": lambda x: x.max(),
    "max -1": lambda x: tuple(x.max(-1)),
    "min 0": lambda x: tuple(x.min(0)),
    "argmax -1": lambda x: x.argmax(-1),
    "argmax 0": lambda x: x.argmax(0),
    "argmax": lambda x: x.argmax(),
    "argmin 1": lambda x: x.argmin(1, keepdim=True),
    "var": lambda x: x.var(-1),
    "var 0": lambda x: x.var(0, correction=0),
    "std": lambda x: x.std((0, 2), keepdim=True),
    "var_mean": lambda x: torch.var_mean(x, (1, 2)),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, -1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "softmax 1": lambda x: x.softmax(1),
    "softmax 0": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer_norm 2": lambda x: F.layer_norm(x, x.shape[1:], eps=1e-3),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "around": lambda x: (x * 2 + 1).sum(1) + 3,
    "nested": lambda x: (x - x.mean(0)).sum(-1),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "aminmax": lambda x: torch.aminmax(x),
    "count": lambda x: (x > 0).sum(-1),
    "any": lambda x: (x > 8).any(1),
    "all": lambda x: (x > -8).all(),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 5, 67), (3, 33, 16), (2, 3, 5), (1, 7, 1)])
def test_reductions(dtype, shape, check_many, data):
    x = data.random(*shape, dtype=dtype)
    # Eager rounds log_softmax of 16-bit floats otherwise.
    fns = {n: f for n, f in REDUCTIONS.items() if dtype.itemsize > 2 or n != "log_softmax"}
    check_many([(n, f, [x]) for n, f in fns.items()], LOOSE, interpreted=dtype is torch.float32)


def test_group_norm_and_prod(check_many, data):
    check_many(
        [
            ("group_norm", lambda x: F.group_norm(x, 4), [data.random(3, 8, 5, 5)]),
            (
                "group_norm affine",
                lambda x, w, b: F.group_norm(x, 2, w, b),
                [data.random(3, 8, 5, 5), data.random(8), data.random(8)],
            ),
            ("prod", lambda x: (x * 0.1 + 1).prod(-1), [data.random(4, 67)]),
            ("mse", lambda x, y: F.mse_loss(x, y), [data.random(4, 67), data.random(67, 4).t()]),
        ],
        LOOSE,
    )


@pytest.mark.parametrize("channels", [8, 13, 32, 70])
def test_long_sums_of_short_rows(channels, check_many, data, build, in_cpp):
    """A loop of fewer vectors than an accumulator has copies: neighbouring rows have one each, and as many additions
    follow one another as elsewhere."""
    x = data.random(2, 2 * channels, 37, 41).to(memory_format=torch.channels_last)
    groups = lambda x: F.group_norm(x, 2)
    extremes = lambda x: x.view(2, 2, -1, 37, 41).amax((2, 3, 4))
    check_many([("group_norm", groups, [x]), ("amax", extremes, [x])], LOOSE)
    large = (x + 1000).contiguous(memory_format=torch.channels_last)
    sums = lambda x: x.view(2, 2, -1, 37, 41).sum((2, 3, 4))
    error = (build(sums, [large]).call(large)[0].double() - sums(large.double())).abs().max()
    assert error <= 2 * (sums(large).double() - sums(large.double())).abs().max() + 1e-3
    assert ("for_lanes4<1>" in build(groups, [x]).program.source.split("KERNEL", 1)[-1]) == (
        target_info.current().lanes // 2 < channels < 4 * target_info.current().lanes)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_reductions_of_integers(dtype, check_many, data):
    names = ["sum", "sum -1", "sum 0", "amax", "amin", "max", "max -1"] + (
        ["argmax -1", "argmax 0"] if dtype is not torch.bool else []
    )
    check_many([(n, REDUCTIONS[n], [data.random(4, 5, 67, dtype=dtype)]) for n in names])
    check_many(
        [
            ("any", lambda x: x.any(1), [data.random(4, 67, dtype=dtype)]),
            ("all", lambda x: x.all(), [data.random(4, 67, dtype=dtype)]),
        ]
    )


def test_nan_and_inf(check_many, data):
    x = data.random(6, 40)
    x[1, 3] = x[5, 0] = x[5, 2] = torch.nan
    x[2, 5] = x[5, 1] = torch.inf
    x[3, 6] = -torch.inf
    x[4] = -torch.inf
    names = ["sum -1", "max -1", "min 0", "argmax -1", "argmax 0", "softmax", "log_softmax", "logsumexp", "max", "norm"]
    check_many([(n, REDUCTIONS[n], [x]) for n in names] + [("amax", lambda x: x.amax(1), [x])], LOOSE)


def test_ties_go_to_the_first(check_many):
    x = torch.zeros(7, 100)
    x[2, 50] = x[2, 70] = 1
    x[3] = -torch.inf
    check_many(
        [
            ("last", lambda x: x.argmax(-1), [x]),
            ("first", lambda x: x.argmax(0), [x]),
            ("all", lambda x: x.argmax(), [x]),
            ("min", lambda x: x.argmin(-1), [x]),
        ]
    )


@pytest.mark.parametrize("shape", [(1000, 1000), (3, 100000), (200000, 3), (17, 4096)])
def test_sums_are_as_accurate_as_eagers(shape, build):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    fns = [lambda x: x.sum(), lambda x: x.sum(-1), lambda x: x.sum(0), lambda x: x.mean(0), lambda x: (x * x).sum()]
    built = build(lambda x: tuple(f(x) for f in fns), [x])
    for got, fn in zip(built.call(x), fns):
        want = fn(x.double())
        scale = fn(x.double().abs()).max()
        # Absolute error against the sum of magnitudes: 4 roundings or what eager has.
        error, eagers = (got - want).abs().max() / scale, (fn(x) - want).abs().max() / scale
        assert error <= max(2 * eagers, 2.5e-7)


def test_variance_of_large_numbers(build):
    x = torch.randn(8, 1000, generator=torch.Generator().manual_seed(0)) + 1e4
    got = build(lambda x: x.var(-1), [x]).call(x)[0]
    torch.testing.assert_close(got, x.double().var(-1).float(), rtol=1e-5, atol=0)


def test_gradients_of_normalizations(check_many, data):
    def layer_norm(d, x, w, b):
        mean, rstd = aten.native_layer_norm(x, [64], w, b, 1e-5)[1:]
        return aten.native_layer_norm_backward(d, x, [64], mean, rstd, w, b, [True, True, True])

    check_many(
        [
            (
                "layer_norm",
                layer_norm,
                [data.random(32, 64), data.random(64, 32).t(), data.random(64), data.random(64)],
            ),
            (
                "softmax",
                lambda d, o: aten._softmax_backward_data(d, o, -1, torch.float32),
                [data.random(5, 70), data.random(70, 5).t()],
            ),
            (
                "log_softmax",
                lambda d, o: aten._log_softmax_backward_data(d, o, 1, torch.float32),
                [data.random(5, 70), -data.random(70, 5).t().abs()],
            ),
        ],
        {torch.float32: (1e-4, 1e-4)},
    )


def test_sums_over_a_short_loop_inside_of_a_long_one(check_many, build, in_cpp):
    """The cascade takes what 64 turns of the long loop have added, 16 in each copy of the accumulator."""
    cases = [(f"{shape} {n}", lambda x, n=n: (x[:, :, :n].sum((1, 2)), x[:, :, :n].square().mean((1, 2))),
              [torch.rand(shape)]) for shape in ((3, 700, 40), (2, 33, 9), (1, 5, 300)) for n in (3, 8, 12)]
    check_many(cases, LOOSE)
    source = build(lambda x: x[:, :, :8].sum((1, 2)), [torch.randn(3, 700, 40)]).program.source.split("KERNEL")[-1]
    assert "chunk += 64" in source
