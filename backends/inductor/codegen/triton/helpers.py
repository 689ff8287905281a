"""Functions that Triton's language lacks, written in that language: they go at the head of every file of kernels.

The text is part of each generated file, so that a file can be read, compiled and interpreted by itself. Unused
functions cost a kernel nothing: Triton compiles only functions that are called.

Invariant: a file of kernels needs nothing but Triton.
"""
from __future__ import annotations

import re

HEAD = '''import triton
import triton.language as tl
'''
LIBDEVICE = "from triton.language.extra import libdevice\n"

# Float32 coefficients are those of Cephes; float64 uses exact identities with functions that Triton has.
_SOURCE = '''
@triton.jit
def neg_(x):
    """-x of floats, whose sign bit changes for 0 and NaN too: Triton up to 3.7 computes 0 - x."""
    if x.dtype == tl.float64:
        return (x.to(tl.int64, bitcast=True) ^ -9223372036854775808).to(tl.float64, bitcast=True)
    else:
        return (x.to(tl.int32, bitcast=True) ^ -2147483648).to(tl.float32, bitcast=True)


@triton.jit
def trunc_(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def round_(x):
    low = tl.floor(x)
    rest = x - low
    odd = low - 2.0 * tl.floor(low * 0.5)
    near = low + tl.where((rest > 0.5) | ((rest == 0.5) & (odd != 0.0)), 1.0, 0.0).to(x.dtype)
    return tl.where(near == 0.0, x * 0.0, near)


@triton.jit
def expm1_(x):
    wide = x.to(tl.float64)
    e = tl.exp(wide)
    kahan = (e - 1.0) * wide / tl.log(e)
    result = tl.where(e == 1.0, wide, tl.where((e - 1.0 == -1.0) | (e == float("inf")), e - 1.0, kahan))
    return result.to(x.dtype)


@triton.jit
def log1p_(x):
    wide = x.to(tl.float64)
    u = 1.0 + wide
    kahan = tl.log(u) * (wide / (u - 1.0))
    return tl.where(u == 1.0, wide, tl.where(u == float("inf"), u, kahan)).to(x.dtype)


@triton.jit
def log10_(x):
    return (tl.log(x.to(tl.float64)) * tl.full((), 0.4342944819032518, tl.float64)).to(x.dtype)


@triton.jit
def tan_(x):
    return tl.sin(x) / tl.cos(x)


@triton.jit
def sinh_(x):
    t = expm1_(tl.abs(x.to(tl.float64)))
    half = 0.5 * tl.where(t == float("inf"), t, t + t / (t + 1.0))
    return tl.where(x < 0, -half, tl.where(x == 0, x.to(tl.float64), half)).to(x.dtype)


@triton.jit
def cosh_(x):
    e = tl.exp(tl.abs(x.to(tl.float64)))
    return (0.5 * (e + 1.0 / e)).to(x.dtype)


@triton.jit
def tanh_(x):
    if x.dtype == tl.float64:
        t = expm1_(2.0 * tl.minimum(tl.abs(x), 30.0))
        large = t / (t + 2.0)
    else:
        large = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    result = tl.where(x < 0, -large, large)
    if x.dtype == tl.float32:
        z = x * x
        p = -5.70498872745e-3 * z + 2.06390887954e-2
        p = (p * z - 5.37397155531e-2) * z + 1.33314422036e-1
        p = (p * z - 3.33332819422e-1) * z * x + x
        result = tl.where(tl.abs(x) < 0.625, p, result)
    return tl.where((x == 0) | (x != x), x, result)


@triton.jit
def asinh_(x):
    a = tl.abs(x.to(tl.float64))
    large = tl.log(a) + tl.full((), 0.6931471805599453, tl.float64)
    small = log1p_(a + a * a / (1.0 + tl.sqrt(a * a + 1.0)))
    result = tl.where(a > 1e150, large, small)
    return tl.where(x < 0, -result, tl.where(x == 0, x.to(tl.float64), result)).to(x.dtype)


@triton.jit
def acosh_(x):
    a = x.to(tl.float64)
    large = tl.log(a) + tl.full((), 0.6931471805599453, tl.float64)
    t = a - 1.0
    result = tl.where(a > 1e150, large, log1p_(t + tl.sqrt(2.0 * t + t * t)))
    return tl.where(a < 1.0, float("nan"), result).to(x.dtype)


@triton.jit
def atanh_(x):
    a = tl.abs(x.to(tl.float64))
    result = 0.5 * log1p_(2.0 * a / (1.0 - a))
    return tl.where(x < 0, -result, tl.where(x == 0, x.to(tl.float64), result)).to(x.dtype)


@triton.jit
def atan_(x):
    a = tl.abs(x)
    far = a > 2.414213562373095
    middle = (a > 0.4142135623730950) & (a <= 2.414213562373095)
    start = tl.where(far, 1.5707963267948966, tl.where(middle, 0.7853981633974483, 0.0))
    y = tl.where(far, -1.0 / a, tl.where(middle, (a - 1.0) / (a + 1.0), a))
    z = y * y
    p = 8.05374449538e-2 * z - 1.38776856032e-1
    p = (p * z + 1.99777106478e-1) * z - 3.33329491539e-1
    result = start + (p * z * y + y)
    return tl.where(x < 0, -result, tl.where(x == 0, x, result))


@triton.jit
def asin_(x):
    return tl.where(tl.abs(x) == 1.0, x * 1.5707963267948966, atan_(x / tl.sqrt_rn((1.0 - x) * (1.0 + x))))


@triton.jit
def acos_(x):
    return tl.where(x == -1.0, 3.141592653589793, 2.0 * atan_(tl.sqrt_rn((1.0 - x) / (1.0 + x))))


@triton.jit
def erf_plus_one_(x):
    return tl.erf(x) + 1.0


@triton.jit
def pow_(x, y):
    a, b = tl.broadcast(x.to(tl.float64), y.to(tl.float64))
    whole = tl.floor(b) == b
    odd = whole & (b - 2.0 * tl.floor(b * 0.5) != 0.0) & (tl.abs(b) < 9007199254740992.0)
    size = tl.exp2(b * tl.log2(tl.abs(a)))
    size = tl.where(tl.abs(a) == 1.0, 1.0, size)
    size = tl.where((tl.abs(a) == 1.0) & (b != b), b, size)
    negative = (a.to(tl.int64, bitcast=True) < 0)
    result = tl.where(negative & odd, neg_(size), size)
    result = tl.where((a < 0) & (a != float("-inf")) & ~whole & (tl.abs(b) != float("inf")), float("nan"), result)
    return tl.where((b == 0.0) | (a == 1.0), 1.0, result).to(x.dtype)


@triton.jit
def hypot_(x, y):
    a, b = tl.broadcast(x.to(tl.float64), y.to(tl.float64))
    big = tl.maximum(tl.abs(a), tl.abs(b))
    small = tl.minimum(tl.abs(a), tl.abs(b))
    ratio = tl.where(big == 0.0, 0.0, small / big)
    infinite = (tl.abs(a) == float("inf")) | (tl.abs(b) == float("inf"))
    result = big * tl.sqrt(1.0 + ratio * ratio)
    result = tl.where((a != a) | (b != b), float("nan"), result)
    return tl.where(infinite, float("inf"), result).to(x.dtype)


@triton.jit
def copysign_(x, y):
    if x.dtype == tl.float64:
        negative = y.to(tl.int64, bitcast=True) < 0
    else:
        negative = y.to(tl.int32, bitcast=True) < 0
    return tl.where(negative, neg_(tl.abs(x)), tl.abs(x))


@triton.jit
def round_bf16(x):
    """The nearest bfloat16, ties to even, as float32: Triton's interpreter cuts bits off where a GPU rounds."""
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + 32767 + ((bits >> 16) & 1)) & -65536
    return tl.where(x != x, x, rounded.to(tl.float32, bitcast=True))


@triton.jit
def largest(x, axis: tl.constexpr, keep: tl.constexpr):
    """The maximum, NaN if there is one."""
    nan = tl.max((x != x).to(tl.int32), axis, keep_dims=keep)
    best = tl.max(tl.where(x != x, float("-inf"), x), axis, keep_dims=keep)
    return tl.where(nan != 0, float("nan"), best)


@triton.jit
def least(x, axis: tl.constexpr, keep: tl.constexpr):
    """The minimum, NaN if there is one."""
    nan = tl.max((x != x).to(tl.int32), axis, keep_dims=keep)
    best = tl.min(tl.where(x != x, float("inf"), x), axis, keep_dims=keep)
    return tl.where(nan != 0, float("nan"), best)


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def philox(counter, stream, key, lane):
    """One of the four numbers of 32 bits that Philox4x32-10 makes of a counter of 128 bits and a key of 64."""
    a, b, c, d = tl.philox(key, counter.to(tl.uint32), (counter >> 32).to(tl.uint32), stream.to(tl.uint32),
                           (stream >> 32).to(tl.uint32))
    drawn = tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))
    return drawn.to(tl.int64)


@triton.jit
def report(fault, wrong, index, order, number):
    """Notes the first index out of bounds of a block, unless one is noted already."""
    last = tl.full((), 9223372036854775807, tl.int64)
    place = tl.where(wrong, order, last)
    first = tl.min(place, None)
    found = tl.max(tl.where(place == first, index, -last), None)
    new = (first != last) & (tl.load(fault + 2) == 0)
    tl.store(fault + 1, found, mask=new)
    tl.store(fault, tl.full((), number, tl.int64), mask=new)
    tl.store(fault + 2, tl.full((), 1, tl.int64), mask=new)


@triton.jit
def report_one(fault, wrong, index, number):
    new = wrong & (tl.load(fault + 2) == 0)
    tl.store(fault + 1, index, mask=new)
    tl.store(fault, tl.full((), number, tl.int64), mask=new)
    tl.store(fault + 2, tl.full((), 1, tl.int64), mask=new)
'''


def _functions() -> dict[str, str]:
    parts = ["@triton.jit\n" + part.rstrip() + "\n" for part in _SOURCE.split("@triton.jit\n")[1:]]
    return {part.split("def ", 1)[1].split("(", 1)[0]: part for part in parts}


def definitions(text: str) -> str:
    """The definitions of the functions that the text of kernels calls, directly or indirectly."""
    functions = _functions()
    wanted: set[str] = set()
    waiting = [text]
    while waiting:
        called = set(re.findall(r"\b(\w+)(?=[(,)])", waiting.pop())) & set(functions)
        waiting += [functions[name] for name in called - wanted]
        wanted |= called
    return "".join(f"\n\n{functions[name]}" for name in functions if name in wanted)
