"""Elementwise operators against eager: dtypes, promotion, rounding, special values, tails, layouts."""

import itertools
import math

import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ALL = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def works(fn, *args):
    try:
        fn(*args)
    except (RuntimeError, TypeError):
        return False
    return True


EXACT_UNARY = [
    "neg",
    "abs",
    "floor",
    "ceil",
    "trunc",
    "round",
    "reciprocal",
    "frac",
    "relu",
    "isnan",
    "isinf",
    "logical_not",
    "bitwise_not",
]
FUNCTIONS = [
    "sqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "lgamma",
    "sigmoid",
    "rsqrt",
]


@pytest.mark.parametrize("name", EXACT_UNARY)
def test_exact_unary(name, check_many, data):
    fn = getattr(torch, name)
    inputs = [
        x for d in ALL for x in ((data.special.to(d),) if d.is_floating_point else ()) + (data.random(3, 67, dtype=d),)
    ]
    check_many([(f"{name} {x.dtype}", fn, [x]) for x in inputs if works(fn, x)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, check_many, data):
    fn = getattr(torch, name)
    # Eager is not the same for 16-bit floats in its own tails: only whole vectors are compared.
    cases = [(f"{name} {d}", fn, [data.random(3, 64, dtype=d)]) for d in (*FLOATS, torch.int64, torch.uint8)]
    cases += [(f"{name} special {d}", fn, [data.special.to(d)]) for d in (torch.float32, torch.float64)]
    check_many([c for c in cases if works(fn, *c[2])], data.CLOSE)


@pytest.mark.parametrize(
    "turn, name",
    enumerate([
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "copysign",
    ]),
)
def test_exact_binary(turn, name, check_many, data):
    fn = getattr(torch, name)
    x, y = data.special.repeat(16), data.special.repeat_interleave(16)
    cases = [(f"{name} special {d}", fn, [x.to(d), y.to(d)]) for d in FLOATS]
    pairs = itertools.product((torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool), repeat=2)
    for a, b in thorough.share(list(pairs), turn, 3):
        cases.append((f"{name} {a} {b}", fn, [data.random(4, 5, 33, dtype=a), data.random(5, 1, dtype=b)]))
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)
    for row, number in enumerate((2, 0.3, True, -3, 0)):
        for d in thorough.share(dtypes, turn + row, 3):
            cases.append((f"{name} {d} {number}", lambda x, n=number: fn(x, n), [data.random(5, 33, dtype=d)]))
    check_many([c for c in cases if works(c[1], *c[2])])


@pytest.mark.parametrize("name", ["pow", "atan2", "hypot", "fmod", "remainder"])
def test_binary_functions(name, check_many, data, kernels):
    fn = getattr(torch, name)
    special = data.special
    if kernels == "triton" and name in ("fmod", "remainder"):
        special = special[(special.abs() < 1e30) & (special.abs() != 1e-30)]  # of huge quotients eager's are NaN
    x, y = special.repeat(len(special)), special.repeat_interleave(len(special))
    cases = [(f"{name} special {d}", fn, [x.to(d), y.to(d)]) for d in (torch.float32, torch.float64)]
    cases += [(f"{name} {d}", fn, [data.random(3, 64, dtype=d), data.random(3, 64, dtype=d) + 1]) for d in FLOATS]
    check_many([c for c in cases if works(c[1], *c[2])], data.CLOSE)


def test_powers_and_divisions(check_many, data):
    # Sleef's fmod, which is eager's too, has no answer for huge quotients.
    usual = data.special[(data.special.abs() < 1e30) | ~data.special.isfinite()]
    fns = {
        "square": lambda x: x**2,
        "cube": lambda x: x**3,
        "inverse": lambda x: x**-1,
        "inverse square": lambda x: x**-2,
        "one": lambda x: x**1,
        "zero": lambda x: x**0,
        "floor": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
        "trunc": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
        "negative floor": lambda x: torch.div(x, -0.7, rounding_mode="floor"),
    }
    check_many([(f"{n} {d}", f, [usual.to(d)]) for n, f in fns.items() for d in FLOATS[:3]])
    whole = {
        "square": lambda x: x**2,
        "seventh": lambda x: x**7,
        "floor": lambda x: torch.div(x, 7, rounding_mode="floor"),
        "trunc": lambda x: torch.div(x, -7, rounding_mode="trunc"),
        "mod": lambda x: x % 7,
        "fmod": lambda x: torch.fmod(x, 7),
    }
    check_many(
        [
            (f"{n} {d}", f, [data.random(5, 33, dtype=d)])
            for n, f in whole.items()
            for d in (torch.int64, torch.int32)
            if works(f, data.random(5, 33, dtype=d))
        ]
    )


def test_integer_division_by_zero_is_left_to_the_library(build, data):
    x, y = data.random(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    built = build(lambda a, b: torch.div(a, b, rounding_mode="floor"), [x, y])
    with pytest.raises(RuntimeError, match="Zero"):
        built.call(x, y)


def test_floor_division_whose_quotient_is_beyond_all_numbers(check_many, in_cpp):
    x = torch.tensor([3.4e38, 1e30, -3e38, 1e20, 7.5, math.inf, -math.inf, 0.0, -0.0, math.nan, 3e38] * 4)
    y = torch.tensor([1e-40, -1e-9, 1e-3, 3e-45, -2, 3, 0, 0, -1, 1, 1.5] * 4)
    check_many([(f"{d}", lambda x, y: x // y, [x.to(d), y.to(d)])
                for d in (torch.float32, torch.float64, torch.bfloat16, torch.float16)])


@pytest.mark.parametrize("f", [
    F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, F.mish, F.softplus, F.logsigmoid, F.hardswish, F.elu,
    F.selu, F.celu, torch.sigmoid, torch.erf, torch.erfc, F.softsign,
])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_activations_of_large_numbers_and_of_none(f, dtype):
    # As many as eager's vectors hold: of the rest its scalar code makes something else of NaN.
    x = torch.tensor([-1e12, -3e38, -1e5, -100, -10, -7.2, -7.07, -7.0, -5, -3, 0, 8, 1e30, math.nan, -math.inf, 1])
    x = x.repeat(4).to(dtype).requires_grad_()
    want, got = f(x), dynamo_lite.compile(lambda x: f(x))(x)
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (want, got)]
    rtol = {torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-9}[dtype]
    torch.testing.assert_close(got, want, rtol=rtol, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(*grads[::-1], rtol=rtol, atol=1e-6, equal_nan=True)


ACTIVATIONS = {
    "silu": F.silu,
    "mish": F.mish,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "threshold": lambda x: F.threshold(x, 0.1, 20),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp_min": lambda x: x.clamp(min=0.3),
    "clamp_max": lambda x: x.clamp(max=0.3),
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations(dtype, check_many, data):
    cases = [(n, f, [data.random(3, 64, dtype=dtype)]) for n, f in ACTIVATIONS.items()]
    cases += [(f"{n} special", f, [data.special.to(dtype)]) for n, f in ACTIVATIONS.items()]
    check_many(cases, data.CLOSE)


def test_gelu(build, check_many, data):
    # Eager's own gelu is off by up to 5e-7, and gives NaN for inf.
    check_many([("gelu", F.gelu, [data.random(3, 67)])], {torch.float32: (1e-5, 1e-6)})
    x = torch.linspace(-30, 30, 10001)
    check_many([("gelu, wide", lambda x: F.gelu(x), [x.double()])], data.CLOSE)
    got, want = build(F.gelu, [x]).call(x)[0], F.gelu(x.double())
    assert ((got - want).abs() <= 4e-7 * want.abs().clamp(min=1)).all()


BACKWARDS = {
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "threshold": lambda d, y: aten.threshold_backward(d, y, 0.1),
    "gelu": aten.gelu_backward,
    "gelu tanh": lambda d, y: aten.gelu_backward(d, y, approximate="tanh"),
    "hardtanh": lambda d, y: aten.hardtanh_backward(d, y, -1, 1),
    "leaky_relu": lambda d, y: aten.leaky_relu_backward(d, y, 0.1, False),
    "elu": lambda d, y: aten.elu_backward(d, 1.0, 1.0, 1.0, False, y),
}


def test_gradients_of_activations(check_many, data):
    check_many(
        [(n, f, [data.random(3, 67), data.random(67, 3).t().contiguous()]) for n, f in BACKWARDS.items()], data.CLOSE
    )


TERNARY = {
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "where number": lambda x, y: torch.where(x > 0, x, -1.0),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, y, x, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x + 10, value=0.5),
    "alpha": lambda x, y: torch.add(x, y, alpha=0.3),
    "rsub": lambda x, y: 1 - x,
    "clamp tensor": lambda x, y: x.clamp(y - 1, y + 1),
}


def test_three_operands(check_many, data):
    check_many([(n, f, [data.random(3, 67), data.random(3, 67).flip(0)]) for n, f in TERNARY.items()], data.CLOSE)


@pytest.mark.parametrize("source", ALL)
def test_casts(source, check_many, data):
    big = torch.tensor([0.0, -0.0, 1.7, -1.7, 300, -300, 70000, -70000, 255.9, 256, 128, -129, 1e9, -1e9] * 3)
    x = big.to(source) if source.is_floating_point else data.random(42, dtype=source, scale=100)
    check_many([(f"{source} to {d}", lambda x, d=d: x.to(d), [x]) for d in ALL if d is not source])


def test_0_dim_tensors_and_empty_ones(check_many, data):
    check_many(
        [
            ("0-dim", lambda x: x * 2 + 1, [torch.tensor(3.0)]),
            ("0-dim times matrix", lambda x, y: x * y, [torch.tensor(3.0), data.random(4, 4)]),
            ("float64 0-dim", lambda x, y: x * y, [torch.tensor(0.3, dtype=torch.float64), data.random(4, 4)]),
            (
                "float32 0-dim times bfloat16",
                lambda x, y: x * y,
                [torch.tensor(0.3), data.random(4, 4, dtype=torch.bfloat16)],
            ),
            (
                "bfloat16 times float32 0-dim",
                lambda x, y: y * x,
                [torch.tensor(0.3), data.random(4, 4, dtype=torch.bfloat16)],
            ),
            ("empty", lambda x: x + 1, [torch.empty(0, 3)]),
            ("broadcast", lambda x, y: x * y + 1, [data.random(1, 5, 1), data.random(4, 1, 3)]),
        ]
    )


def test_the_lesser_of_whole_numbers(check_many):
    """One by one, too, behind a reduction; whatever a kernel's header has for itself."""
    x = torch.ones(103, dtype=torch.bool)
    check_many([
        (str(limits), lambda x, limits=limits: x.sum().clamp(*limits), (x,))
        for limits in [(2, 0), (None, 100), (0, 102), (7, 101), (104, None), (-3, 0)]
    ])
    check_many([("minimum", lambda x, y: torch.minimum(x.sum(), y), (x, torch.tensor(n))) for n in (100, 103, 99, 0)])


def test_negated_numbers_below_0(check_many):
    check_many([("pad", lambda x: F.pad(x, (1, 2), value=-1.5).neg(), (torch.randn(1, 64),)),
                ("full", lambda x: -torch.where(x > 0, -2.5, -3), (torch.randn(45),))])
