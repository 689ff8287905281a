"""C++ definitions of the mathematical functions that a file of kernels uses.

The most common functions of float32 are our own and are inlined (``math.h``), because around a call all vector
registers are spilled. The others, and all of float64, are Sleef's, which libtorch_cpu exports and eager's kernels call,
too. A kernel library looks them up in the process's libtorch_cpu when it is loaded, as linking against that library
would take longer than compiling. Without AVX2, and where this libtorch_cpu lacks a function, libm's is called lane by
lane.

Invariant: a generated file looks up no symbol that the libtorch_cpu of this process does not export, as its address
would be null.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path

# Name in the IR -> (arity, Sleef's name, Sleef's suffix for the accuracy, libm's name).
FUNCTIONS: dict[str, tuple[int, str, str, str]] = {
    **{
        name: (1, name, "_u10", name)
        for name in (
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
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "lgamma",
        )
    },
    "erfc": (1, "erfc", "_u15", "erfc"),
    "pow": (2, "pow", "_u10", "pow"),
    "atan2": (2, "atan2", "_u10", "atan2"),
    "hypot": (2, "hypot", "_u05", "hypot"),
    "fmod": (2, "fmod", "", "fmod"),
    "nextafter": (2, "nextafter", "", "nextafter"),
}

# Functions that are computed from another one where ``FAST`` has none: name -> (the other function, expression of x).
DERIVED = {"erf_plus_one": ("erf", "erf_(x) + 1")}

# Functions that math.h defines for float: the expression that calls each on ``x`` (L: number of lanes, V: the vector's
# type, code: Sleef's code for that type).
FAST = {
    "exp": "fast_exp<{L}>(x)",
    "tanh": "fast_tanh<{L}>(x)",
    "erf": "fast_erf<{L}>(x)",
    "erf_plus_one": "fast_erf_plus_one<{L}>(x)",
    "expm1": "fast_expm1<{L}>(x)",
    "log": "fast_log<{L}>(x)",
    "log1p": "fast_log1p<{L}>(x)",
    "sin": "fast_sin_cos<{L}, 0>(x, []({V} v) {{ return Sleef_sin{code}_u10(v); }})",
    "cos": "fast_sin_cos<{L}, 1>(x, []({V} v) {{ return Sleef_cos{code}_u10(v); }})",
}

# Vectors for each kind of instructions: the scalar type, the number of lanes, Sleef's code for such vectors.
_TYPES = {
    "avx512": (("float", 16, "f16"), ("double", 8, "d8"), ("float", 8, "f8"), ("double", 4, "d4")),
    "avx2": (("float", 8, "f8"), ("double", 4, "d4"), ("float", 4, "f4")),
}
# Vectors for which libtorch exports no functions, as Sleef has them with SSE only: functions for twice as many lanes
# are called instead.
_HALVES = {"f4": "f8"}


_LIBRARY = """
extern "C" void* dlopen(const char*, int) noexcept;
extern "C" void* dlsym(void*, const char*) noexcept;
static void* const libtorch = dlopen("libtorch_cpu.so", 1 | 4);  // RTLD_LAZY | RTLD_NOLOAD
"""


@functools.cache
def _exported(symbol: str) -> bool:
    """Whether the libtorch_cpu of this process exports a symbol."""
    return hasattr(ctypes.CDLL("libtorch_cpu.so", mode=os.RTLD_LAZY | os.RTLD_NOLOAD), symbol)


def _symbol(name: str, code: str) -> str:
    _, sleef, suffix, _ = FUNCTIONS[name]
    return f"Sleef_{sleef}{code}{suffix}"


@functools.cache
def _math_header() -> str:
    return (Path(__file__).parent / "math.h").read_text(encoding="utf-8")


# Number of uses in one file up to which functions are inlined; with more they are called. The compiler takes some 5 ms
# for each inlined use; calls take 9% of the time of a kernel that does nothing else.
MOST_IN_LINE = 128


def uses(texts: Iterable[str], names: Iterable[str]) -> int:
    """How often these texts of kernels use the functions of these names."""
    calls = re.compile(rf"\b(?:{'|'.join(sorted(names))})_\(") if names else None
    return sum(len(calls.findall(text)) for text in texts) if calls is not None else 0


def declarations(used: Iterable[str], simd: str, in_line: bool = True) -> str:
    """C++ that defines ``exp_`` and the like, for scalars and vectors.

    Args:
        used: the functions' names in the IR.
        simd: the vector instructions that kernels use.
        in_line: whether the compiler is to inline all uses.
    """
    wanted = set(used)
    names = sorted((wanted | {DERIVED[name][0] for name in wanted & set(DERIVED)}) & set(FUNCTIONS))
    derived = sorted(wanted & set(DERIVED))
    if not names:
        return ""
    if simd not in _TYPES:
        vector = "template <class V> INLINE V {0}_(V x) {{ return {1}; }}\n"
        return "\n" + "".join(map(_by_lane, names)) + "".join(vector.format(name, DERIVED[name][1]) for name in derived)
    header = "\n" + _math_header() if wanted & set(FAST) else ""
    kind = "INLINE" if in_line else "static NOINLINE"
    parts = [_declare(name, simd, kind) if _found(name, simd) else _by_lane(name) for name in names]
    parts += [_declare_derived(name, simd, kind) for name in derived]
    return header + _LIBRARY + "".join(parts)


def _found(name: str, simd: str) -> bool:
    """Whether libtorch_cpu exports a function for all vectors that kernels use."""
    return all(_exported(_symbol(name, code)) for _, _, code in _TYPES[simd] if code not in _HALVES)


def _declare(name: str, simd: str, kind: str) -> str:
    """The definitions of a function for vectors and scalars, by ``FAST`` or Sleef. ``kind``: the C++ specifiers."""
    arity, _, _, _ = FUNCTIONS[name]
    names = "xy"[:arity]
    lines = []
    for scalar, lanes, code in _TYPES[simd]:
        v = f"vec<{scalar}, {lanes}>"
        symbol = _symbol(name, code)
        parameters = ", ".join(f"{v} {p}" for p in names)
        call = f"{symbol}({', '.join(names)})"
        fast = FAST.get(name) if scalar == "float" else None
        if fast is None or symbol in fast.format(L=lanes, V=v, code=code):
            if code in _HALVES:
                wide = f"{_symbol(name, _HALVES[code])}({', '.join(f'twice({p})' for p in names)})"
                lines.append(f"INLINE {v} {symbol}({parameters}) {{ return low_half({wide}); }}")
            else:
                lines.append(_pointer(symbol, ", ".join([v] * arity), v))
        if fast is not None:
            call = fast.format(L=lanes, V=v, code=code)
        lines.append(f"{kind} {v} {name}_({parameters}) {{ return {call}; }}")
    for scalar, lanes in (("float", 8), ("double", 4)):
        parameters = ", ".join(f"{scalar} {p}" for p in names)
        call = ", ".join(f"bc<{lanes}>({p})" for p in names)
        lines.append(f"INLINE {scalar} {name}_({parameters}) {{ return {name}_({call})[0]; }}")
    return "\n".join(lines) + "\n"


def _pointer(symbol: str, types: str, result: str) -> str:
    """The declaration of a pointer to one of Sleef's functions, which is looked up when the library is loaded."""
    return f'static {result} (*const {symbol})({types}) = (decltype({symbol}))dlsym(libtorch, "{symbol}");'


def _declare_derived(name: str, simd: str, kind: str) -> str:
    """The definitions of a function of ``DERIVED`` for vectors and scalars."""
    lines = []
    for scalar, lanes, code in _TYPES[simd]:
        v = f"vec<{scalar}, {lanes}>"
        fast = scalar == "float" and name in FAST
        call = FAST[name].format(L=lanes, V=v, code=code) if fast else DERIVED[name][1]
        lines.append(f"{kind} {v} {name}_({v} x) {{ return {call}; }}")
    lines += [f"INLINE {scalar} {name}_({scalar} x) {{ return {DERIVED[name][1]}; }}" for scalar in ("float", "double")]
    return "\n".join(lines) + "\n"


def _by_lane(name: str) -> str:
    """The definitions of a function by libm's scalar one, which is called lane by lane."""
    arity, _, _, libm = FUNCTIONS[name]
    names = "xy"[:arity]
    lines = []
    for scalar, function in (("float", f"__builtin_{libm}f"), ("double", f"__builtin_{libm}")):
        parameters = ", ".join(f"{scalar} {p}" for p in names)
        lines.append(f"INLINE {scalar} {name}_({parameters}) {{ return {function}({', '.join(names)}); }}")
    vectors = ", ".join(f"V {p}" for p in names)
    scalars = ", ".join(f"elem<V> {p}" for p in names)
    lines.append(
        f"template <class V, int L = lanes<V>> INLINE V {name}_({vectors}) {{ "
        f"return each({', '.join(names)}, []({scalars}) {{ return {name}_({', '.join(names)}); }}); }}"
    )
    return "\n".join(lines) + "\n"
