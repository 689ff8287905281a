"""Functions of real numbers: declarations of Sleef's vector forms for those that a file uses.

libtorch_cpu exports Sleef, and eager's kernels call it: the same function gives the same bits. A kernel library finds
the functions in the libtorch_cpu of the process when it is loaded: linking against that library would take longer than
compiling. Without AVX2 the functions are libm's, lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterable

# name in the IR -> (arity, Sleef's name, accuracy suffix, libm's name)
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

_TYPES = {
    "avx512": (("float", 16, "f16"), ("double", 8, "d8"), ("float", 8, "f8"), ("double", 4, "d4")),
    "avx2": (("float", 8, "f8"), ("double", 4, "d4"), ("float", 4, "f4")),
}


_LIBRARY = """
extern "C" void* dlopen(const char*, int) noexcept;
extern "C" void* dlsym(void*, const char*) noexcept;
static void* const libtorch = dlopen("libtorch_cpu.so", 1 | 4);  // RTLD_LAZY | RTLD_NOLOAD
"""


def declarations(used: Iterable[str], simd: str) -> str:
    """C++ that defines ``exp_`` and so on, for scalars and vectors."""
    names = sorted(set(used) & set(FUNCTIONS))
    if not names:
        return ""
    return (_LIBRARY if simd in _TYPES else "\n") + "".join(_declare(name, simd) for name in names)


def _declare(name: str, simd: str) -> str:
    arity, sleef, suffix, libm = FUNCTIONS[name]
    if simd not in _TYPES:
        return _by_lane(name, arity, libm)
    lines = []
    for scalar, lanes, code in _TYPES[simd]:
        v = f"vec<{scalar}, {lanes}>"
        symbol = f"Sleef_{sleef}{code}{suffix}"
        parameters = ", ".join(f"{v} {p}" for p in "xy"[:arity])
        lines.append(
            f'static {v} (*const {symbol})({", ".join([v] * arity)}) = (decltype({symbol}))dlsym(libtorch, "{symbol}");'
        )
        lines.append(f"INLINE {v} {name}_({parameters}) {{ return {symbol}({', '.join('xy'[:arity])}); }}")
    for scalar, lanes in (("float", 8), ("double", 4)):
        parameters = ", ".join(f"{scalar} {p}" for p in "xy"[:arity])
        call = ", ".join(f"bc<{lanes}>({p})" for p in "xy"[:arity])
        lines.append(f"INLINE {scalar} {name}_({parameters}) {{ return {name}_({call})[0]; }}")
    return "\n".join(lines) + "\n"


def _by_lane(name: str, arity: int, libm: str) -> str:
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
