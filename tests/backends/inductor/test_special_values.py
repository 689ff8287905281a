"""Zeros of both signs, infinities, NaN and denormals through elementwise operators and their gradients, in the elements
that eager computes in vectors and in those that it computes one by one; moments of numbers that differ little."""
import math

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

VALUES = [0.0, -0.0, math.nan, 1.0, -1.0, 0.5, -0.5, math.inf, -math.inf, 1e-40, -1e-40, 3.0, -3.0, 6.0, 20.0, 1e30,
          -1e30]
ONE = {
    **{name: getattr(torch, name) for name in (
        "exp", "log1p", "sqrt", "tanh", "asinh", "reciprocal", "rsqrt", "sigmoid", "floor", "round", "neg", "relu",
        "frac", "sign", "abs", "square", "nan_to_num", "sinc")},
    **{name: getattr(F, name) for name in (
        "relu6", "hardtanh", "softshrink", "hardshrink", "tanhshrink", "softsign", "softplus", "silu", "elu", "selu",
        "leaky_relu", "hardswish", "hardsigmoid", "logsigmoid")},
    "clamp": lambda x: x.clamp(-1, 1), "clamp at -0": lambda x: x.clamp(min=-0.0), "power": lambda x: x**3,
    "remainder": lambda x: x % -3.0, "floor_divide": lambda x: x // 2.5,
    "softshrink at 0": lambda x: F.softshrink(x, 0.0),
}
TWO = {
    **{name: getattr(torch, name) for name in (
        "maximum", "minimum", "fmax", "fmin", "add", "mul", "div", "atan2", "copysign", "fmod", "remainder",
        "clamp_min", "clamp_max", "xlogy")},
    "clamp": lambda x, y: x.clamp(y, y + 1), "where": lambda x, y: torch.where(x > y, x, y),
}


def operands(count, dtype):
    x = torch.tensor(VALUES).repeat(count // len(VALUES) + 1)[:count]
    y = torch.tensor(VALUES).repeat_interleave(len(VALUES)).repeat(count)[:count].flip(0)
    return x.to(dtype), y.to(dtype)


def assert_same(got, want, name):
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w, rtol=1e-5 if w.dtype is torch.float32 else 1e-2, atol=1e-37, equal_nan=True,
                                   msg=lambda text: f"{name}: {text}")
        zero = (g == 0) & (w == 0)
        assert torch.equal(torch.signbit(g[zero]), torch.signbit(w[zero])), f"{name}: signs of zeros"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [5, 17, 32, 300])
@pytest.mark.parametrize("table", [ONE, TWO], ids=["one operand", "two operands"])
def test_values(table, count, dtype, kernels):
    if kernels == "triton" and (dtype is torch.bfloat16 or table is TWO and count == 300):
        pytest.skip("the interpreter's bfloat16 has no denormals; eager's fmod of huge quotients is NaN in vectors")
    args = operands(count, dtype)[:1 if table is ONE else 2]
    table = {name: f for name, f in table.items() if dtype is torch.float32 or name not in ("fmax", "fmin")}
    functions = list(table.values())
    got = dynamo_lite.compile(lambda *args: [f(*args) for f in functions])(*args)
    for name, f, g in zip(table, functions, got):
        assert_same([g], [f(*args)], name)


BORDERS = [math.nan, 1.0, math.inf, -math.inf, -0.0, 1.5, -2.5, 200.7, -200.7, 70000.0, 3e9, -3e9, 1e19, -1e30]
CAST = {
    "cast": lambda x, d: x.to(d), "divided": lambda x, d: x.neg().to(d) / 1,
    "where": lambda x, d: torch.where(x < 2, x.to(d), 7), "of equals": lambda x, d: (x.bool() / x.bool()).to(d),
    "summed": lambda x, d: (x.bool() / x.bool()).to(d).cumsum(0, dtype=d),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 3, 45])
def test_integers_of_floats_and_floats_of_those(count, dtype, kernels):
    """To a compiler, an integer that becomes a float again may be that float's trunc, and one made of a NaN be 0."""
    if kernels == "triton":
        pytest.skip("what is beyond an integer's range is for each device to choose")
    whole = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

    def every(x):
        return [y.to(back) for f in CAST.values() for d in whole for y in [f(x, d)]
                for back in (torch.float32, torch.float64, torch.float16)]

    x = torch.tensor(BORDERS, dtype=torch.float64).repeat(4)[:count].to(dtype)
    for step, (g, w) in enumerate(zip(dynamo_lite.compile(every)(x), every(x))):
        assert_same([g], [w], f"{list(CAST)[step // 15]}, {whole[step // 3 % 5]}, {w.dtype}")


def gradients(f, args):
    args = [a.clone().requires_grad_() for a in args]
    f(*args).backward(torch.full(args[0].shape, 2.0, dtype=args[0].dtype))
    return [a.grad for a in args]


@pytest.mark.parametrize("count", [5, 37])
@pytest.mark.parametrize("name", [
    "relu6", "hardtanh", "softshrink", "hardshrink", "elu", "hardswish", "clamp", "leaky_relu", "softplus", "maximum",
    "where"])
def test_gradients(name, count):
    args = operands(count, torch.float32)
    f, args = (TWO[name], args) if name in ("maximum", "where") else (ONE[name], args[:1])
    assert_same(gradients(dynamo_lite.compile(lambda *args: f(*args)), args), gradients(f, args), name)


@pytest.mark.parametrize("shape", [(3, 768), (5, 7), (64, 512)])
def test_moments_of_numbers_that_differ_little(shape):
    torch.manual_seed(0)
    for spread in (1e-2, 1.0):
        x = torch.randn(shape) * spread + 1000
        for f in (lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x.var(-1),
                  lambda x: F.group_norm(x[:, :, None], 1)):
            exact = f(x.double())
            wrong, eager = (dynamo_lite.compile(f)(x) - exact).abs().max(), (f(x) - exact).abs().max()
            assert wrong <= 1.5 * eager + 1e-6
    same = torch.full((4, 33), 1000.1)
    assert not dynamo_lite.compile(lambda x: x.std(-1))(same).isnan().any()
    infinite = torch.tensor([[1.0, math.inf]])
    got, want = dynamo_lite.compile(lambda x: torch.var_mean(x, -1))(infinite), torch.var_mean(infinite, -1)
    torch.testing.assert_close(got, want, equal_nan=True)
