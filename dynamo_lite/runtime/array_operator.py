"""The operator by which graphs call functions of NumPy: ``torch.ops.dynamo_lite.array_call(call, arrays)``.

NumPy itself computes the result, in the memory of the tensors, so values, dtypes, warnings and exceptions are NumPy's.
The call, with all arguments that are no arrays, is part of the graph as text, so that graphs can be kept in files.

A call with sample arrays shows the shape, the dtype and the strides of the result. Invariant: no call writes to an
operand, and a result that differs in these from the samples' is an error, behind which the frame runs in plain Python.
"""
from __future__ import annotations

import ast
import functools
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .storage_extent import storage_extent

Layout = tuple[Any, tuple[int, ...], tuple[int, ...]]
"""An array's dtype, shape and strides, the strides in elements."""

_OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.matmul, operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, operator.lt,
    operator.le, operator.eq, operator.ne, operator.gt, operator.ge, operator.neg, operator.pos, operator.invert,
    operator.abs, operator.getitem,
)
UPDATES = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv,
    "%": operator.imod, "**": operator.ipow, "@": operator.imatmul, "<<": operator.ilshift, ">>": operator.irshift,
    "&": operator.iand, "|": operator.ior, "^": operator.ixor,
}
_FUNCTIONS = (
    "sum", "mean", "prod", "std", "var", "min", "max", "amin", "amax", "ptp", "argmin", "argmax", "any", "all",
    "cumsum", "cumprod", "where", "clip", "round", "around", "dot", "inner", "outer", "vdot", "tensordot", "einsum",
    "kron", "trace", "diagonal", "concatenate", "stack", "vstack", "hstack", "dstack", "column_stack", "split",
    "array_split", "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "expand_dims", "squeeze",
    "flip", "flipud", "fliplr", "roll", "rot90", "tile", "repeat", "pad", "sort", "argsort", "take", "take_along_axis",
    "searchsorted", "median", "percentile", "quantile", "nan_to_num", "nansum", "nanmean", "nanmin", "nanmax", "nanstd",
    "nanvar", "diff", "cross", "tril", "triu", "diag", "zeros_like", "ones_like", "full_like", "copy", "array",
    "asarray", "ascontiguousarray", "asanyarray", "isclose", "interp", "convolve", "average", "real", "full",
    "atleast_1d", "atleast_2d", "atleast_3d", "append", "trapezoid", "cov", "corrcoef", "polyval", "nanmedian",
    "count_nonzero", "nancumsum", "nanprod", "vecdot", "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft",
    "fft.fft2", "fft.ifft2", "fft.rfft2", "fft.irfft2", "fft.fftn", "fft.ifftn", "fft.fftshift", "fft.ifftshift",
    "linalg.norm", "linalg.inv", "linalg.pinv", "linalg.det", "linalg.solve", "linalg.cholesky", "linalg.eigvalsh",
    "linalg.matrix_power", "linalg.multi_dot",
)
_METHODS = (
    "astype", "reshape", "sum", "mean", "copy", "transpose", "flatten", "ravel", "min", "max", "argmin", "argmax",
    "any", "all", "cumsum", "cumprod", "round", "clip", "dot", "squeeze", "repeat", "std", "var", "prod", "swapaxes",
    "diagonal", "trace", "argsort", "take",
)


def _updated(name: str, array: Any, value: Any) -> Any:
    """What an array is after ``array += value``, or another such statement."""
    return UPDATES[name](array.copy("K"), value)


def _assigned(array: Any, key: Any, value: Any) -> Any:
    """What an array is after ``array[key] = value``."""
    made = array.copy("K")
    made[key] = value
    return made


def _transposed(array: Any) -> Any:
    return array.T


updated, assigned, transposed = _updated, _assigned, _transposed


@functools.cache
def _table() -> dict[Any, str]:
    """The functions that graphs may call, with their names."""
    found: dict[Any, str] = {f: f"operator.{f.__name__}" for f in _OPERATORS}
    found |= {f: f"own.{f.__name__}" for f in (_updated, _assigned, _transposed)}
    for name in _METHODS:
        found[getattr(np.ndarray, name)] = f"ndarray.{name}"
    for name in _FUNCTIONS:
        home, _, last = name.rpartition(".")
        function = getattr(getattr(np, home) if home else np, last, None)
        if function is not None:  # some are gone from later versions of NumPy
            found.setdefault(function, f"numpy.{name}")
    for name in dir(np):
        function = getattr(np, name) if not name.startswith("_") else None
        if isinstance(function, np.ufunc) and function.nout == 1:
            found.setdefault(function, f"numpy.{name}")
    return found


@functools.cache
def _by_name() -> dict[str, Any]:
    return {name: function for function, name in _table().items()}


def is_callable(function: Any) -> bool:
    """Whether graphs may call a function of NumPy."""
    try:
        return function in _table()
    except TypeError:  # no hash
        return False


# ---------------------------------------------------------------- calls as text
class Operand(NamedTuple):
    """An array among the arguments of a call: its place among the operator's tensors."""

    place: int
    scalar: bool = False  # whether it is a number of NumPy's, which lies in a tensor without dimensions


class NotInText(Exception):
    """A value that the text of a call can't hold."""


_OF_PYTHON = (bool, int, float, complex)


def _written(value: Any) -> Any:
    """A value as a literal: a number or text as it is, another value as a tuple that begins with its kind."""
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, np.dtype) and value.kind in "biufc":
        return ("dtype", value.str)
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return ("number", value.dtype.str, value.tobytes().hex())
    if isinstance(value, type) and (issubclass(value, np.generic) or value in _OF_PYTHON):
        return _written(np.dtype(value))
    raise NotInText(f"a {type(value).__name__}")


_WRITERS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((bool, int, str, type(None)), lambda value: value),
    Operand: lambda value: ("operand", *value),
    float: lambda value: ("float", value.hex()),
    complex: lambda value: ("complex", value.real.hex(), value.imag.hex()),
    list: lambda value: ("list", *map(_written, value)),
    tuple: lambda value: ("tuple", *map(_written, value)),
    slice: lambda value: ("slice", *map(_written, (value.start, value.stop, value.step))),
    type(Ellipsis): lambda value: ("ellipsis",),
}
_READERS: dict[str, Callable[..., Any]] = {
    "operand": Operand, "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "list": lambda *items: [_read(i) for i in items], "tuple": lambda *items: tuple(_read(i) for i in items),
    "slice": lambda *parts: slice(*map(_read, parts)), "ellipsis": lambda: Ellipsis, "dtype": np.dtype,
    "number": lambda dtype, data: np.frombuffer(bytes.fromhex(data), dtype)[0],
}


def _read(value: Any) -> Any:
    return _READERS[value[0]](*value[1:]) if type(value) is tuple else value


def text_of(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The text of a call.

    Raises:
        NotInText: an argument can't be written as text.
    """
    named = tuple((name, _written(value)) for name, value in kwargs.items())
    return repr((_table()[function], tuple(map(_written, args)), named))


@functools.lru_cache(maxsize=1024)
def _call_of(text: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    name, args, kwargs = ast.literal_eval(text)
    return _by_name()[name], tuple(map(_read, args)), {name: _read(value) for name, value in kwargs}


def _filled(value: Any, arrays: Sequence[Any]) -> Any:
    if type(value) is Operand:
        array = arrays[value.place]
        return array[()] if value.scalar else array
    if type(value) in (list, tuple):
        return type(value)([_filled(v, arrays) for v in value])
    if type(value) is slice:
        return slice(*(_filled(v, arrays) for v in (value.start, value.stop, value.step)))
    return value


def _called(text: str, arrays: Sequence[Any]) -> Any:
    function, args, kwargs = _call_of(text)
    return function(*(_filled(a, arrays) for a in args), **{k: _filled(v, arrays) for k, v in kwargs.items()})


# ---------------------------------------------------------------- results
def example(text: str, layouts: Sequence[Layout], writeable: bool = False) -> tuple[Any, list[Any]]:
    """The result of a call for sample arrays, and these: whole numbers are 0, others differ from each other, so that
    matrices have inverses.

    Args:
        writeable: whether the function may write to the arrays. If not, a call with ``out`` raises.

    Raises:
        Exception: what the function raises for them.
    """
    arrays = [_sample(*layout) for layout in layouts]
    for array in arrays:
        array.flags.writeable = writeable
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _called(text, arrays), arrays


def _sample(dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    memory = np.zeros(storage_extent(shape, strides) if math.prod(shape) else 0, dtype)
    if dtype.kind in "fc":
        memory[...] = (np.arange(memory.size, dtype=np.float64) + 1) ** 2 * 0.6180339887 % 1
    return np.ndarray(shape, dtype, memory, 0, tuple(n * dtype.itemsize for n in strides))


def layout_of(array: Any) -> Layout | None:
    """An array's layout; None if a tensor can't have it."""
    size = array.itemsize
    if any(n < 0 or n % size for n in array.strides):
        return None
    return array.dtype, array.shape, tuple(n // size for n in array.strides)


def depends_on_elements(text: str, layouts: Sequence[Layout]) -> bool:
    """Whether the result for whole numbers of 1 has another layout than that for 0, as ``np.repeat`` has."""
    if len(layouts) == 1 or all(dtype.kind not in "biu" for dtype, _, _ in layouts):
        return False
    ones = [np.ones_like(array) if array.dtype.kind in "biu" else array for array in example(text, layouts)[1]]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _owned(_called(text, ones), ones)
    except Exception:  # an index out of bounds, for one
        return False
    return layout_of(found) != _result_layout(text, tuple(layouts))


def shares_memory(result: Any, arrays: Sequence[Any]) -> bool:
    """Whether a result, or one of several, is an operand or may lie in its memory."""
    parts = result if type(result) in (list, tuple) else [result]
    return any(type(p) is np.ndarray and (p is a or np.may_share_memory(p, a)) for p in parts for a in arrays)


def _owned(result: Any, arrays: Sequence[Any]) -> Any:
    """The result as an array with memory of its own, which a tensor can share."""
    made = np.asarray(result)
    return made.copy() if shares_memory(made, arrays) or not made.flags.writeable or layout_of(made) is None else made


@functools.lru_cache(maxsize=1024)
def _result_layout(text: str, layouts: tuple[Layout, ...]) -> Layout:
    found = layout_of(_owned(*example(text, layouts)))
    assert found is not None
    return found


@functools.cache
def _dtypes() -> dict[torch.dtype, Any]:
    return {dtype: torch.empty((), dtype=dtype).numpy().dtype for dtype in DTYPES}


DTYPES = frozenset({
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.complex64, torch.complex128,
})
"""The types of tensors whose arrays are followed."""


def layout_of_tensor(tensor: torch.Tensor) -> Layout:
    """The layout of the array in a tensor's memory."""
    return _dtypes()[tensor.dtype], tuple(tensor.shape), tuple(tensor.stride())


def dtype_of_tensor(array_dtype: Any) -> torch.dtype | None:
    """The tensors' type for an array's; None if it is not followed."""
    return next((dtype for dtype, own in _dtypes().items() if own == array_dtype), None)


def _run(call: str, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    given = [a.detach().numpy() for a in arrays]
    made = _owned(_called(call, given), given)
    if layout_of(made) != _result_layout(call, tuple(layout_of_tensor(a) for a in arrays)):
        raise RuntimeError(f"{_call_of(call)[0].__name__}() has given an array of another shape than expected")
    return torch.from_numpy(made)


def _fake(call: str, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    dtype, shape, strides = _result_layout(call, tuple(layout_of_tensor(a) for a in arrays))
    return torch.empty_strided(shape, strides, dtype=dtype_of_tensor(dtype), device="cpu")


NAME = "array_call"


@functools.cache
def array_call() -> Any:
    """The operator. The first call defines it."""
    library = _library()
    library.define(f"{NAME}(str call, Tensor[] arrays) -> Tensor")
    library.impl(NAME, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"dynamo_lite::{NAME}", _fake, lib=library)
    return torch.ops.dynamo_lite.array_call.default


@functools.cache
def _library() -> torch.library.Library:
    """The library object; it is cached because its operator exists only as long as it lives."""
    return torch.library.Library("dynamo_lite", "FRAGMENT")
